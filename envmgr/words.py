"""How a value of the user's is written in a message. Nothing of envmgr is imported here."""

from __future__ import annotations

from typing import Any


def brief(value: Any) -> str:
    """A value for a message: its type, and its text as far as it is short."""
    try:
        # No more of a long list than is shown.
        text = repr(value[:60] if isinstance(value, list | tuple) else value)
    except Exception:  # a user's __repr__ may do anything
        text = ""
    text = text if len(text) < 60 else f"{text[:57]}..."
    return f"{type(value).__name__} {text}".rstrip()
