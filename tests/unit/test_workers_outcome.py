"""The careful half of a step, without a worker: which rewards have a row, and whose fault an exception is."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envmgr.errors import SpaceMismatchError
from envmgr.memory.arena import Arena, ArenaPlan
from envmgr.memory.layout import layout_of
from envmgr.workers.misreturned import was_given
from envmgr.workers.outcome import _join, _Joined
from envmgr.workers.rewards import RewardWriter
from tests.helpers.ids import stable_repr


def box(dtype: Any, shape: tuple[int, ...] = ()) -> Any:
    low, high = (0, 200) if np.dtype(dtype).kind == "u" else (-100, 100)
    return spaces.Box(low, high, shape, dtype)


REFUSED = [
    (0.7, box(np.int64)),
    (np.float32(0.5), box(np.int64)),
    ([0.7], box(np.int64, (1,))),
    ([0.7], box(np.int64)),
    (300, box(np.uint8)),
    (-1.0, box(np.uint8)),
    (np.nan, box(np.int64)),
    (np.inf, box(np.int64)),
    (10**400, None),
    (2**53 + 1, None),
    (np.uint64(2**64 - 1), None),
    (1e300, box(np.float32)),
    (np.float64(1e300), box(np.float32)),
    (2**24 + 1, box(np.float32)),
    (np.array([1.0, 1e300]), box(np.float32, (2,))),
    (1 + 2j, None),
    (None, None),
    ("1.0", None),
    ({"a": 1.0}, None),
    ([[1.0], [1.0, 2.0]], None),
    (np.ma.masked, None),
]
TAKEN = [
    (2.0, box(np.int64)),
    (True, box(np.uint8)),
    (200, box(np.uint8)),
    (np.int8(-3), box(np.int64)),
    (0.1, box(np.float32)),
    (np.inf, box(np.float32)),
    (np.nan, box(np.float16)),
    (2**53, None),
    (-7, None),
    (np.float32(0.1), None),
    (np.array(1.5, ">f8"), None),
    ([0.5], None),
    (np.array([[1.5]], np.float32), box(np.float32, (1,))),
    ([1, 2, 3], box(np.float32, (3,))),
    (np.True_, None),
]


def written(reward: Any, space: Any) -> tuple[Any, Any]:
    """What stands in the row, and what goes beside it."""
    dtype, shape = ("float64", ()) if space is None else (str(space.dtype), space.shape)
    layout = layout_of(spaces.Discrete(2))
    arena = Arena.private(ArenaPlan(1, 1, layout, layout, dtype, shape))
    arena.reward[0] = 77
    extra = RewardWriter(arena).write(0, reward, None)
    return arena.reward[0], extra


@pytest.mark.parametrize(("reward", "space"), REFUSED, ids=stable_repr)
def test_a_reward_that_its_row_cannot_hold_is_refused(reward: Any, space: Any) -> None:
    with pytest.raises(SpaceMismatchError, match="reward"):
        written(reward, space)


@pytest.mark.parametrize(("reward", "space"), TAKEN, ids=stable_repr)
def test_another_is_in_its_row(reward: Any, space: Any) -> None:
    row, extra = written(reward, space)
    expected = np.asarray(reward).astype(row.dtype)
    assert np.array_equal(row, expected.reshape(row.shape), equal_nan=True)
    if expected.shape == row.shape:
        assert extra is None
    else:
        assert np.array_equal(extra.reward, reward) and extra.reward.shape == expected.shape


@pytest.mark.parametrize(("dtype", "none"), [(np.float64, np.nan), (np.float16, np.nan), (np.uint8, 0)])
@pytest.mark.parametrize("reward", [[1.0, 2.0], np.zeros((2, 2)), [], np.zeros(0)], ids=stable_repr)
def test_one_of_another_size_leaves_no_number_there(dtype: Any, none: float, reward: Any) -> None:
    row, extra = written(reward, box(dtype))
    assert np.array_equal(row, none, equal_nan=True)
    assert extra.has_reward and np.array_equal(extra.reward, reward)


def test_float64_into_float32_is_told_once() -> None:
    layout = layout_of(spaces.Discrete(2))
    writer = RewardWriter(Arena.private(ArenaPlan(2, 1, layout, layout, "float32", ())))
    extras = [writer.write(k % 2, np.float64(0.1), None) for k in range(4)]
    assert extras[1:] == [None] * 3
    assert extras[0] is not None and "float64" in extras[0].warnings[0] and not extras[0].has_reward
    assert writer.write(0, 0.1, None) is None, "Python's own float has no dtype"


def caught(function: Any) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def asks_an_array() -> None:
    if np.array([1, 2]):
        raise AssertionError


def keeps_an_answer() -> Any:
    return not (np.array([1, 2]) or 3) and True


def calls_what_raises() -> None:
    if int("no number"):
        raise AssertionError


def calls_what_asks() -> None:
    asks_an_array()


class Frame:
    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


class Stop:
    def __bool__(self) -> bool:
        raise SystemExit


def asks_a_frame() -> None:
    if Frame():
        raise AssertionError


def asks_what_stops() -> None:
    if Stop():
        raise AssertionError


def test_a_question_for_a_truth_value_is_told_from_a_call_that_raised() -> None:
    assert [was_given(tail(caught(of))) for of in (asks_an_array, keeps_an_answer, asks_a_frame)] == [
        True
    ] * 3
    others = (calls_what_raises, calls_what_asks, asks_what_stops)
    assert [was_given(tail(caught(of))) for of in others] == [False] * 3


def tail(error: BaseException) -> BaseException:
    """The exception as the function that was called would see it."""
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


@pytest.mark.parametrize("info", [None, {"a": 1}, {"reset_info": "the env's own"}])
def test_two_pickled_infos_are_one_when_they_are_read(info: Any) -> None:
    first = pickle.dumps({"b": 2})
    data = pickle.dumps(_Joined(None if info is None else pickle.dumps(info), first))
    assert pickle.loads(data) == {**(info or {}), "reset_info": {"b": 2}}
    assert _join(None, first) == {"reset_info": {"b": 2}}
