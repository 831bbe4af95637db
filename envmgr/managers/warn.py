"""Warnings of workers, warned in the caller's process."""

from __future__ import annotations

import warnings

from envmgr.errors import EnvManagerWarning


def warn_of(env_id: int, text: str) -> None:
    """Warns of something that a worker has noticed about an env."""
    warnings.warn(text, EnvManagerWarning, stacklevel=2)
