"""What every kind of worker does with one env: build it, describe it, answer a call on it."""

from __future__ import annotations

import pickle
from typing import Any

from envmgr.envs.adapt import Adapted, adapt
from envmgr.envs.advice import in_a_fresh_interpreter
from envmgr.memory.layout import layout_of
from envmgr.workers.channel import pack
from envmgr.workers.contract import EnvSpec, Failure
from envmgr.workers.failures import capture, kind_of, text_of
from envmgr.workers.stray import end_if_stray


def build_env(env_id: int, env_fn: Any, pickled: bool) -> Adapted:
    """Calls the env_fn, once, and adapts what it gives. Raises what the env_fn raises."""
    if pickled:
        in_a_fresh_interpreter()
        env_fn = pickle.loads(env_fn)
    return adapt(env_fn())


def describe(adapted: Adapted) -> EnvSpec:
    """The spec that goes to the parent."""
    spaces = (adapted.observation_space, adapted.action_space, adapted.reward_space)
    return EnvSpec(
        obs=layout_of(adapted.observation_space),
        action=layout_of(adapted.action_space),
        reward_dtype=adapted.reward_dtype.str,
        reward_shape=tuple(adapted.reward_shape),
        spaces=pack(spaces),
        style=adapted.style,
    )


class MethodProxy:
    """Stands for a method of an env in the parent; the manager turns it into a call."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def call_env(adapted: Adapted, op: str, name: str, args: Any, kwargs: Any, here: bool = False) -> Any:
    """Does one call on an env: ``get``, ``set``, ``call`` or ``has``; ``here``: in the caller's process."""
    if op == "get":
        value = adapted.get(name)
        return MethodProxy(name) if not here and callable(value) and hasattr(value, "__self__") else value
    if op == "set":
        adapted.set(name, args[0])
        return None
    if op == "has":
        try:
            adapted.get(name)
        except AttributeError:
            return False
        return True
    return adapted.call(name, *args, **kwargs)


def answer_call(adapted: Adapted, op: str, name: str, args: Any, kwargs: Any) -> tuple[bool, bytes]:
    """The answer to a call, pickled here so that what does not pickle is an error and not a death."""
    try:
        value = call_env(adapted, op, name, args, kwargs)
    except BaseException as error:  # whatever the env raises is the answer
        end_if_stray(error)
        return False, pickle.dumps(capture(error, op))
    try:
        return True, pack(value)
    except BaseException as error:  # what does not pickle can raise anything
        text = f"{name!r} is a {type(value).__name__} that cannot be sent between processes: {text_of(error)}"
        return False, pickle.dumps(Failure(op=op, kind=kind_of(error), text=text))
