"""Envs with many agents in every manager (T08): who has left, and when the episode is over."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envmgr import SpaceMismatchError
from tests.helpers.managers import in_base_and_sync, in_sync, kinds, launch_all, many, step_until, wait_ready

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
# Who was terminated and who truncated, in the steps in which somebody ends.
ENDS = {2: ([True, False, False], [False] * 3), 4: ([False, True, False], [False, False, True])}


def ends_of(info):
    """The same from an info; None where it says nothing of it."""
    flags = [info[key] for key in ("terminated", "truncated") if key in info]
    assert all(mask.dtype == np.bool_ for mask in flags)
    return tuple(mask.tolist() for mask in flags) or None


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
                assert (ts.done, ts.terminated, ts.truncated) == (t == 4, False, t == 4), "c is cut off"
                assert ends_of(ts.info) == ENDS.get(t)
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
        assert out.truncated.tolist() == [t == 4] * 2 and not out.terminated.any()
        assert [ends_of(out.info.get(i, {})) for i in (0, 1)] == [ENDS.get(t)] * 2
    assert out.final_obs[1]["obs"].tolist() == rows(1, 4) and not out.final_obs[1]["alive"].any()


class OddEnv(LeavingEnv):
    """A ``LeavingEnv`` in which one thing is odd, mostly in the second step."""

    def __init__(self, env_id: int = 0, odd: str = "") -> None:
        super().__init__(env_id)
        self.odd = odd

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        obs, infos = super().reset(seed, options)
        if self.odd == "reset":
            del obs["b"]
        return obs, infos

    def step(self, actions: dict[str, int]) -> Any:
        obs, rewards, terminated, truncated, infos = super().step(actions)
        if self.odd == "shape 1":
            rewards = {name: np.array([reward]) for name, reward in rewards.items()}
        if self.t == 2 and self.odd == "shape 2":
            rewards["b"] = np.zeros(2)
        if self.t == 2 and self.odd == "none":
            rewards["c"] = None
        if self.t == 2 and self.odd == "no obs":
            del obs["b"]
        if self.t == 2 and self.odd == "gone":
            del obs["a"], rewards["a"]
        return obs, rewards, terminated, truncated, infos


def dict_step(manager):
    """A step of the only env in the dict face: its observation and its reward."""
    wait_ready(manager)
    ts = step_until(manager, {0: np.zeros(3, int)})[0]
    return ts.obs, ts.reward


def array_step(manager):
    """The same in the array face."""
    out = manager.step_arrays(np.zeros((1, 3), int))
    return {key: value[0] for key, value in out.obs.items()}, out.reward[0]


faces = pytest.mark.parametrize("step", [dict_step, array_step])


@faces
@in_base_and_sync
def test_rewards_of_one_element_are_numbers(make, step):
    manager = make.launched([partial(OddEnv, 0, "shape 1")])
    assert [step(manager)[1].tolist() for _ in range(3)] == REWARDS[:3]


@faces
@in_base_and_sync
def test_who_has_left_needs_neither_observation_nor_reward(make, step):
    manager = make.launched([partial(OddEnv, 0, "gone")])
    step(manager)
    obs, reward = step(manager)
    assert obs["obs"].tolist() == [[0, 0, 0], [0, 1, 2], [0, 2, 2]] and reward.tolist() == [0, 12, 22]


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ("shape 2", r"env 0.*reward of agent 'b' has shape \(2,\); expected a number"),
        ("none", r"env 0.*reward of agent 'c' is None"),
        ("no obs", r"env 0.*observation of agent 'b' is missing, and the agent is alive"),
    ],
)
@faces
@in_base_and_sync
def test_what_an_agent_lacks_is_an_error_that_names_it(make, step, odd, says):
    manager = make.launched([partial(OddEnv, 0, odd)])
    step(manager)
    with pytest.raises(SpaceMismatchError, match=says) as caught:
        step(manager)
    assert caught.value.env_id == 0


@in_base_and_sync
def test_a_first_observation_that_an_agent_lacks_is_an_error_that_names_it(make):
    manager = make([partial(OddEnv, 0, "reset")])
    with pytest.raises(SpaceMismatchError, match=r"env 0.*observation of agent 'b' is missing"):
        launch_all(manager)
