"""Small envs for demos, benchmarks and tests.

Gymnasium-style ones first, then the same in other styles. All can be pickled by reference
(``functools.partial(CounterEnv, 3)``), so that they work under every start method.
"""

from __future__ import annotations

import random
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envmgr.timestep import BaseEnvTimestep

_Reset = tuple[Any, dict[str, Any]]
_Step = tuple[Any, float, bool, bool, dict[str, Any]]


class NullEnv(gymnasium.Env[Any, Any]):
    """Does nothing: the same array each step, reward 1. What is left to measure is not the env.

    Args:
        length: Steps in an episode; None never ends.
    """

    def __init__(self, length: int | None = None) -> None:
        self.observation_space: Any = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space: Any = spaces.Discrete(2)
        self.length = length
        self.obs: Any = np.zeros(4, np.float32)
        self.info: dict[str, Any] = {}
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> _Reset:
        """Starts over."""
        super().reset(seed=seed)
        self.t = 0
        return self.obs, self.info

    def step(self, action: Any) -> _Step:
        """Counts, if there is an end to count for."""
        if self.length is None:
            return self.obs, 1.0, False, False, self.info
        self.t += 1
        return self.obs, 1.0, self.t >= self.length, False, self.info


class PixelEnv(NullEnv):
    """A ``NullEnv`` with an image.

    Args:
        shape: Shape of the image, uint8.
        length: Steps in an episode; None never ends.
    """

    def __init__(self, shape: tuple[int, ...] = (4, 84, 84), length: int | None = None) -> None:
        super().__init__(length)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.obs = np.zeros(shape, np.uint8)


class DictEnv(NullEnv):
    """A ``NullEnv`` with an image, a vector and a number."""

    def __init__(self, length: int | None = None) -> None:
        super().__init__(length)
        self.observation_space = spaces.Dict(
            {
                "img": spaces.Box(0, 255, (64, 64, 3), np.uint8),
                "vec": spaces.Box(-np.inf, np.inf, (16,), np.float32),
                "k": spaces.Discrete(10),
            }
        )
        self.obs = {"img": np.zeros((64, 64, 3), np.uint8), "vec": np.zeros(16, np.float32), "k": 0}


class SleepyEnv(NullEnv):
    """A ``NullEnv`` whose steps take time, uniform between two bounds.

    Args:
        low: The shortest step in seconds.
        high: The longest.
        rng_seed: Seed of the generator that draws the times, which is the env's own.
        length: Steps in an episode; None never ends.
    """

    def __init__(
        self, low: float = 0.0, high: float = 0.002, rng_seed: int | None = None, length: int | None = None
    ) -> None:
        super().__init__(length)
        self.low, self.high = low, high
        self.clock = random.Random(rng_seed)

    def step(self, action: Any) -> _Step:
        """Sleeps, then does nothing."""
        time.sleep(self.clock.uniform(self.low, self.high))
        return super().step(action)


class CounterEnv(gymnasium.Env[Any, Any]):
    """Says whose each observation is: ``(env_id, episode, t)``, reward ``100 * env_id + t``.

    Args:
        env_id: What to write into each observation.
        length: Steps in an episode; None never ends.
        truncate: Whether episodes end by truncation instead of termination.
    """

    def __init__(self, env_id: int = 0, length: int | None = 10, truncate: bool = False) -> None:
        self.observation_space: Any = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space: Any = spaces.Discrete(2)
        self.env_id, self.length, self.truncate = env_id, length, truncate
        self.episode, self.t = -1, 0

    def _obs(self) -> Any:
        return np.array([self.env_id, self.episode, self.t], np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> _Reset:
        """Starts the next episode."""
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> _Step:
        """Counts on."""
        self.t += 1
        over = self.length is not None and self.t >= self.length
        return (
            self._obs(),
            100.0 * self.env_id + self.t,
            over and not self.truncate,
            over and self.truncate,
            {},
        )


class InfoEnv(CounterEnv):
    """A ``CounterEnv`` with an info in each step and reset."""

    def _info(self) -> dict[str, Any]:
        return {
            "env_id": self.env_id,
            "t": self.t,
            "even": self.t % 2 == 0,
            "where": np.array([self.t, -self.t]),
        }

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> _Reset:
        """Starts the next episode."""
        return super().reset(seed=seed, options=options)[0], self._info()

    def step(self, action: Any) -> _Step:
        """Counts on."""
        return (*super().step(action)[:4], self._info())


class TimestepCounterEnv:
    """A ``CounterEnv`` that returns timesteps, with a reward of shape (1,) and a ``seed`` method.

    Args:
        env_id: What to write into each observation.
        length: Steps in an episode; None never ends.
        truncate: Whether episodes end by truncation instead of termination.
    """

    def __init__(self, env_id: int = 0, length: int | None = 10, truncate: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Discrete(2)
        self.reward_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.env_id, self.length, self.truncate = env_id, length, truncate
        self.episode, self.t = -1, 0
        self.seeded: tuple[int, bool] | None = None

    def _obs(self) -> Any:
        return np.array([self.env_id, self.episode, self.t], np.float64)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Keeps what it is told; nothing here is random."""
        self.seeded = (seed, dynamic_seed)

    def reset(self) -> Any:
        """Starts the next episode."""
        self.episode += 1
        self.t = 0
        return self._obs()

    def step(self, action: Any) -> BaseEnvTimestep:
        """Counts on."""
        self.t += 1
        over = self.length is not None and self.t >= self.length
        reward = np.array([100.0 * self.env_id + self.t], np.float32)
        return BaseEnvTimestep(self._obs(), reward, over, self._info(over))

    def _info(self, over: bool) -> dict[str, Any]:
        return {"TimeLimit.truncated": True} if over and self.truncate else {}

    def close(self) -> None:
        """Nothing to do."""


class OldGymCounterEnv(TimestepCounterEnv):
    """A ``CounterEnv`` in the style of old gym: four values, a plain reward, ``seed(seed)``."""

    def __init__(self, env_id: int = 0, length: int | None = 10, truncate: bool = False) -> None:
        super().__init__(env_id, length, truncate)
        del self.reward_space

    def seed(self, seed: int | None = None) -> list[int | None]:  # type: ignore[override]
        """Keeps what it is told; nothing here is random."""
        self.seeded = None if seed is None else (seed, False)
        return [seed]

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:  # type: ignore[override]
        """Counts on."""
        self.t += 1
        over = self.length is not None and self.t >= self.length
        return self._obs(), 100.0 * self.env_id + self.t, over, self._info(over)
