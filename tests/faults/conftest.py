"""Fixtures of the fault suite."""

from tests.helpers.managers import make, signals
from tests.helpers.scripts import script, signal_at

__all__ = ["make", "script", "signal_at", "signals"]
