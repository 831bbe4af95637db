"""Space-like objects, the older ``info()`` form, reward specs."""

import pickle
from collections import namedtuple

import gymnasium
import numpy as np
import pytest

from envmgr.envs import toy
from envmgr.envs.adapt import adapt
from envmgr.envs.rewards import reward_spec
from envmgr.envs.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from tests.helpers.ids import stable_repr

ALL = [
    Box(-np.inf, np.inf, (3,), np.float32),
    Box(0, 1, (), np.float64),
    Box([-1, 0], [1, np.inf], (2,), np.float32),
    Box(0, 255, (2, 2), np.uint8),
    Box(-3, 3, (4,), np.int64),
    Box(False, True, (3,), np.bool_),
    Box(0, 1, (0, 3), np.float16),
    Discrete(5),
    Discrete(3, start=-1),
    MultiDiscrete([2, 3]),
    MultiDiscrete([[2, 3], [4, 5]], [[0, 1], [2, 3]]),
    Dict({"a": Discrete(2), "b": Tuple([Box(0, 1, (1,), np.float32), Discrete(9)])}),
    Tuple([]),
]


@pytest.mark.parametrize("space", ALL, ids=stable_repr)
def test_samples_belong_and_repeat_with_the_seed(space):
    space.seed(3)
    first = [space.sample() for _ in range(20)]
    assert all(value in space for value in first)
    space.seed(3)
    again = [space.sample() for _ in range(20)]
    assert pickle.dumps(first) == pickle.dumps(again)
    for value in first:
        if isinstance(space, Box):
            assert (np.shape(value), value.dtype) == (space.shape, space.dtype)


@pytest.mark.parametrize("space", ALL, ids=stable_repr)
def test_equal_after_pickling_and_different_from_others(space):
    copy = pickle.loads(pickle.dumps(space))
    assert copy == space and hash(copy) == hash(space)
    assert [other == space for other in ALL].count(True) == 1
    assert space != "space"


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (Box(0, 1, (2,), np.float32), np.array([0.0, 2.0], np.float32)),
        (Box(0, 1, (2,), np.float32), np.zeros(3, np.float32)),
        (Box(0, 1, (2,), np.float32), np.zeros(2)),
        (Discrete(3), 3),
        (Discrete(3, start=1), 0),
        (Discrete(3), 0.5),
        (Discrete(3), np.array([1])),
        (MultiDiscrete([2, 2]), [0, 2]),
        (MultiDiscrete([2, 2]), [0]),
        (Dict({"a": Discrete(2)}), {"b": 0}),
        (Dict({"a": Discrete(2)}), 0),
        (Tuple([Discrete(2)]), (0, 0)),
        (Tuple([Discrete(2)]), (2,)),
    ],
)
def test_what_does_not_belong(space, value):
    assert value not in space


# -- the older info() form ------------------------------------------------------------------------------

Element = namedtuple("Element", ["shape", "value"])
Info = namedtuple("Info", ["agent_num", "obs_space", "act_space", "rew_space"])


class OldInfoEnv(toy.TimestepCounterEnv):
    """An env without spaces, but with ``info()``."""

    def __init__(self, obs, act, rew):
        super().__init__()
        del self.observation_space, self.action_space, self.reward_space
        self.described = Info(1, obs, act, rew)

    def info(self):
        return self.described


FLOAT = {"min": -1.0, "max": 1.0, "dtype": np.float32}


def test_info_form():
    adapted = adapt(
        OldInfoEnv(Element((4,), FLOAT), Element((2,), {"min": 0, "max": 2, "dtype": int}), Element(1, FLOAT))
    )
    assert adapted.style == "timestep"
    obs = adapted.observation_space
    assert (obs.shape, obs.dtype, obs.low.tolist()) == ((4,), np.float32, [-1.0] * 4)
    assert (adapted.action_space.n, adapted.action_space.start) == (2, 0)
    assert (adapted.reward_dtype, adapted.reward_shape) == (np.float32, (1,))


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (Element((1,), {"min": 0, "max": 6, "dtype": int}), Discrete(6)),
        (Element((), {"min": 1, "max": 4, "dtype": np.int64}), Discrete(3, start=1)),
        (Element((3,), FLOAT), Box(-1, 1, (3,), np.float32)),
        (Element(2, {"dtype": np.float64}), Box(-np.inf, np.inf, (2,), np.float64)),
        (Element((3,), {"min": 0, "max": 9, "dtype": np.int64}), Box(0, 9, (3,), np.int64)),
    ],
)
def test_info_form_of_actions(act, expected):
    assert adapt(OldInfoEnv(Element((4,), FLOAT), act, Element(1, FLOAT))).action_space == expected


def test_info_form_with_nested_shapes():
    shape = {"state": (3,), "screen": {"map": (2, 2), "mini": 4}}
    adapted = adapt(OldInfoEnv(Element(shape, {"dtype": np.int16}), Element(1, None), Element((), None)))
    assert adapted.observation_space == Dict(
        {
            "state": Box(-(2**15), 2**15 - 1, (3,), np.int16),
            "screen": Dict(
                {
                    "map": Box(-(2**15), 2**15 - 1, (2, 2), np.int16),
                    "mini": Box(-(2**15), 2**15 - 1, (4,), np.int16),
                }
            ),
        }
    )
    values = {"state": {"dtype": np.float32}, "mask": {"dtype": np.bool_}}
    adapted = adapt(
        OldInfoEnv(Element({"state": (3,), "mask": (2,)}, values), Element(1, None), Element(1, None))
    )
    assert {key: part.dtype for key, part in adapted.observation_space.spaces.items()} == {
        "state": np.float32,
        "mask": np.bool_,
    }


def test_an_info_of_another_meaning_is_left_alone():
    class Env(toy.TimestepCounterEnv):
        observation_space = action_space = None

        def __init__(self):
            self.t, self.episode = 0, -1

        def info(self, about):
            return about

    assert adapt(Env()).observation_space is None


def test_spaces_win_over_info():
    class Env(toy.TimestepCounterEnv):
        def info(self):
            raise AssertionError("not asked for")

    assert adapt(Env()).observation_space.shape == (3,)


# -- rewards --------------------------------------------------------------------------------------------

Spec = namedtuple("Spec", ["shape", "dtype"])


@pytest.mark.parametrize(
    ("space", "dtype", "shape"),
    [
        (None, np.float64, ()),
        (gymnasium.spaces.Box(-1, 1, (1,), np.float32), np.float32, (1,)),
        (gymnasium.spaces.Box(-1, 1, (), np.float64), np.float64, ()),
        (gymnasium.spaces.Box(0, 9, (2, 3), np.int32), np.int32, (2, 3)),
        (gymnasium.spaces.Discrete(3), np.int64, ()),
        (Spec(2, float), np.float64, (2,)),
        (Spec((2,), None), np.float64, (2,)),
        (Spec((1,), np.bool_), np.bool_, (1,)),
        (Spec("ab", "nonsense"), np.float64, ()),
        (Spec((1,), object), np.float64, (1,)),
        ((-1.0, 1.0), np.float64, ()),
    ],
)
def test_reward_spec(space, dtype, shape):
    assert reward_spec(space) == (np.dtype(dtype), shape)
