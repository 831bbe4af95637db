"""The toy envs keep their word, and so does BaseEnv."""

import pickle
from functools import partial

import numpy as np
import pytest

from envmgr.envs import toy
from envmgr.envs.adapt import adapt
from envmgr.envs.base import BaseEnv
from envmgr.timestep import BaseEnvTimestep

TOYS = [
    toy.NullEnv,
    partial(toy.NullEnv, length=3),
    partial(toy.PixelEnv, (2, 5, 5), length=3),
    partial(toy.DictEnv, length=3),
    partial(toy.SleepyEnv, 0.0, 0.0001, rng_seed=1, length=3),
    partial(toy.CounterEnv, 3, 4),
    partial(toy.InfoEnv, 3, 4),
]


@pytest.mark.parametrize("make", TOYS, ids=str)
def test_factories_pickle(make):
    assert type(pickle.loads(pickle.dumps(make))()) is type(make())


@pytest.mark.parametrize("make", TOYS, ids=str)
def test_observations_belong_to_their_space(make):
    adapted = adapt(make())
    obs, _ = adapted.reset(seed=0)
    for _ in range(3):
        assert adapted.observation_space.contains(obs)
        obs, reward, terminated, truncated, info = adapted.step_fn()(adapted.action_space.sample())
        assert isinstance(reward, float) and type(terminated) is bool and type(truncated) is bool
        assert bool(info) is isinstance(adapted.env, toy.InfoEnv)


def test_null_env_is_as_empty_as_it_can_be():
    env = toy.NullEnv()
    first, _ = env.reset()
    assert env.step(0)[0] is first and env.step(1)[0] is first
    assert env.step(0)[1:] == (1.0, False, False, {})


def test_lengths():
    for make in (toy.NullEnv, toy.PixelEnv, toy.DictEnv):
        env = make(length=2)
        env.reset()
        assert [env.step(0)[2] for _ in range(2)] == [False, True]
    env = toy.CounterEnv(length=None)
    env.reset()
    assert not any(env.step(0)[2] for _ in range(50))


class Mine(BaseEnv):
    """The smallest env there is."""

    def reset(self, **kwargs):
        return np.zeros(1)

    def step(self, action):
        return BaseEnvTimestep(np.zeros(1), 1.0, True, {})


def test_base_env():
    with pytest.raises(TypeError, match="abstract"):
        BaseEnv()
    env = Mine()
    adapted = adapt(env)
    assert adapted.style == "timestep"
    assert adapted.reset(3)[0].shape == (1,)
    assert (env._seed, env._dynamic_seed) == (3, True)
    adapted.seed(4, False)
    assert (env._seed, env._dynamic_seed) == (4, False)
    assert adapted.step(0)[2:4] == (True, False)
    assert adapted.observation_space is None
    adapted.close()
