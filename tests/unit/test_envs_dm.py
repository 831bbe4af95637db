"""dm_env environments, through a stand-in with the same structure."""

import enum
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

from envmgr.envs.adapt import adapt


class StepType(enum.IntEnum):
    FIRST = 0
    MID = 1
    LAST = 2


class TimeStep(NamedTuple):
    step_type: Any
    reward: Any
    discount: Any
    observation: Any

    def last(self):
        return self.step_type == StepType.LAST


class Array:
    def __init__(self, shape, dtype, name=None):
        self.shape, self.dtype, self.name = shape, np.dtype(dtype), name

    def validate(self, value):
        value = np.asarray(value)
        assert value.shape == self.shape and value.dtype == self.dtype, (value.shape, value.dtype)


class BoundedArray(Array):
    def __init__(self, shape, dtype, minimum, maximum):
        super().__init__(shape, dtype)
        self.minimum, self.maximum = np.array(minimum, dtype), np.array(maximum, dtype)


class DiscreteArray(BoundedArray):
    def __init__(self, num_values, dtype=np.int32):
        super().__init__((), dtype, 0, num_values - 1)
        self.num_values = num_values


class Counting:
    """Counts to ``length``; ends with the discount ``last``."""

    def __init__(self, length=3, mid=1.0, last=0.0, action=None, step_types=StepType):
        self.length, self.mid, self.last, self.t = length, mid, last, 0
        self.action, self.types = action or DiscreteArray(3), step_types
        self.given = []

    def observation_spec(self):
        return OrderedDict(
            t=BoundedArray((2,), np.int16, 0, 99),
            more=[Array((), np.float64), DiscreteArray(5)],
        )

    def action_spec(self):
        return self.action

    def reward_spec(self):
        return Array((2,), np.float32)

    def _obs(self):
        return OrderedDict(t=np.full(2, self.t, np.int16), more=[0.5, np.int32(self.t)])

    def reset(self):
        self.t = 0
        return TimeStep(self.types.FIRST, None, None, self._obs())

    def step(self, action):
        self.given.append(action)
        self.t += 1
        over = self.t == self.length
        reward = np.array([self.t, -self.t], np.float32)
        kind = self.types.LAST if over else self.types.MID
        return TimeStep(kind, reward, self.last if over else self.mid, self._obs())


def test_specs_become_spaces():
    adapted = adapt(Counting())
    assert adapted.style == "dm_env"
    parts = adapted.observation_space.spaces
    assert (parts["t"].shape, parts["t"].dtype, parts["t"].low.tolist()) == ((2,), np.int16, [0, 0])
    number, choice = parts["more"].spaces
    assert (number.shape, number.dtype, choice.n) == ((), np.float64, 5)
    assert adapted.action_space.n == 3
    assert (adapted.reward_dtype, adapted.reward_shape) == (np.float32, (2,))
    obs, info = adapted.reset(seed=3)
    assert info == {} and obs["t"].tolist() == [0, 0]


@pytest.mark.parametrize("step_types", [StepType, enum.Enum("Plain", "FIRST MID LAST")])
@pytest.mark.parametrize(
    ("last", "ends", "info"),
    [
        (0.0, (True, False), {}),
        (1.0, (False, True), {"discount": 1.0}),
        (0.9, (False, True), {"discount": 0.9}),
        (None, (False, True), {}),
        (np.zeros(2), (True, False), {}),
    ],
)
def test_discount_says_how_it_ends(last, ends, info, step_types):
    env = Counting(last=last, step_types=step_types)
    if step_types is not StepType:
        made = env.step

        class OtherStep(TimeStep):
            def last(self):
                return self.step_type is step_types.LAST

        env.step = lambda action: OtherStep(*made(action))
    adapted = adapt(env)
    for _ in range(2):
        adapted.reset()
        seen = [adapted.step_fn()(0) for _ in range(3)]
        assert [s[0]["t"].tolist() for s in seen] == [[1, 1], [2, 2], [3, 3]]
        assert [s[1].tolist() for s in seen] == [[1, -1], [2, -2], [3, -3]]
        assert [s[2:4] for s in seen] == [(False, False)] * 2 + [ends]
        assert [s[4] for s in seen] == [{}, {}, info]


def test_an_unusual_discount_is_told():
    adapted = adapt(Counting(mid=0.5))
    adapted.reset()
    assert adapted.step(0)[4] == {"discount": 0.5}


@pytest.mark.parametrize(
    "spec",
    [
        DiscreteArray(3, np.int32),
        BoundedArray((2,), np.float32, -1, 1),
        Array((2, 2), np.float64),
        {"a": DiscreteArray(2, np.int16), "b": BoundedArray((), np.float32, 0, 1)},
        [DiscreteArray(2), Array((3,), np.uint8)],
        (DiscreteArray(2), {"x": Array((1,), np.bool_)}),
    ],
)
def test_actions_have_the_dtype_of_their_spec(spec):
    env = Counting(action=spec)
    adapted = adapt(env)
    adapted.reset()
    for _ in range(2):
        adapted.step(adapted.action_space.sample())
    for action in env.given:
        _validate(spec, action)
    assert type(env.given[0]) is (type(spec) if isinstance(spec, (list, tuple, dict)) else type(env.given[0]))


def _validate(spec, value):
    if isinstance(spec, dict):
        assert set(spec) == set(value)
        for key in spec:
            _validate(spec[key], value[key])
    elif isinstance(spec, (list, tuple)):
        for part, one in zip(spec, value, strict=True):
            _validate(part, one)
    else:
        spec.validate(value)


def test_a_step_without_a_reward_has_none_worth():
    env = Counting()
    made = env.step
    env.step = lambda action: made(action)._replace(reward=None)
    adapted = adapt(env)
    adapted.reset()
    reward = adapted.step(0)[1]
    assert reward.tolist() == [0, 0] and reward.dtype == np.float32
