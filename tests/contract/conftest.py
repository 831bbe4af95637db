"""Fixtures of the contract suite."""

from tests.helpers.managers import make, signals

__all__ = ["make", "signals"]
