"""The forms a step can come back in, each brought to ``(obs, reward, terminated, truncated, info)``.

Each form is a function of the env's ``step`` that gives the quickest callable for it. Five values
need no change: there the callable is the env's own. An info may be anything; whoever gets it says what it
makes of one that is no dict.

How an episode ended is told in three ways, and where they differ the plainest counts: ``terminated`` and
``truncated`` themselves (as values or as attributes), then ``info['TimeLimit.truncated']``, then ``done``
alone, which is taken for terminated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envmgr.envs.flags import FOUR, flag
from envmgr.errors import EnvStepError

Step = Callable[[Any], Any]

_TRUNCATED = "TimeLimit.truncated"
_FIELDS = ("obs", "reward", "done", "info")


def as_is(step: Step) -> Step:
    """Five values: the env's own ``step``."""
    return step


def from_four(step: Step) -> Step:
    """``(obs, reward, done, info)``, plain or as a timestep that knows more of its end than these four."""

    def step_four(action: Any) -> Any:
        result = step(action)
        obs, reward, done, info = result
        if info is None:
            info = {}
        try:
            if not done:
                return obs, reward, False, False, info
        except Exception:  # what it is, is told below
            pass
        flag(done, "done", FOUR)
        return obs, reward, *_ends(result, True, info), info

    return step_four


def from_object(step: Step) -> Step:
    """Any object with the attributes ``obs, reward, done, info`` (and perhaps how it ended)."""

    def step_object(action: Any) -> Any:
        result = step(action)
        done = flag(result.done, "done", "an object whose done is one")
        info = {} if result.info is None else result.info
        return result.obs, result.reward, *_ends(result, done, info), info

    return step_object


def _ends(result: Any, done: bool, info: Any) -> tuple[bool, bool]:
    """``(terminated, truncated)`` of a result that may know them apart; ``done`` is their or."""
    terminated, truncated = _said(result, "terminated"), _said(result, "truncated")
    limit = isinstance(info, Mapping) and flag(info.get(_TRUNCATED), f"info[{_TRUNCATED!r}]", "one there")
    if terminated or truncated:
        return bool(terminated), limit if truncated is None else truncated
    if not done:
        return False, False
    cut = limit or (truncated is None and terminated is not None)
    return not cut, cut


def _said(result: Any, name: str) -> bool | None:
    """A flag that a result may have besides ``done``; None where it has none."""
    value = getattr(result, name, None)
    if value is not None and value.__class__ is not bool:
        value = flag(value, name, f"an object whose {name} is one")
    return value


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
        four = isinstance(result, tuple) and getattr(result, "_fields", ()) == _FIELDS
        return (from_four if four else from_object), "timestep"
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
