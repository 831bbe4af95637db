"""What a caller may have got wrong, found before anything is sent.

Each error says what was given, in which state which env is, and what is legal there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.engine.engine import Engine
from envmgr.engine.machine import IDLE
from envmgr.engine.states import EnvState
from envmgr.errors import IllegalStateError, UnknownEnvError
from envmgr.memory.sides import own_copy

_WHAT_NOW = {
    EnvState.VOID: "call launch() first",
    EnvState.INIT: "its worker is coming up; ready_obs waits for it",
    EnvState.RESET: "its reset is under way; ready_obs lists the envs that can be stepped",
    EnvState.DONE: "it has had all its episodes (episode_num); reset() starts another",
    EnvState.ERROR: "reset({{{i}: None}}) makes it usable again",
    EnvState.NEED_RESET: "its episode is over and auto_reset is off; reset({{{i}: None}}) starts another",
}


_RUN = int(EnvState.RUN)


def env_ids(keys: Any, env_num: int, what: str) -> list[int]:
    """Checks env ids: whole numbers that exist, each once."""
    ids = []
    try:
        keys = iter(keys)
    except TypeError:
        raise UnknownEnvError(
            f"{what} is a list of env ids, each a whole number from 0 to {env_num - 1}, not {keys!r}"
        ) from None
    for key in keys:
        if isinstance(key, bool) or not isinstance(key, int | np.integer):
            raise UnknownEnvError(
                f"{what} names env {key!r}; an env_id is a whole number from 0 to {env_num - 1}"
            )
        if not 0 <= int(key) < env_num:
            raise UnknownEnvError(
                f"{what} names env {int(key)}; this manager has the envs 0 to {env_num - 1}", env_id=int(key)
            )
        ids.append(int(key))
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise IllegalStateError(f"{what} names env {twice} more than once", env_id=twice)
    return ids


def steppable(engine: Engine, ids: NDArray[np.int64]) -> None:
    """Refuses a step of an env that is not in RUN or is stepping already."""
    if engine.free(ids):
        return
    states, op = engine.machine.states, engine.machine.op
    for i in ids.tolist():
        if states[i] != _RUN:
            state = EnvState(int(states[i]))
            now = _WHAT_NOW[state].format(i=i)
            raise IllegalStateError(
                f"env {i} is in state {state.name} and cannot be stepped: {now}", env_id=i
            )
        if op[i] != IDLE or engine.has_result(i):
            raise IllegalStateError(
                f"env {i} is stepping already (state RUN); step({{}}), or recv() for arrays, gives its "
                "result as soon as it is there",
                env_id=i,
            )


def reset_params(params: Any, env_num: int) -> tuple[list[int], dict[int, Any]]:
    """Reads ``reset``'s argument: None, a dict by env_id, or a list with one entry per env.

    Returns:
        The envs to reset, and the params of those whose params change.
    """
    if params is None:
        return list(range(env_num)), {}
    if isinstance(params, Mapping):
        ids = env_ids(params, env_num, "reset_param")
        given = dict(zip(ids, params.values(), strict=True))
    elif isinstance(params, Sequence) and not isinstance(params, str | bytes):
        if len(params) != env_num:
            raise IllegalStateError(
                f"reset_param is a list of {len(params)}; this manager has {env_num} envs, give one entry "
                "for each, or a dict for some"
            )
        ids, given = list(range(env_num)), dict(enumerate(params))
    else:
        raise IllegalStateError(
            f"reset_param is {params!r}; it is None (all envs), a dict {{env_id: params}}, or a list of "
            "params"
        )
    for i, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            raise IllegalStateError(
                f"the reset params of env {i} are {value!r}; they are a dict of keyword arguments, or None",
                env_id=i,
            )
    return ids, {i: own_copy(dict(value)) for i, value in given.items() if value is not None}


def actions_mapping(actions: Any) -> Mapping[int, Any]:
    """Refuses actions that are not a dict by env_id."""
    if not isinstance(actions, Mapping):
        raise IllegalStateError(
            f"step takes a dict {{env_id: action}}, not {type(actions).__name__}; "
            "step_arrays takes an array with one row per env"
        )
    return actions


def action_ids(env_id: Any, env_num: int) -> NDArray[np.int64]:
    """Reads the array face's ``env_id``."""
    array = np.asarray(env_id)
    if array.dtype == np.int64 and array.ndim == 1 and array.size:
        named = np.zeros(env_num, np.bool_)
        with contextlib.suppress(IndexError):  # the careful way below says which it is
            named[array] = True
            if np.count_nonzero(named) == array.size and not np.count_nonzero(array < 0):
                return array.copy()
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UnknownEnvError(f"env_id is a list of whole numbers, not {env_id!r}")
    return np.array(env_ids(array.tolist(), env_num, "env_id"), np.int64)


__all__ = [
    "action_ids",
    "actions_mapping",
    "env_ids",
    "reset_params",
    "steppable",
]
