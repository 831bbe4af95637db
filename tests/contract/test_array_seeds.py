"""Seeds of resets that a worker does by itself (array face): the same as those that the manager orders."""

from __future__ import annotations

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envmgr import create_env_manager


class Notes(gymnasium.Env):
    """Notes the seed of each reset; episodes of two steps."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.noted: list[int | None] = []
        self.t = 0

    def reset(self, *, seed=None, options=None):
        self.noted.append(seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 0.0, self.t == 2, False, {}


def noted(kind: str, face: str, dynamic: bool | None, again: bool) -> list[list[int | None]]:
    """The seeds of two envs over some episodes, with a new seed for env 1 after the second if ``again``."""
    with create_env_manager({"type": kind}, [functools.partial(Notes)] * 2) as manager:
        manager.seed(5, dynamic_seed=dynamic)
        manager.launch()
        if face == "arrays":
            manager.reset_arrays()
        for k in range(8):
            if k == 4 and again:  # at the beginning of an episode in both faces
                if face == "dict":
                    assert len(manager.ready_obs) >= 1
                manager.seed({1: 77}, dynamic_seed=dynamic)
            if face == "arrays":
                manager.step_arrays(np.zeros(2, np.int64))
            else:
                while set(manager.ready_obs_id) != {0, 1}:
                    pass
                manager.step({0: 0, 1: 0})
        if face == "dict":
            while set(manager.ready_obs_id) != {0, 1}:
                pass
        return manager.noted


@pytest.mark.parametrize("kind", ["base", "subprocess"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_workers_own_resets_get_the_seeds_that_ordered_ones_get(kind, dynamic, again):
    arrays, dicts = noted(kind, "arrays", dynamic, again), noted(kind, "dict", dynamic, again)
    assert arrays == dicts
    assert arrays[0][0] == 5
    assert (None in arrays[0]) is (dynamic is None)
    assert (77 in arrays[1]) is again
    assert len(arrays[0]) == 5
