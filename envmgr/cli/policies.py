"""Small policies for ``envmgr run``, and what a policy of one's own has to be.

A run's config names a factory, ``'package.module:callable'``. It is called once, with
``(action_space, observation_space, seed)``, and gives the policy: a callable from env_ids and a batch
of their observations to one action for each. The envs of a call differ from one to the next, and
from manager to manager. So a policy that draws random numbers has a generator per env, and computes
each row by itself: then a seeded run plays the same episodes however its envs interleave.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from envmgr.errors import ConfigError

BUILTIN = {"cartpole": "envmgr.cli.policies:cartpole", "random": "envmgr.cli.policies:random"}
"""Short names, for the command line and for configs."""


class Policy(Protocol):
    """Chooses actions."""

    def __call__(self, env_ids: Sequence[int], obs_batch: Any) -> Sequence[Any]:
        """Chooses one action per env.

        Args:
            env_ids: The envs that wait for an action, in any order.
            obs_batch: Their observations, stacked: row k, in each leaf, is that of ``env_ids[k]``.

        Returns:
            An array, or any sequence, whose item k is the action for ``env_ids[k]``.
        """


class PolicyFactory(Protocol):
    """Makes a policy."""

    def __call__(self, action_space: Any, observation_space: Any, seed: int | None) -> Policy:
        """Makes the policy of a run; a ``seed`` of None leaves its random numbers to chance."""


def cartpole(
    action_space: Any,
    observation_space: Any,
    seed: int | None,
    noise: float = 0.3,
) -> Policy:
    """Balances CartPole: pushes to the side to which the pole leans and falls, and back towards the middle.

    Args:
        action_space: Discrete(2).
        observation_space: Box(4): position and velocity of the cart, angle and angular velocity of the pole.
        seed: Seed of the noise.
        noise: Share of actions that are random instead; each env's come from a generator of its own.
    """
    if getattr(observation_space, "shape", None) != (4,) or getattr(action_space, "n", None) != 2:
        raise ConfigError(
            "the cartpole policy needs Box(4) observations and Discrete(2) actions, but the envs have "
            f"{observation_space} and {action_space}; policy='random' works with any"
        )
    return _CartPole(seed, noise)


class _CartPole:
    def __init__(self, seed: int | None, noise: float) -> None:
        self._generators = _Generators(seed)
        self._noise = noise

    def __call__(self, env_ids: Sequence[int], obs_batch: Any) -> Any:
        x, x_dot, angle, angle_dot = np.asarray(obs_batch, np.float64).T
        # Spelled out, not a matrix product: that rounds differently for batches of different sizes.
        lean = 0.05 * x + 0.15 * x_dot + 1.0 * angle + 0.5 * angle_dot
        draws = np.array([self._generators[i].random(2) for i in env_ids])
        pushed = np.where(draws[:, 0] < self._noise, draws[:, 1] < 0.5, lean > 0)
        return pushed.astype(np.int64)


def random(action_space: Any, observation_space: Any, seed: int | None) -> Policy:
    """Takes what the action space samples; each env has a copy of the space, seeded by itself."""
    if not hasattr(action_space, "sample"):
        raise ConfigError(f"the random policy needs an action space that can sample(), not {action_space!r}")
    return _Random(action_space, seed)


class _Random:
    def __init__(self, action_space: Any, seed: int | None) -> None:
        self._space = action_space
        self._generators = _Generators(seed)
        self._spaces: dict[int, Any] = {}

    def __call__(self, env_ids: Sequence[int], obs_batch: Any) -> list[Any]:
        return [self._of(int(i)).sample() for i in env_ids]

    def _of(self, env_id: int) -> Any:
        space = self._spaces.get(env_id)
        if space is None:
            space = self._spaces[env_id] = copy.deepcopy(self._space)
            space.seed(int(self._generators[env_id].integers(2**31)))
        return space


class _Generators:
    """A generator per env, made when it is first asked for."""

    def __init__(self, seed: int | None) -> None:
        # Without a seed one is drawn, so that the envs' generators are still independent.
        self._entropy = np.random.SeedSequence(seed).entropy
        self._made: dict[int, np.random.Generator] = {}

    def __getitem__(self, env_id: int) -> np.random.Generator:
        made = self._made.get(env_id)
        if made is None:
            seeds = np.random.SeedSequence(self._entropy, spawn_key=(env_id,))
            made = self._made[env_id] = np.random.default_rng(seeds)
        return made
