"""The adapter for PettingZoo's parallel envs: many agents in one env.

All agents that can ever be there (``possible_agents``, in that order) have a row of their own for good,
so that the layout is fixed. The observation is ``{'obs': ..., 'alive': mask}``: ``obs`` with agents as
leading axis (``agents='stack'``) or as a dict by agent (``agents='dict'``), ``alive`` a bool an agent:
whether it acts in the next step. Who is not there has zeros; who has just left has its last observation
and is no longer alive. Who is alive must have an observation, and a reward for each step in which it acted:
zeros that nobody meant are an error, not a row. Actions have the same form, and those of agents that are not
alive are not looked at. The reward is a vector, one an agent.

The info of a step in which agents end has two bool arrays in the order of the agents, ``'terminated'`` and
``'truncated'``: how each of those ended that ended in this step. The episode ends when all agents have gone.
It is terminated if all that ended last were terminated, and truncated if any of them was truncated: where one
agent was only cut off, what it would still have got is worth an estimate, and ``terminated`` would say that
there is nothing to estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envmgr.envs import stacking
from envmgr.envs.adapted import Adapted
from envmgr.envs.chain import lookup, method
from envmgr.envs.flags import flag
from envmgr.envs.spaces import Box, Dict
from envmgr.errors import EnvInitError, EnvStepError, SpaceMismatchError
from envmgr.infos import as_dict, says_something


def is_parallel(env: Any) -> bool:
    """Whether the env has spaces by agent: as methods (a Gymnasium space cannot be called), or as dicts."""
    if method(env, "observation_space") is not None and method(env, "action_space") is not None:
        return True
    return lookup(env, "possible_agents") is not None and isinstance(
        lookup(env, "observation_spaces"), Mapping
    )


def is_turn_based(env: Any) -> bool:
    """Whether the env is of PettingZoo's other kind, in which agents move one after another."""
    return lookup(env, "possible_agents") is not None and method(env, "agent_iter") is not None


class ParallelEnv(Adapted):
    """An env with many agents that act at once.

    Args:
        env: The env.
        agents: ``'stack'`` or ``'dict'``; None stacks where the agents' spaces allow it.

    Raises:
        EnvInitError: If it is to stack what cannot be stacked.
    """

    __slots__ = ("_actions", "_alive", "_index", "_obs")

    def __init__(self, env: Any, agents: str | None = None) -> None:
        if agents not in (None, "stack", "dict"):
            raise EnvInitError(f"agents={agents!r}: expected 'stack', 'dict' or None")
        names = list(lookup(env, "possible_agents") or ())
        if not names:
            raise EnvInitError(
                f"{type(env).__name__} has no possible_agents; the agents that can ever be there must "
                "be known, because each has a row of its own"
            )
        self._index = {name: k for k, name in enumerate(names)}
        self._obs = _codec(env, "observation", names, agents)
        self._actions = _codec(env, "action", names, agents)
        self._alive = np.zeros(len(names), bool)
        super().__init__(
            env,
            "pettingzoo",
            observation_space=Dict(
                {"obs": self._obs.space, "alive": Box(False, True, (len(names),), np.bool_)}
            ),
            action_space=self._actions.space,
            reward_space=Box(-np.inf, np.inf, (len(names),), np.float64),
        )
        self.step = self._step

    def _reset(self, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        result = self.env.reset(**kwargs)
        info: Any = {}
        if isinstance(result, tuple) and len(result) == 2:
            result, info = result
        present = lookup(self.env, "agents")
        self._alive = self._mask(result if present is None else present)
        return self._observation(result), _not_empty(info)

    def _step(self, action: Any) -> Any:
        acted, decode = self._alive, self._actions.decode
        actions = {name: decode(action, k) for name, k in self._index.items() if acted[k]}
        result = self.env.step(actions)
        if len(result) == 4:  # before terminated and truncated were told apart
            obs, rewards, terminations, infos = result
            truncations: Mapping[Any, Any] = {}
        else:
            obs, rewards, terminations, truncations, infos = result
        terminated = self._flagged(terminations, "terminated")
        truncated = self._flagged(truncations, "truncated")
        present = lookup(self.env, "agents")
        self._alive = (acted if present is None else self._mask(present)) & ~(terminated | truncated)
        reward = self._reward(rewards, acted)
        info = _not_empty(infos)
        ended = acted & ~self._alive
        over = (False, False)
        if ended.any():
            truncated &= ended
            terminated = ended & (terminated | ~truncated)  # who leaves without a word is done: terminated
            info.update(terminated=terminated, truncated=truncated)
        if not self._alive.any():
            over = (bool(terminated[ended].all()), bool(truncated[ended].any()))
        return self._observation(obs), reward, *over, info

    def _reward(self, rewards: Mapping[Any, Any], acted: Any) -> Any:
        """The rewards as a vector. Who acted must have one; who left by it may be missing."""
        reward = np.zeros(len(acted))
        missing = acted & self._alive
        for name, value in rewards.items():
            k = self._row(name)
            if value is None:
                missing[k] = acted[k]
            else:
                reward[k] = value if isinstance(value, (float, int)) else _number(value, name)
                missing[k] = False
        hint = "acted in this step: expected a number, 0.0 where there is nothing to reward"
        self._refuse(missing, rewards, "reward", hint)
        return reward

    def _observation(self, obs: Mapping[Any, Any]) -> dict[str, Any]:
        missing = self._alive.copy()
        for name, value in obs.items():
            k = self._row(name)
            if value is not None:
                missing[k] = False
        hint = "is alive: expected one, or that an agent that has left is no longer among the env's agents"
        self._refuse(missing, obs, "observation", hint)
        there = {name: value for name, value in obs.items() if value is not None}
        return {"obs": self._obs.encode(there), "alive": self._alive.copy()}

    def _refuse(self, missing: Any, given: Mapping[Any, Any], what: str, why: str) -> None:
        """Names the first agent of a mask, if there is one: it lacks a value that it must have."""
        if missing.any():
            name = list(self._index)[int(np.argmax(missing))]
            how = "None" if name in given else "missing"
            raise SpaceMismatchError(f"the {what} of agent {name!r} is {how}, and the agent {why}")

    def _flagged(self, flags: Mapping[Any, Any], what: str) -> Any:
        """Who has a flag that is true."""
        return self._mask(
            name
            for name, value in flags.items()
            if value is not False and flag(value, f"{what} of agent {name!r}", "one for each agent")
        )

    def _mask(self, names: Any) -> Any:
        mask = np.zeros(len(self._index), bool)
        for name in names:
            mask[self._row(name)] = True
        return mask

    def _row(self, name: Any) -> int:
        row = self._index.get(name)
        if row is None:
            raise EnvStepError(
                f"{type(self.env).__name__} has an agent {name!r} that is not among its possible_agents "
                f"{list(self._index)}"
            )
        return row


def _codec(env: Any, what: str, names: list[Any], agents: str | None) -> stacking.Codec:
    spaces = [_space(env, what, name) for name in names]
    if agents != "dict":
        codec = stacking.stack(spaces, names)
        if codec is not None:
            return codec
        if agents == "stack":
            raise EnvInitError(
                f"the {what} spaces of the agents of {type(env).__name__} cannot be stacked, they differ in "
                f"kind, dtype or number of axes ({dict(zip(names, spaces, strict=True))}): use agents='dict'"
            )
    return stacking.by_name(spaces, names)


def _space(env: Any, what: str, name: Any) -> Any:
    function = method(env, f"{what}_space")
    return function(name) if function is not None else getattr(env, f"{what}_spaces")[name]


def _number(value: Any, name: Any) -> Any:
    """A reward that is no plain number; one of a single element is that number, whatever its shape.

    Raises:
        SpaceMismatchError: If it is anything else.
    """
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.dtype.kind not in "biuf":
        raise SpaceMismatchError(
            f"the reward of agent {name!r} is {type(value).__name__} ({str(value)[:80]}); expected a number"
        )
    if array.size != 1:
        raise SpaceMismatchError(f"the reward of agent {name!r} has shape {array.shape}; expected a number")
    return array.item()


def _not_empty(infos: Any) -> dict[Any, Any]:
    """Infos by agent, without those that say nothing; a new dict."""
    return {name: info for name, info in as_dict(infos).items() if says_something(info)}
