"""The forms of single-agent envs: what reset and step give, and how an episode ends."""

import copy
import pickle
from collections import UserDict, namedtuple
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envmgr.envs import toy
from envmgr.envs.adapt import adapt
from envmgr.timestep import BaseEnvTimestep, EnvIdTimestep


def episode(adapted, action=0):
    """The results of the steps of one episode."""
    adapted.reset()
    results = []
    while True:
        results.append(adapted.step_fn()(action))
        if results[-1][2] or results[-1][3]:
            return results


@pytest.mark.parametrize("make", [toy.CounterEnv, toy.OldGymCounterEnv, toy.TimestepCounterEnv])
@pytest.mark.parametrize("truncate", [False, True])
def test_terminated_and_truncated_are_kept_apart(make, truncate):
    adapted = adapt(make(2, 3, truncate))
    for k in range(2):
        results = episode(adapted)
        assert [r[0].tolist() for r in results] == [[2, k, t] for t in (1, 2, 3)]
        assert [r[2:4] for r in results] == [(False, False)] * 2 + [(not truncate, truncate)]
        assert all(type(flag) is bool for r in results for flag in r[2:4])
        assert [float(r[1]) if np.ndim(r[1]) == 0 else r[1].tolist() for r in results] == (
            [201, 202, 203] if make is not toy.TimestepCounterEnv else [[201], [202], [203]]
        )


def test_cartpole_gives_what_it_gives_by_itself():
    env, same = gymnasium.make("CartPole-v1"), gymnasium.make("CartPole-v1")
    adapted = adapt(env)
    obs, info = adapted.reset(seed=5)
    expected = same.reset(seed=5)
    np.testing.assert_array_equal(obs, expected[0])
    assert info == expected[1]
    for _ in range(30):
        got, expected = adapted.step_fn()(1), same.step(1)
        np.testing.assert_array_equal(got[0], expected[0])
        assert got[1:] == expected[1:]
        if got[2]:
            break
    env.close(), same.close()


def test_frozen_lake_with_its_int_observation():
    adapted = adapt(gymnasium.make("FrozenLake-v1", is_slippery=False))
    obs, info = adapted.reset(seed=0)
    assert obs == 0 and info == {"prob": 1}
    assert adapted.step(np.int64(1))[0] == 4
    assert isinstance(adapted.observation_space, spaces.Discrete)


def test_time_limit_truncates():
    adapted = adapt(gymnasium.make("CartPole-v1", max_episode_steps=2))
    assert [r[2:4] for r in episode(adapted)] == [(False, False), (False, True)]


def test_gym_026():
    import gym

    adapted = adapt(gym.make("CartPole-v1", disable_env_checker=True))
    assert adapted.style == "gym26"
    obs, info = adapted.reset(seed=5)
    np.testing.assert_array_equal(obs, gymnasium.make("CartPole-v1").reset(seed=5)[0])
    assert info == {}
    assert len(episode(adapted, 1)[-1]) == 5
    assert adapted.step == adapted.env.step
    assert adapted.style == "gym26"
    assert adapted.observation_space.shape == (4,) and adapted.action_space.n == 2
    adapted.close()


class OldGymSpaces(toy.OldGymCounterEnv):
    """Old gym whose observation looks like (obs, info)."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Tuple(
            (spaces.Box(0, 9, (2,), np.float32), spaces.Dict({"k": spaces.Discrete(3)}))
        )

    def _obs(self):
        return np.ones(2, np.float32), {"k": 1}


class NewWithPair(OldGymSpaces):
    """Gymnasium-like with the same observation."""

    def reset(self, *, seed=None, options=None):
        return super().reset(), {"first": True}


class NewButOutside(NewWithPair):
    """Its observations are not even in its space: signatures must do."""

    def _obs(self):
        return np.full(2, 99, np.float32), {"k": 77}


class OldButOutside(OldGymSpaces):
    def _obs(self):
        return np.full(2, 99, np.float32), {"k": 77}


class NewWhoseSpaceFails(NewWithPair):
    """Asked about (obs, info), its space raises: MultiDiscrete makes an array of whatever it gets."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Tuple(
            (spaces.MultiDiscrete([3, 3]), self.observation_space.spaces[1])
        )

    def _obs(self):
        return np.ones(2, np.int64), {"k": 1}


@pytest.mark.parametrize(
    ("make", "info"),
    [
        (OldGymSpaces, {}),
        (NewWithPair, {"first": True}),
        (NewWhoseSpaceFails, {"first": True}),
        (NewButOutside, {"first": True}),
        (OldButOutside, {}),
    ],
)
def test_an_observation_that_is_a_pair_with_a_dict_is_not_taken_for_an_info(make, info):
    adapted = adapt(make())
    for _ in range(2):
        obs, got = adapted.reset()
        assert got == info
        assert isinstance(obs, tuple) and obs[0].shape == (2,) and set(obs[1]) == {"k"}


def test_reset_params_may_change_what_reset_returns():
    """gym 0.22 to 0.25: ``reset(return_info=True)``."""

    class Between(toy.OldGymCounterEnv):
        def reset(self, *, seed=None, return_info=False, options=None):
            obs = super().reset()
            return (obs, {"seed": seed}) if return_info else obs

    adapted = adapt(Between())
    assert adapted.reset(3)[1] == {}
    assert adapted.reset(4, {"return_info": True})[1] == {"seed": 4}
    assert adapted.reset(None, {"return_info": True})[1] == {"seed": None}


Swapped = namedtuple("Swapped", ["info", "done", "reward", "obs"])
WithId = namedtuple("WithId", ["obs", "reward", "done", "info", "env_id"])
TimestepLike = [
    lambda o, r, d, i: BaseEnvTimestep(o, r, d, i),
    lambda o, r, d, i: SimpleNamespace(obs=o, reward=r, done=d, info=i),
    lambda o, r, d, i: Swapped(i, d, r, o),
    lambda o, r, d, i: WithId(o, r, d, i, 5),
]


@pytest.mark.parametrize("form", TimestepLike)
@pytest.mark.parametrize("over", [False, True, np.bool_(True), np.array([True])])
@pytest.mark.parametrize("info", [{}, None, {"TimeLimit.truncated": True}, {"abnormal": True}])
def test_any_timestep(form, over, info):
    class Env(toy.TimestepCounterEnv):
        def step(self, action):
            return form(np.zeros(3), 1.5, over, info)

    adapted = adapt(Env())
    adapted.reset()
    for _ in range(2):
        obs, reward, terminated, truncated, got = adapted.step_fn()(0)
        limit = bool(info) and info.get("TimeLimit.truncated", False)
        assert (terminated, truncated) == (bool(over) and not limit, bool(over) and limit)
        assert reward == 1.5 and obs.shape == (3,) and got == (info or {})
    assert adapted.style == "timestep"


def test_a_timestep_that_knows_of_truncation_itself():
    class Env(toy.TimestepCounterEnv):
        def step(self, action):
            return SimpleNamespace(obs=0, reward=0, done=True, info={}, truncated=True)

    adapted = adapt(Env())
    assert adapted.step(0)[2:4] == (False, True)


def stepping(result, style=toy.TimestepCounterEnv):
    """An adapted env whose steps give ``result``."""

    class Env(style):
        def step(self, action):
            return result

    adapted = adapt(Env())
    adapted.reset()
    return adapted


LIMIT = {"TimeLimit.truncated": True}


def told(**ends):
    return SimpleNamespace(**{"obs": 0, "reward": 0, "done": True, "info": {}, **ends})


@pytest.mark.case("D04")
@pytest.mark.parametrize(
    ("result", "ends"),
    [
        (BaseEnvTimestep.both(0, 0, {}), (True, True)),
        (BaseEnvTimestep.both(0, 0, dict(LIMIT)), (True, True)),
        (BaseEnvTimestep(0, 0, False, dict(LIMIT)), (False, False)),
        (told(terminated=True, truncated=True), (True, True)),
        (told(terminated=True, truncated=True, info=dict(LIMIT)), (True, True)),
        (told(terminated=True, truncated=False, info=dict(LIMIT)), (True, False)),
        (told(terminated=False, truncated=True), (False, True)),
        (told(terminated=False, truncated=False), (True, False)),
        (told(terminated=False, truncated=False, info=dict(LIMIT)), (False, True)),
        (told(terminated=True), (True, False)),
        (told(terminated=False), (False, True)),
        (told(truncated=False), (True, False)),
        (told(terminated=True, truncated=False, done=False), (True, False)),
        (told(terminated=False, truncated=False, done=False, info=dict(LIMIT)), (False, False)),
        (told(terminated=np.True_, truncated=np.array([True])), (True, True)),
    ],
)
def test_a_timestep_that_knows_how_it_ended(result, ends):
    adapted = stepping(result)
    for _ in range(2):
        got = adapted.step_fn()(0)[2:4]
        assert got == ends and all(type(flag) is bool for flag in got)
    assert adapted.style == "timestep"


ARRAY = np.arange(2)  # has no truth value


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("info", ["text", 7, ["a"], (1, 2), UserDict(a=1), None, "", {}, ARRAY])
def test_an_info_that_is_no_dict_is_handed_on(over, info):
    for result in ((0, 0.0, over, info), BaseEnvTimestep(0, 0.0, over, info), told(done=over, info=info)):
        adapted = stepping(result)
        for _ in range(2):
            *_, terminated, truncated, got = adapted.step_fn()(0)
            assert (terminated, truncated) == (over, False)
            assert got == {} if info is None else got is info
    five = stepping((0, 0.0, over, False, info), toy.CounterEnv)
    assert five.step_fn()(0)[4] is info and five.step == five.env.step


def test_truncation_is_read_from_any_mapping():
    assert stepping((0, 0.0, True, UserDict(LIMIT))).step(0)[2:4] == (False, True)


@pytest.mark.case("D04")
def test_a_timestep_that_is_both_stays_so():
    both = BaseEnvTimestep.both(0, 1.0, {})
    for same in (both, copy.copy(both), pickle.loads(pickle.dumps(both)), both._replace(obs=1)):
        assert (same.done, same.terminated, same.truncated) == (True, True, True)
    again = EnvIdTimestep.of(3, both)._replace(info={})
    assert (again.env_id, again.terminated, again.truncated) == (3, True, True)
    running = both._replace(done=False)
    assert (running.terminated, running.truncated) == (False, False)


def test_reset_params_reach_the_env():
    class Env(toy.CounterEnv):
        def reset(self, *, seed=None, options=None, level=0):
            return super().reset(seed=seed)[0], {"level": level, "options": options}

    params = {"level": 3, "options": {"a": 1}}
    assert adapt(Env()).reset(1, params)[1] == params
    assert params == {"level": 3, "options": {"a": 1}}
    with pytest.raises(TypeError, match="unexpected keyword"):
        adapt(toy.CounterEnv()).reset(None, {"nonsense": 1})


def test_reward_dtype_and_shape():
    cartpole = adapt(gymnasium.make("CartPole-v1"))
    assert (cartpole.reward_dtype, cartpole.reward_shape) == (np.float64, ())
    timestep = adapt(toy.TimestepCounterEnv())
    assert (timestep.reward_dtype, timestep.reward_shape) == (np.float32, (1,))
    wrapped = adapt(gymnasium.wrappers.TimeLimit(WithRewardSpace(), 5))
    assert (wrapped.reward_dtype, wrapped.reward_shape) == (np.int32, (2, 3))


class WithRewardSpace(toy.CounterEnv):
    reward_space = spaces.Box(0, 9, (2, 3), np.int32)


def test_an_env_without_spaces_has_none():
    class Bare:
        def reset(self):
            return 0

        def step(self, action):
            return 0, 0.0, False, {}

    adapted = adapt(Bare())
    assert adapted.observation_space is adapted.action_space is adapted.reward_space is None
    assert adapted.reset() == (0, {})
    assert adapted.step(0) == (0, 0.0, False, False, {})
    adapted.close()  # it has none, and that is no error
