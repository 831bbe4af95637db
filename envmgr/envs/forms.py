"""The forms a step can come back in, each brought to ``(obs, reward, terminated, truncated, info)``.

Each form is a function of the env's ``step`` that gives the quickest callable for it. Five values
need no change: there the callable is the env's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envmgr.errors import EnvStepError

Step = Callable[[Any], Any]

_TRUNCATED = "TimeLimit.truncated"
_FIELDS = ("obs", "reward", "done", "info")


def as_is(step: Step) -> Step:
    """Five values: the env's own ``step``."""
    return step


def from_four(step: Step) -> Step:
    """``(obs, reward, done, info)``; truncation is told in ``info['TimeLimit.truncated']``."""

    def step_four(action: Any) -> Any:
        obs, reward, done, info = step(action)
        if not done:
            return obs, reward, False, False, info or {}
        truncated = bool(info) and bool(info.get(_TRUNCATED, False))
        return obs, reward, not truncated, truncated, info or {}

    return step_four


def from_object(step: Step) -> Step:
    """Any object with the attributes ``obs, reward, done, info`` (and perhaps ``truncated``)."""

    def step_object(action: Any) -> Any:
        result = step(action)
        info = result.info or {}
        done = bool(result.done)
        truncated = done and bool(getattr(result, "truncated", False) or info.get(_TRUNCATED, False))
        return result.obs, result.reward, done and not truncated, truncated, info

    return step_object


def form_of(result: Any, style: str, owner: str) -> tuple[Callable[[Step], Step], str]:
    """Decides by a first result.

    Args:
        result: What the env's ``step`` returned.
        style: The style that was guessed.
        owner: Name of the env's class, for the message.

    Returns:
        The form, and the style the env turned out to have.

    Raises:
        EnvStepError: If it is none of the known forms.
    """
    if all(hasattr(result, name) for name in _FIELDS):
        plain = isinstance(result, tuple) and getattr(result, "_fields", ()) == _FIELDS
        return (from_four if plain else from_object), "timestep"
    if isinstance(result, (tuple, list)):
        if len(result) == 5:
            return as_is, style if style in ("gymnasium", "gym26") else "gymnasium"
        if len(result) == 4:
            return from_four, style if style in ("gym_old", "timestep") else "gym_old"
    what = type(result).__name__ + (f" of {len(result)}" if isinstance(result, (tuple, list)) else "")
    raise EnvStepError(
        f"{owner}.step() returned a {what}; expected (obs, reward, terminated, truncated, info), "
        "(obs, reward, done, info), or an object with the attributes obs, reward, done and info"
    )
