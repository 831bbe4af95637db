"""Whether an episode is over: what is taken for a yes or a no, and what is refused as it says nothing."""

import enum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from envmgr.envs.flags import FOUR, flag
from envmgr.envs.forms import from_four, from_object
from envmgr.errors import SpaceMismatchError


class Plain(enum.Enum):
    """Its members have no truth of their own, and its class has."""

    NO = 0


ONE = enum.IntEnum("Of", {"NUMBERS": 1}).NUMBERS
TRUE = [True, 1, 1.0, ONE, np.True_, np.int8(1), np.array(True), np.array([1])]
TEXTS = ["no", b"no", np.str_("no"), np.array("no"), np.array(["no"])]
MANY = [[False], (False,), {"agent": False}, {0}, range(3)]
SAY_NOTHING = [*TEXTS, *MANY, len, SimpleNamespace(), Plain.NO]
NO = [False, 0, None, 0.0, np.array([0]), np.array(False), "", [], {}]


class Frame:
    """Refuses to say, as a table of pandas does."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


class Own:
    """A truth value of somebody's own."""

    def __bool__(self) -> bool:
        return False


NOT_ONE = [Frame(), np.zeros(2), np.ones(2, bool)]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_tensors_of_one_are_taken(shape: tuple[int, ...], torch: Any) -> None:
    for truth in (True, False):
        value = torch.full(shape, truth)
        assert flag(value, "terminated") is truth
        assert from_four(lambda action: (0, 0.0, value, {}))(0)[2:4] == (truth, False)  # noqa: B023
        result = SimpleNamespace(obs=0, reward=0.0, done=value, info={}, truncated=value)
        assert from_object(lambda action: result)(0)[2:4] == (False, truth)  # noqa: B023
    with pytest.raises(SpaceMismatchError, match="terminated: expected one truth value, got Tensor"):
        flag(torch.full((2,), True), "terminated")


@pytest.mark.parametrize("value", TRUE, ids=repr)
def test_numbers_and_arrays_of_one_are_taken_in_every_form(value: object) -> None:
    assert flag(value, "terminated") is True
    step = from_four(lambda action: (0, 0.0, value, {}))
    assert step(0)[2:4] == (True, False)
    step = from_object(lambda action: SimpleNamespace(obs=0, reward=0.0, done=value, info={}))
    assert step(0)[2:4] == (True, False)


@pytest.mark.parametrize("value", [*NO, Own()], ids=lambda v: f"{type(v).__name__}{v}"[:12])
def test_what_is_false_is_a_no(value: object) -> None:
    assert flag(value, "terminated") is False
    step = from_four(lambda action: (0, 0.0, value, {}))
    assert step(0)[2:4] == (False, False)
    step = from_object(lambda action: SimpleNamespace(obs=0, reward=0.0, done=value, info={}))
    assert step(0)[2:4] == (False, False)


@pytest.mark.parametrize("value", [*SAY_NOTHING, *NOT_ONE], ids=lambda v: type(v).__name__)
def test_what_says_nothing_by_being_true_is_refused(value: object) -> None:
    with pytest.raises(SpaceMismatchError, match="terminated: expected one truth value, got"):
        flag(value, "terminated")
    step = from_object(lambda action: SimpleNamespace(obs=0, reward=0.0, done=value, info={}))
    with pytest.raises(SpaceMismatchError, match="done: expected one truth value, got"):
        step(0)


@pytest.mark.parametrize("value", [*SAY_NOTHING, *NOT_ONE], ids=lambda v: type(v).__name__)
def test_of_four_values_the_message_names_the_four(value: object) -> None:
    with pytest.raises(SpaceMismatchError) as caught:
        from_four(lambda action: (0, 0.0, value, {}))(0)
    assert "done: expected one truth value" in str(caught.value)
    assert str(caught.value).endswith(FOUR)


@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_the_other_flags_of_a_timestep_are_looked_at_as_well(name: str) -> None:
    result = SimpleNamespace(obs=0, reward=0.0, done=True, info={}, **{name: "no"})
    with pytest.raises(SpaceMismatchError, match=f"{name}: expected one truth value, got str 'no'"):
        from_object(lambda action: result)(0)


@pytest.mark.parametrize("value", ["no", np.array([True, False])], ids=["text", "two"])
def test_so_is_what_says_that_a_limit_was_reached(value: object) -> None:
    step = from_four(lambda action: (0, 0.0, True, {"TimeLimit.truncated": value}))
    with pytest.raises(SpaceMismatchError, match=r"info\['TimeLimit.truncated'\]: expected one truth value"):
        step(0)
