"""``adapt``: any env in, one form out.

What an env does decides, not what it inherits. Looking must not change it, so nothing is stepped or
reset here: whatever only a call can show is decided by the first call that the user makes.
"""

from __future__ import annotations

import inspect
from typing import Any

from envmgr.envs.adapted import Adapted
from envmgr.envs.advice import explain
from envmgr.envs.chain import lookup, method
from envmgr.envs.classic import ClassicEnv
from envmgr.envs.dm import DmEnv, is_dm_env
from envmgr.envs.parallel import ParallelEnv, is_parallel, is_turn_based
from envmgr.errors import EnvInitError

__all__ = ["Adapted", "adapt", "explain"]


def adapt(env: Any, agents: str | None = None) -> Adapted:
    """Brings an env to the form that workers call.

    Args:
        env: What an env_fn returned. An ``Adapted`` is given back as it is, so that an env_fn may adapt
            its env itself: ``lambda: adapt(make_env(), agents='dict')``.
        agents: For envs with many agents: ``'stack'`` has them as the leading axis of arrays, ``'dict'``
            as a dict by agent; None stacks where the agents' spaces allow it.

    Raises:
        EnvInitError: If it is not an env, with what it is and what was expected.
    """
    if isinstance(env, Adapted):
        return env
    _require_env(env)
    if is_parallel(env):
        return ParallelEnv(env, agents)
    if is_dm_env(env):
        return DmEnv(env)
    return ClassicEnv(env)


def _require_env(env: Any) -> None:
    wanted = "expected an env: an object with reset() and step(action)"
    if env is None:
        raise EnvInitError(f"the env_fn returned None; {wanted}. Does it lack a `return`?")
    if inspect.isclass(env):
        raise EnvInitError(
            f"the env_fn returned the class {env.__name__}; {wanted}. Call it: {env.__name__}(...)"
        )
    missing = [name for name in ("reset", "step") if method(env, name) is None]
    if missing:
        hint = (
            " It is a function: call it, or hand it in as the env_fn itself."
            if inspect.isroutine(env)
            else ""
        )
        raise EnvInitError(
            f"the env_fn returned {_short(env)} of type {type(env).__name__}, which has no "
            f"{' and no '.join(f'{name}()' for name in missing)}; {wanted}.{hint}"
        )
    if is_turn_based(env):
        raise EnvInitError(
            f"the env_fn returned {type(env).__name__}, in which agents move one after another; "
            "expected one in which they move at once: make it with parallel_env(), or use "
            "pettingzoo.utils.aec_to_parallel(env)"
        )
    if lookup(env, "num_envs") is not None and (
        lookup(env, "single_observation_space") is not None or method(env, "step_async") is not None
    ):
        raise EnvInitError(
            f"the env_fn returned {type(env).__name__}, which holds {lookup(env, 'num_envs')} envs; "
            "expected one env for each env_fn"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
