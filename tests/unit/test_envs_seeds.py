"""A seed reaches each env in the env's own way."""

import gymnasium
import numpy as np
import pytest

from envmgr.envs import toy
from envmgr.envs.adapt import adapt


class Notes:
    """An env's calls, noted on the class of each test's own env."""

    observation_space = None
    action_space = None

    def __init__(self):
        self.calls = []

    def step(self, action):
        return 0, 0.0, False, {}


class SeedInReset(Notes):
    def reset(self, *, seed=None, options=None):
        self.calls.append(("reset", seed))
        return 0, {}


class SeedPositional(Notes):
    def reset(self, seed=None):
        self.calls.append(("reset", seed))
        return 0, {}


class SeedInheritedThroughKwargs(SeedInReset):
    def reset(self, **kwargs):
        return super().reset(**kwargs)


class OpenKwargs(Notes):
    def reset(self, **kwargs):
        self.calls.append(("reset", kwargs.get("seed")))
        return 0, {}


class BothWays(SeedInReset):
    """As gym 0.22 had it: the newer way is taken."""

    def seed(self, seed):
        raise AssertionError("reset takes the seed")


class Unseeded(Notes):
    def reset(self):
        self.calls.append(("reset", None))
        return 0


class OldSeed(Unseeded):
    def seed(self, seed=None):
        self.calls.append(("seed", seed))
        return [seed]


class KwargsAndSeed(OldSeed):
    def reset(self, **kwargs):
        assert "seed" not in kwargs
        return super().reset()


class DynamicSeed(Unseeded):
    def seed(self, seed, dynamic_seed=True):
        self.calls.append(("seed", seed, dynamic_seed))


class GymnasiumTimestep(gymnasium.Env):
    """Inherits a reset that takes a seed, but has its own without, and a ``seed`` method."""

    def __init__(self):
        self.calls = []

    def reset(self, **kwargs):
        assert "seed" not in kwargs
        self.calls.append(("reset", None))
        return 0

    def seed(self, seed, dynamic_seed=True):
        self.calls.append(("seed", seed, dynamic_seed))

    def step(self, action):
        return 0, 0.0, False, {}


class Forwarding:
    """A wrapper that passes keywords on, and nothing else."""

    def __init__(self, env):
        self.env = env

    def reset(self, *args, **kwargs):
        return self.env.reset(*args, **kwargs)

    def step(self, action):
        return self.env.step(action)


BY_RESET = [SeedInReset, SeedPositional, SeedInheritedThroughKwargs, OpenKwargs, BothWays]
BY_METHOD = [OldSeed, KwargsAndSeed, DynamicSeed, GymnasiumTimestep]


@pytest.mark.parametrize("wrap", [lambda env: env, Forwarding, lambda env: Forwarding(Forwarding(env))])
@pytest.mark.parametrize("make", BY_RESET)
def test_seed_by_reset(make, wrap):
    env = make()
    adapted = adapt(wrap(env))
    adapted.reset(3)
    adapted.reset()
    adapted.seed(7)
    adapted.reset()
    adapted.reset()
    assert env.calls == [("reset", 3), ("reset", None), ("reset", 7), ("reset", None)]


@pytest.mark.parametrize("wrap", [lambda env: env, Forwarding, lambda env: Forwarding(Forwarding(env))])
@pytest.mark.parametrize("make", BY_METHOD)
def test_seed_by_method(make, wrap):
    env = make()
    adapted = adapt(wrap(env))
    adapted.reset(3)
    adapted.reset()
    adapted.seed(7)
    adapted.reset()
    assert [call[:2] for call in env.calls] == [
        ("seed", 3),
        ("reset", None),
        ("reset", None),
        ("seed", 7),
        ("reset", None),
    ]


@pytest.mark.parametrize("dynamic", [None, False, True])
def test_dynamic_seed_is_told_to_envs_that_know_it(dynamic):
    env = DynamicSeed()
    adapt(env).seed(7, dynamic)
    assert env.calls == [("seed", 7, True if dynamic is None else dynamic)]
    env = OldSeed()
    adapt(env).seed(7, dynamic)
    assert env.calls == [("seed", 7)]


def test_an_env_without_seeds_is_left_alone():
    env = Unseeded()
    adapted = adapt(env)
    adapted.seed(3)
    adapted.reset(4)
    assert env.calls == [("reset", None)]


def test_a_seed_in_the_reset_params_wins():
    env = SeedInReset()
    adapted = adapt(env)
    adapted.seed(5)
    adapted.reset(3, {"seed": 9})
    adapted.reset()
    assert env.calls == [("reset", 9), ("reset", None)]


def test_a_pending_seed_survives_a_reset_that_fails():
    class Fails(SeedInReset):
        failed = False

        def reset(self, *, seed=None, options=None):
            result = super().reset(seed=seed)
            if not self.failed:
                self.failed = True
                raise OSError("not yet")
            return result

    env = Fails()
    adapted = adapt(env)
    adapted.seed(5)
    with pytest.raises(OSError, match="not yet"):
        adapted.reset()
    adapted.reset()
    assert env.calls == [("reset", 5), ("reset", 5)]


def test_a_seed_that_raises_is_the_envs_own_error():
    class Fails(Unseeded):
        def seed(self, seed):
            raise KeyError("no such seed")

    with pytest.raises(KeyError, match="no such seed"):
        adapt(Fails()).reset(3)
    with pytest.raises(KeyError, match="no such seed"):
        adapt(Fails()).seed(3)


def test_the_same_seed_gives_the_same_trajectory():
    def trajectory(seed):
        adapted = adapt(gymnasium.make("FrozenLake-v1"))
        seen = [adapted.reset(seed)[0]]
        for _ in range(40):
            obs, _, terminated, truncated, _ = adapted.step_fn()(2)
            seen.append(obs)
            if terminated or truncated:
                seen.append(adapted.reset()[0])
        return seen

    assert trajectory(3) == trajectory(3) != trajectory(4)


def test_gym_026_takes_its_seed_in_reset():
    import gym

    adapted = adapt(gym.make("CartPole-v1", disable_env_checker=True))
    adapted.seed(5)
    first, again = adapted.reset()[0], adapted.reset(5)[0]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, adapted.reset()[0])


def test_toys_are_told_their_seed():
    env = toy.TimestepCounterEnv()
    adapt(env).reset(3)
    assert env.seeded == (3, True)
    env = toy.OldGymCounterEnv()
    adapt(env).reset(4)
    assert env.seeded == (4, False)
