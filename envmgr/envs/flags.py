"""Values that say yes or no: whether an episode is over, whatever class an env says it in."""

from __future__ import annotations

from typing import Any

import numpy as np

from envmgr.errors import SpaceMismatchError
from envmgr.words import brief

FIVE = "(obs, reward, terminated, truncated, info)"
FOUR = "(obs, reward, done, info)"
"""What a step returns, for messages."""


def flag(value: Any, name: str, values: str = FIVE) -> bool:
    """A truth value, whatever its class.

    What has no ``__bool__`` of its own says nothing by being true: a text, a list (``[False]`` is true), a
    dict of agents, a method that was not called.

    Args:
        value: What the env returned.
        name: What it is, for the message.
        values: What the env's step has to return, for the message.

    Raises:
        SpaceMismatchError: It is none.
    """
    try:
        says = hasattr(type(value), "__bool__") and not isinstance(value, str | bytes)
        if says and (np.size(value) == 1 or not hasattr(value, "shape")):
            return bool(value)
    except Exception:  # a value of the user's own may do anything
        pass
    raise SpaceMismatchError(
        f"{name}: expected one truth value, got {brief(value)}; the env's step must return {values}"
    )
