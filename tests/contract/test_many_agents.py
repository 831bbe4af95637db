"""Envs with many agents in every manager (T08): who has left, and when the episode is over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.helpers.managers import in_sync, kinds, many, step_until, wait_ready

pytestmark = pytest.mark.case("T08")

AGENTS = ("a", "b", "c")
LEAVES = {"a": 2, "b": 4, "c": 4}


class LeavingEnv:
    """Three agents, of which "a" leaves at step 2 and the others at step 4; agent k sees (env_id, k, t)."""

    def __init__(self, env_id: int = 0) -> None:
        self.possible_agents = list(AGENTS)
        self.env_id, self.t, self.agents = env_id, 0, []
        self.given: list[dict[str, int]] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-9, 99, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(9)

    def _obs(self, names: Any) -> dict[str, Any]:
        return {n: np.array([self.env_id, AGENTS.index(n), self.t], np.float32) for n in names}

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.t, self.agents = 0, list(AGENTS)
        return self._obs(AGENTS), {n: {} for n in AGENTS}

    def step(self, actions: dict[str, int]) -> Any:
        self.given.append({name: int(action) for name, action in actions.items()})
        self.t += 1
        here, over = self.agents, {n: self.t >= LEAVES[n] for n in self.agents}
        self.agents = [n for n in here if not over[n]]
        truncated = {n: over[n] and n == "c" for n in here}
        terminated = {n: over[n] and n != "c" for n in here}
        return self._obs(here), {n: 10.0 * AGENTS.index(n) + self.t for n in here}, terminated, truncated, {}

    def close(self) -> None:
        pass


# By step: who acts next, the rows of the agents, and their rewards. Who has left has zeros.
ALIVE = [[True] * 3, [False, True, True], [False, True, True], [False] * 3]
REWARDS = [[1, 11, 21], [2, 12, 22], [0, 13, 23], [0, 14, 24]]


def rows(env_id, t):
    """What the three agents of an env see after ``t`` steps."""
    return [[env_id, k, t] if t <= LEAVES[name] else [0, 0, 0] for k, name in enumerate(AGENTS)]


@kinds("base", "async_subprocess-spawn")
def test_the_episode_ends_when_all_have_left(make):
    manager = make.launched(many(LeavingEnv, 2))
    for _ in range(2):
        ready = wait_ready(manager)
        for i in (0, 1):
            assert ready[i]["obs"].tolist() == rows(i, 0) and ready[i]["alive"].tolist() == [True] * 3
        for t in range(1, 5):
            results = step_until(manager, {i: np.array([t, t + 1, t + 2]) for i in (0, 1)})
            for i, ts in results.items():
                assert ts.obs["obs"].tolist() == rows(i, t)
                assert ts.obs["alive"].tolist() == ALIVE[t - 1]
                assert ts.reward.tolist() == REWARDS[t - 1]
                assert (ts.done, ts.terminated, ts.truncated) == (t == 4, t == 4, False)
    given = [
        {"a": 1, "b": 2, "c": 3},
        {"a": 2, "b": 3, "c": 4},
        {"b": 4, "c": 5},
        {"b": 5, "c": 6},
    ]
    assert manager.given == [given * 2] * 2, "no action for an agent that has left"


@in_sync
def test_in_arrays(make):
    manager = make(many(LeavingEnv, 2))
    manager.launch()
    obs, _ = manager.reset_arrays()
    assert obs["obs"].tolist() == [rows(0, 0), rows(1, 0)] and obs["alive"].shape == (2, 3)
    for t in range(1, 5):
        out = manager.step_arrays(np.full((2, 3), t))
        now = t % 4
        for k, i in enumerate(map(int, out.env_id)):
            assert out.obs["obs"][k].tolist() == rows(i, now)
            assert out.obs["alive"][k].tolist() == (ALIVE[t - 1] if now else [True] * 3)
        assert out.reward.tolist() == [REWARDS[t - 1]] * 2
        assert out.terminated.tolist() == [t == 4] * 2
    assert out.final_obs[1]["obs"].tolist() == rows(1, 4) and not out.final_obs[1]["alive"].any()
