"""A manager without processes, for tests of what drives one: async in its ways, and the same each time.

Env ``i`` plays episodes of ``i + 2`` steps, with observations ``(env_id, episode, t)`` and reward 1. A step
returns the results of at most ``at_once`` envs, the longest pending first. An env that is done is ready again
``reset_steps`` calls of ``ready_obs`` later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envmgr.engine.states import EnvState
from envmgr.timestep import BaseEnvTimestep


class Space:
    """Just enough of a Discrete space for a policy to sample from."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def seed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def sample(self) -> int:
        return int(self.rng.integers(1000))


class FakeManager:
    """Steps counters, in the caller's thread, for as long as nobody asks it to fail.

    Env fns are kept and never called.
    """

    config: dict[str, Any] = dict(  # noqa: RUF012 - as managers have it
        at_once=2, reset_steps=1, auto_reset=True, episode_num=float("inf"), fail_at=None, abnormal_at=None
    )
    made: list[FakeManager] = []  # noqa: RUF012 - what a test looks at afterwards

    def __init__(self, env_fn: list[Callable[[], Any]], cfg: dict[str, Any]) -> None:
        self.env_fn, self.cfg = env_fn, cfg
        self.env_num = len(env_fn)
        self.action_space = self.observation_space = Space()
        self.closed = False
        self.seeded: int | None = None
        self.resets: list[dict[int, Any]] = []
        self.on_step: Callable[[], None] = lambda: None
        self.steps = 0
        type(self).made.append(self)

    def seed(self, seed: int) -> None:
        self.seeded = seed

    def launch(self, reset_param: Any = None) -> None:
        self.episode = [0] * self.env_num
        self.t = [0] * self.env_num
        self.state = [EnvState.RUN] * self.env_num
        self.until_ready = [0] * self.env_num
        self.pending: list[int] = []

    @property
    def env_states(self) -> dict[int, EnvState]:
        return dict(enumerate(self.state))

    @property
    def done(self) -> bool:
        return all(state is EnvState.DONE for state in self.state)

    @property
    def ready_obs(self) -> dict[int, Any]:
        for i in range(self.env_num):
            if self.state[i] is EnvState.RESET:
                self.until_ready[i] -= 1
                if self.until_ready[i] < 0:
                    self._begin(i)
        return {
            i: self._obs(i)
            for i in range(self.env_num)
            if self.state[i] is EnvState.RUN and i not in self.pending
        }

    def step(self, actions: dict[int, Any]) -> dict[int, BaseEnvTimestep]:
        self.on_step()
        assert all(self.state[i] is EnvState.RUN and i not in self.pending for i in actions)
        self.pending += actions
        now, self.pending = self.pending[: self.cfg["at_once"]], self.pending[self.cfg["at_once"] :]
        return {i: self._stepped(i) for i in now}

    def reset(self, reset_param: dict[int, Any]) -> None:
        self.resets.append(reset_param)
        for i in reset_param:
            self._begin(i)

    def stats(self) -> dict[int, dict[str, float]]:
        one = dict.fromkeys(("step_time", "reset_time", "wait_time", "retries", "renewals", "timeouts"), 0.0)
        return {i: {**one, "steps": 1, "episodes": self.episode[i]} for i in range(self.env_num)}

    def close(self) -> None:
        self.closed = True

    def _obs(self, i: int) -> Any:
        return np.array([i, self.episode[i], self.t[i]], np.float32)

    def _begin(self, i: int) -> None:
        self.episode[i] += 1
        self.t[i] = 0
        self.state[i] = EnvState.RUN

    def _stepped(self, i: int) -> BaseEnvTimestep:
        self.steps += 1
        self.t[i] += 1
        obs = self._obs(i)
        if self.steps == self.cfg["abnormal_at"]:
            self.state[i] = EnvState.ERROR
            return BaseEnvTimestep(obs, 0.0, False, {"abnormal": True})
        done = self.t[i] >= i + 2
        if done and self.episode[i] + 1 >= self.cfg["episode_num"]:
            self.state[i] = EnvState.DONE
        elif done:
            self.state[i] = EnvState.RESET if self.cfg["auto_reset"] else EnvState.NEED_RESET
            self.until_ready[i] = self.cfg["reset_steps"]
        return BaseEnvTimestep(obs, 1.0, done, {})
