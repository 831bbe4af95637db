"""What `adapt` accepts and refuses, and that looking at an env does not move it."""

import subprocess
import sys
import textwrap
from functools import partial

import gymnasium
import numpy as np
import pytest

from envmgr.envs import toy
from envmgr.envs.adapt import Adapted, adapt
from envmgr.errors import EnvInitError, EnvStepError


class NotAnEnv:
    def reset(self):
        return 0


class ManyInOne:
    num_envs = 4
    single_observation_space = object()

    def reset(self):
        return 0

    def step(self, action):
        return 0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, ("None", "return")),
        (3, ("3", "int", "reset()", "step()")),
        (toy.NullEnv, ("class NullEnv", "NullEnv(...)")),
        (lambda: toy.NullEnv(), ("function", "call it")),
        (NotAnEnv(), ("NotAnEnv", "no step()")),
        (ManyInOne(), ("ManyInOne", "4 envs", "one env for each env_fn")),
    ],
)
def test_what_is_no_env_is_refused_with_what_it_is_and_what_is_expected(value, words):
    with pytest.raises(EnvInitError) as caught:
        adapt(value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_an_adapted_env_is_given_back_as_it_is():
    adapted = adapt(toy.NullEnv())
    assert adapt(adapted) is adapted


class Recorder:
    """Notes every call."""

    observation_space = None
    action_space = None

    def __init__(self):
        self.calls = []

    def reset(self, *, seed=None, options=None):
        self.calls.append("reset")
        return np.zeros(2), {}

    def step(self, action):
        self.calls.append("step")
        return np.zeros(2), 0.0, False, False, {}

    def seed(self, seed):
        self.calls.append("seed")

    def close(self):
        self.calls.append("close")


def test_looking_does_not_move_the_env():
    env = Recorder()
    adapted = adapt(env)
    assert env.calls == []
    adapted.reset()
    adapted.step_fn()(0)
    adapted.close()
    assert env.calls == ["reset", "step", "close"]


STYLES = [
    ("gymnasium", partial(gymnasium.make, "CartPole-v1")),
    ("gymnasium", partial(gymnasium.make, "FrozenLake-v1")),
    ("gymnasium", toy.NullEnv),
    ("gymnasium", toy.CounterEnv),
    ("gymnasium", Recorder),
    ("gym_old", toy.OldGymCounterEnv),
    ("timestep", toy.TimestepCounterEnv),
]


@pytest.mark.parametrize(("style", "make"), STYLES)
def test_style_is_known_before_and_after_the_first_step(style, make):
    adapted = adapt(make())
    assert adapted.style == style
    adapted.reset()
    adapted.step_fn()(0)
    assert adapted.style == style
    adapted.close()


@pytest.mark.parametrize("make", [m for s, m in STYLES if s == "gymnasium"])
def test_step_of_five_values_is_the_envs_own_after_the_first(make):
    env = make()
    adapted = adapt(env)
    adapted.reset(seed=0)
    first = adapted.step_fn()
    told = []
    adapted.on_settled = lambda: told.append(adapted.step_fn())
    first(0)
    assert adapted.step == env.step
    assert told == [env.step]
    assert len(first(0)) == 5  # whoever still holds the first callable is served as well
    env.close()


def test_first_step_is_one_step():
    adapted = adapt(toy.CounterEnv(7))
    adapted.reset()
    seen = [adapted.step_fn()(0)[0].tolist() for _ in range(3)]
    assert seen == [[7, 0, 1], [7, 0, 2], [7, 0, 3]]


def test_a_first_step_that_raises_decides_nothing():
    class Fails(toy.OldGymCounterEnv):
        fails = True

        def step(self, action):
            if self.fails:
                raise ValueError("not yet")
            return super().step(action)

    adapted = adapt(Fails())
    adapted.reset()
    with pytest.raises(ValueError, match="not yet"):
        adapted.step_fn()(0)
    adapted.set("fails", False)
    assert adapted.step_fn()(0)[2:4] == (False, False)


@pytest.mark.parametrize("result", [None, 3, (1, 2), (1, 2, 3, 4, 5, 6), "abcd"])
def test_a_step_in_no_known_form_is_an_error_that_says_so(result):
    class Strange(Recorder):
        def step(self, action):
            return result

    adapted = adapt(Strange())
    with pytest.raises(EnvStepError, match=r"Strange\.step\(\) returned a .*; expected \(obs, reward"):
        adapted.step(0)


def test_what_an_env_does_decides_and_not_what_it_inherits():
    class OldInNewClothes(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,))
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self):
            return np.zeros(1)

        def step(self, action):
            return np.zeros(1), 1.0, True, {"TimeLimit.truncated": True}

    adapted = adapt(OldInNewClothes())
    obs, info = adapted.reset(seed=3)
    assert obs.shape == (1,) and info == {}
    assert adapted.step(0)[1:4] == (1.0, False, True)
    assert adapted.style == "gym_old"


def test_several_envs_in_one_process_are_strangers():
    adapted = [adapt(make()) for _, make in STYLES]
    for one in adapted:
        one.reset(seed=1)
    for _ in range(3):
        for one in adapted:
            assert len(one.step_fn()(0)) == 5
    assert len({id(one.step) for one in adapted}) == len(adapted)
    for one in adapted:
        one.close()


def test_neither_gym_nor_gymnasium_is_imported():
    code = """
        import sys
        from envmgr.envs.adapt import adapt
        import envmgr.envs.base
        class Env:
            observation_space = action_space = None
            def reset(self, seed=None): return 0, {}
            def step(self, action): return 0, 0.0, False, False, {}
        adapted = adapt(Env())
        adapted.reset(3); adapted.step(0)
        try:
            adapted.call("enable_save_replay", "x")
        except RuntimeError:
            pass
        print(sorted({"gym", "gymnasium", "torch", "pettingzoo", "dm_env"} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout.strip() == "[]"


def test_repr_names_the_layers():
    adapted = adapt(gymnasium.make("CartPole-v1"))
    assert "TimeLimit" in repr(adapted) and "CartPoleEnv" in repr(adapted)
    assert isinstance(adapted, Adapted)
