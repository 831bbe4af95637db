"""Envs that people train on, from the package index: the same numbers in every manager and in a plain loop.

One of each sort that goes another way through envmgr: scalars (toy text), a tuple (Blackjack), small
vectors (classic control), images (Atari), float64 with numpy scalars in its infos (MuJoCo), a dict with a
text in it (MiniGrid), many agents that leave one by one (PettingZoo), and gym's own classes, which are not
gymnasium's.
"""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import Any

import gymnasium
import pytest

from envmgr import create_env_manager
from tests.helpers.managers import assert_same_stories, told_info

SEED = 7
STEPS = (1000, 200)  # of each env
N = len(STEPS)


def atari() -> Any:
    """Breakout in colour; ale_py brings its games with it, and registers them when it is imported."""
    import ale_py

    gymnasium.register_envs(ale_py)
    return gymnasium.make("ALE/Breakout-v5", frameskip=1, max_episode_steps=200)


def minigrid() -> Any:
    """A grid whose observation is a direction, an image and the mission as a text."""
    import minigrid

    gymnasium.register_envs(minigrid)
    return gymnasium.make("MiniGrid-Empty-5x5-v0", max_steps=40)


def pettingzoo() -> Any:
    """Two agents, which die one after the other."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame looks for a screen even if nothing is shown
    import pettingzoo

    few = dict(num_archers=1, num_knights=1, max_zombies=4, max_arrows=2, spawn_delay=2, line_death=True)
    return pettingzoo.make("parallel", "butterfly/knights_archers_zombies_v11", **few)


def gym_cartpole() -> Any:
    """CartPole of gym 0.26, without the checker that numpy 2 breaks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gym

        return gym.make("CartPole-v1", disable_env_checker=True)


ENVS = {
    "cartpole": partial(gymnasium.make, "CartPole-v1"),
    "pendulum": partial(gymnasium.make, "Pendulum-v1"),
    "frozen-lake": partial(gymnasium.make, "FrozenLake-v1"),
    "blackjack": partial(gymnasium.make, "Blackjack-v1"),
    "atari": atari,
    "mujoco": partial(gymnasium.make, "Hopper-v5"),
    "minigrid": minigrid,
    "pettingzoo": pettingzoo,
    "gym-0.26": gym_cartpole,
}


def actions_of(space: Any) -> list[list[Any]]:
    """The actions of each env, step by step: drawn once, the same for whoever steps."""
    space.seed(SEED)
    return [[space.sample() for _ in range(steps)] for steps in STEPS]


def managed(make_env: Any, **cfg: Any) -> dict[int, list[Any]]:
    """What each env gives in a manager: its resets, its steps, its ends."""
    story: dict[int, list[Any]] = {i: [] for i in range(N)}
    asked, answered = [0] * N, [0] * N
    with create_env_manager(cfg, [make_env] * N) as manager:
        actions = actions_of(manager.action_space)
        manager.seed(SEED)
        manager.launch()
        while answered != list(STEPS):
            ready = {i: obs for i, obs in manager.ready_obs.items() if asked[i] < STEPS[i]}
            for i in ready:
                if not story[i] or story[i][-1][0] == "end":
                    story[i].append(("reset", ready[i], manager.ready_info[i]))
            given = {i: actions[i][asked[i]] for i in ready}
            for i in given:
                asked[i] += 1
            for i, ts in manager.step(given).items():
                answered[i] += 1
                story[i].append(("step", ts.obs, ts.reward, ts.terminated, ts.truncated, told_info(ts.info)))
                if ts.done:
                    story[i].append(("end",))
    return story


def alone(make_env: Any) -> dict[int, list[Any]]:
    """The same without envmgr: a plain loop over one Gymnasium-style env after another."""
    story: dict[int, list[Any]] = {}
    for i in range(N):
        env = make_env()
        actions = actions_of(env.action_space)[i]
        events = story[i] = [("reset", *env.reset(seed=SEED + i))]
        for k, action in enumerate(actions):
            obs, reward, terminated, truncated, info = env.step(action)
            events.append(("step", obs, float(reward), terminated, truncated, told_info(info)))
            if terminated or truncated:
                events.append(("end",))
                if k + 1 < STEPS[i]:
                    events.append(("reset", *env.reset()))
        env.close()
    return story


@pytest.mark.case("A11", "D03")
@pytest.mark.parametrize("name", ENVS)
def test_the_same_in_every_manager_and_in_a_plain_loop(name):
    make_env = ENVS[name]
    story = managed(make_env, type="base")
    for events in story.values():
        assert any(event[0] == "end" for event in events), "an episode has to end within these steps"
    assert_same_stories(story, managed(make_env, type="subprocess"))
    assert_same_stories(story, managed(make_env, type="async_subprocess", wait_num=1, step_wait_timeout=0.0))
    if name == "pettingzoo":  # has no such loop; its form is this one's own
        steps = [event[1]["alive"] for events in story.values() for event in events if event[0] == "step"]
        assert any(0 < alive.sum() < alive.size for alive in steps), "an agent leaves before the others"
    else:
        assert_same_stories(story, alone(make_env))
