"""The adapter for dm_env environments: ``TimeStep``s instead of tuples, specs instead of spaces.

A last step with discount 0 is a termination, with any other discount a truncation, as dm_env
defines it. The API has no seeds: an env with a ``seed`` method, or a ``reset`` that takes one, is seeded
that way, any other is left to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envmgr.envs.adapted import Adapted
from envmgr.envs.chain import lookup, method
from envmgr.envs.spaces import Box, Dict, Discrete, Tuple

_LAST = 2  # dm_env.StepType.LAST


def is_dm_env(env: Any) -> bool:
    """Whether the env describes itself by dm_env's specs, and not by spaces as well."""
    specs = method(env, "observation_spec") is not None and method(env, "action_spec") is not None
    return specs and lookup(env, "observation_space") is None


class DmEnv(Adapted):
    """A dm_env environment."""

    __slots__ = ()

    def __init__(self, env: Any) -> None:
        reward = env.reward_spec() if method(env, "reward_spec") is not None else None
        spec = env.action_spec()
        super().__init__(
            env,
            "dm_env",
            observation_space=space_of(env.observation_spec()),
            action_space=space_of(spec),
            reward_space=None if reward is None else space_of(reward),
        )
        self.step = _step_of(env.step, _caster(spec), np.zeros(self.reward_shape, self.reward_dtype)[()])

    def _reset(self, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        return self.env.reset(**kwargs).observation, {}


def _step_of(step: Callable[[Any], Any], cast: Callable[[Any], Any], nothing: Any) -> Callable[[Any], Any]:
    def step_dm(action: Any) -> Any:
        timestep = step(cast(action))
        reward, discount = timestep.reward, timestep.discount
        if reward is None:
            reward = nothing
        if not _is_last(timestep):
            info = {} if discount is None or np.all(np.equal(discount, 1)) else {"discount": discount}
            return timestep.observation, reward, False, False, info
        terminated = discount is not None and bool(np.all(np.equal(discount, 0)))
        info = {} if terminated or discount is None else {"discount": discount}
        return timestep.observation, reward, terminated, not terminated, info

    return step_dm


def _is_last(timestep: Any) -> bool:
    kind = timestep.step_type
    return kind == _LAST if isinstance(kind, int) else bool(timestep.last())


def space_of(spec: Any) -> Any:
    """The space-like object for a spec, or for a dict, list or tuple of specs."""
    if isinstance(spec, Mapping):
        return Dict({key: space_of(part) for key, part in spec.items()})
    if isinstance(spec, (tuple, list)):
        return Tuple([space_of(part) for part in spec])
    if getattr(spec, "num_values", None) is not None:
        return Discrete(spec.num_values)
    dtype = np.dtype(spec.dtype)
    low, high = _limits(dtype)
    return Box(getattr(spec, "minimum", low), getattr(spec, "maximum", high), spec.shape, dtype)


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return (False, True) if dtype.kind == "b" else (-np.inf, np.inf)


def _caster(spec: Any) -> Callable[[Any], Any]:
    """Gives an action the dtype its spec wants: dm_env compares dtypes strictly."""
    if isinstance(spec, Mapping):
        casters = {key: _caster(part) for key, part in spec.items()}
        return lambda action: {key: cast(action[key]) for key, cast in casters.items()}
    if isinstance(spec, (tuple, list)):
        kind, parts = type(spec), [_caster(part) for part in spec]
        if hasattr(kind, "_fields"):
            return lambda action: kind(*(cast(a) for cast, a in zip(parts, action, strict=True)))
        return lambda action: kind(cast(a) for cast, a in zip(parts, action, strict=True))
    dtype = np.dtype(spec.dtype)
    if dtype.kind not in "biufc":
        return lambda action: action
    if tuple(spec.shape) == ():
        scalar = dtype.type
        return lambda action: scalar(action)
    return lambda action: np.asarray(action, dtype)
