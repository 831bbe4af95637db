"""What is said about errors that envs are known to raise."""

import gymnasium
import pytest
from gymnasium.envs import registration

from envmgr.envs import advice, toy
from envmgr.envs.adapt import adapt, explain


def caught(function):
    with pytest.raises(Exception) as info:  # noqa: PT011 - any error will do
        function()
    return info.value


def test_gym_026_checker_under_numpy_2():
    import gym

    adapted = adapt(gym.make("CartPole-v1"))
    adapted.reset(seed=0)
    error = caught(lambda: adapted.step(0))
    assert isinstance(error, AttributeError) and "bool8" in str(error)
    assert "disable_env_checker=True" in explain(error)
    assert "disable_env_checker=True" in explain(AttributeError("module 'numpy' has no attribute 'bool8'"))
    adapted.close()


def test_an_envs_own_bool8_is_not_gyms():
    def own():
        import numpy as np

        return np.bool8

    assert explain(caught(own)) is None


@pytest.fixture
def _elsewhere(monkeypatch):
    monkeypatch.setattr(advice, "_elsewhere", False)
    advice.in_a_fresh_interpreter()


def test_a_mistyped_id_is_no_matter_of_start_methods():
    assert explain(caught(lambda: gymnasium.make("NoSuchEnv-v0"))) is None


@pytest.mark.usefixtures("_elsewhere")
def test_an_env_that_is_not_registered(monkeypatch):
    known = {i: spec for i, spec in gymnasium.registry.items() if not i.startswith("ALE/")}
    monkeypatch.setattr(registration, "registry", known)  # another test may have imported ale_py
    told = explain(caught(lambda: gymnasium.make("NoSuchEnv-v0")))
    assert "inside its env_fn" in told
    assert "ale_py" in explain(caught(lambda: gymnasium.make("ALE/NoSuchGame-v5")))


@pytest.mark.usefixtures("_elsewhere")
def test_the_cause_is_looked_at():
    error = RuntimeError("could not build")
    error.__cause__ = caught(lambda: gymnasium.make("NoSuchEnv-v0"))
    assert "inside its env_fn" in explain(error)


def test_reset_keywords():
    class NoSeed(toy.CounterEnv):
        def reset(self):
            return super().reset()

    error = caught(lambda: adapt(gymnasium.wrappers.TimeLimit(NoSeed(), 3)).reset(3))
    assert "**kwargs" in explain(error)


def test_old_env_in_a_new_wrapper():
    class Old(toy.CounterEnv):
        def step(self, action):
            return super().step(action)[:4]

    adapted = adapt(gymnasium.wrappers.TimeLimit(Old(), 3))
    adapted.reset()
    assert "without the wrapper" in explain(caught(lambda: adapted.step(0)))
    too_many = ValueError("too many values to unpack (expected 4)")
    assert "without the wrapper" in explain(too_many)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (OSError("Unable to find ROM for game pong"), "ale-py"),
        (AttributeError("Can't get attribute 'make' on <module '__main__' (built-in)>"), "imported"),
        (RuntimeError("an OpenGL platform library has not been loaded"), "MUJOCO_GL"),
    ],
)
def test_other_known_errors(error, word):
    assert word in explain(error)


def test_unknown_errors_and_strange_ones():
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    assert explain(ValueError("boom")) is None
    assert explain(MuteError()) is None
    circular = ValueError("a")
    circular.__cause__ = other = ValueError("b")
    other.__cause__ = circular
    assert explain(circular) is None
