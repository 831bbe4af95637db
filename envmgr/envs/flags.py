"""Values that say yes or no: whether an episode is over, whatever class an env says it in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from envmgr.errors import SpaceMismatchError
from envmgr.words import brief

# What a step returns, for messages.
FIVE = "(obs, reward, terminated, truncated, info)"
FOUR = "(obs, reward, done, info)"


def flag(value: Any, name: str, values: str = FIVE) -> bool:
    """A truth value, whatever its class.

    What is false is a no. What is true is a yes only where its class has a truth of its own: a text, a list
    (``[False]`` is true), a dict of agents, a member of an Enum or a method that was not called are true by
    being there.

    Args:
        value: What the env returned.
        name: What it is, for the message.
        values: What the env's step has to return, for the message.

    Raises:
        SpaceMismatchError: It is none.
    """
    if value.__class__ is bool:
        return bool(value)
    try:
        if not value:
            return False
        if _has_a_truth(value):
            return True
    except Exception:  # a value of the user's own may do anything; one of several items has no truth
        pass
    raise SpaceMismatchError(
        f"{name}: expected one truth value, got {brief(value)}; the env's step must return {values}"
    )


def _has_a_truth(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    # Not hasattr: the class of a class may have one (that of Enum does).
    return not isinstance(value, Sequence | Set | Mapping) and any(
        "__bool__" in vars(cls) for cls in type(value).__mro__
    )
