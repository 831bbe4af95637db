"""Which values go into a row of another dtype: those that stay the same."""

import warnings

import numpy as np
import pytest

from envmgr.errors import EnvManagerWarning, SpaceMismatchError
from envmgr.memory.casts import fit
from tests.helpers.ids import stable_repr

pytestmark = pytest.mark.case("T01", "O07", "D11")


def put(value, dtype, shape=None, kind="box"):
    dtype = np.dtype(dtype)
    shape = np.shape(value) if shape is None else shape
    row = np.zeros(shape, dtype)
    row[...] = fit(value, dtype, shape, "obs", set(), kind)
    return row


big = 2**53


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.array([0, 255]), "u1"),
        (np.array([-128, 127]), "i1"),
        (np.array([1.0, -2.0]), "i4"),
        (np.array([0, 1]), "?"),
        (np.array([True, False]), "f2"),
        (np.array([True, False]), "i8"),
        (np.array([1, 2], "u1"), "f4"),
        (np.array([big, -big]), "f8"),
        (np.array([2**62, 2**53 + 2]), "f8"),
        (np.array([2**24]), "f4"),
        (np.array([2**63], "u8"), "f4"),
        (np.array([2**63 - 1], "u8"), "i8"),
        (np.array([1.5, np.inf, -np.inf, np.nan], "f4"), "f2"),
        (np.array([1.5, 2.5], "f2"), "f8"),
        (np.array([1 + 0j, 2]), "u1"),
        (np.array([1 + 2j]), "c8"),
        (np.array([1.0, 2.0], ">f4"), "f4"),
        (np.array([1, 2], ">i2"), "i8"),
        (np.array([], "f8"), "u1"),
        ([1, 2], "u1"),
        (3, "u1"),
        (np.int64(3), "f2"),
        (True, "u1"),
        (np.array([7], np.longlong), "i8"),
        (np.array([1.0], np.longdouble), "f8"),
    ],
    ids=stable_repr,
)
def test_the_same_value_is_taken_silently(value, dtype):
    row = put(value, dtype)
    assert row.dtype == np.dtype(dtype)
    assert np.array_equal(row, np.asarray(value), equal_nan=True)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.array([1, 300]), "u1"),
        (np.array([-1]), "u1"),
        (np.array([128]), "i1"),
        (np.array([2**63], "u8"), "i8"),
        (np.array([-1], "i8"), "u8"),
        (np.array([0.5]), "i4"),
        (np.array([np.nan]), "i4"),
        (np.array([np.inf]), "i8"),
        (np.array([2.0**63]), "i8"),
        (np.array([2.0**64]), "u8"),
        (np.array([300.0]), "u1"),
        (np.array([2]), "?"),
        (np.array([big + 1]), "f8"),
        (np.array([2**63 - 1]), "f8"),
        (np.array([2**64 - 1], "u8"), "f4"),
        (np.array([2**24 + 1]), "f4"),
        (np.array([2**24 + 1]), "c8"),
        (np.array([70000]), "f2"),
        (np.array([2049]), "f2"),
        (np.array([0.1]), "f2"),
        (np.array([0.1], "f4"), "f2"),
        (np.array([1j]), "f8"),
        (np.array([0.1 + 1j]), "c8"),
        ([1, 300], "u1"),
        (0.5, "i8"),
        (2**70, "i8"),
        (np.array([1e300]), "f4"),
        ([1e300], "f4"),
        (np.array([1.0], np.longdouble) / 3, "f8"),
    ],
    ids=stable_repr,
)
def test_a_value_that_would_change_is_refused(value, dtype):
    with pytest.raises(SpaceMismatchError):
        put(value, dtype)


@pytest.mark.parametrize(
    "value",
    [None, "abc", {"a": 3}, object(), [[1, 2], [3]], np.array(["a"]), np.array([None]), {1, 2}, b"x"],
    ids=stable_repr,
)
@pytest.mark.case("T06")
def test_what_is_no_array_of_numbers_is_refused(value):
    with pytest.raises(SpaceMismatchError, match=r"obs.*shape \(1,\) and dtype float32"):
        put(value, "f4", (1,))


def test_the_message_names_both_sides_and_a_value():
    with pytest.raises(SpaceMismatchError) as caught:
        put(np.array([[1, 300]]), "u1")
    assert str(caught.value) == (
        "obs: expected shape (1, 2) and dtype uint8, got shape (1, 2) and dtype int64: 300 does not fit"
    )


@pytest.mark.parametrize("value", [np.zeros(1), np.zeros((4, 1)), np.zeros((1, 4)), 0.0, np.zeros((2, 4))])
def test_nothing_is_broadcast(value):
    with pytest.raises(SpaceMismatchError, match="expected shape"):
        put(value, "f8", (4,))


class TestDiscrete:
    @pytest.mark.case("T05")
    @pytest.mark.parametrize("value", [3, np.int64(3), np.int8(3), np.array(3), np.array([3]), [3], 3.0])
    def test_any_way_to_write_a_number(self, value):
        assert put(value, "i8", (), "discrete") == 3

    @pytest.mark.parametrize("value", [[3, 4], [[3]], 0.5, [], None])
    def test_what_is_not_one_number(self, value):
        with pytest.raises(SpaceMismatchError):
            put(value, "i8", (), "discrete")

    @pytest.mark.case("T03")
    def test_a_box_is_not_unwrapped(self):
        with pytest.raises(SpaceMismatchError):
            put([3.0], "f8", ())


class TestFloat64IntoFloat32:
    def test_warns_once_and_rounds(self):
        warned = set()
        with pytest.warns(EnvManagerWarning, match="obs: float64.*float32"):
            fit(np.full(3, 0.1), np.dtype("f4"), (3,), "obs", warned)
        got = fit(np.full(3, 0.1), np.dtype("f4"), (3,), "obs", warned)  # another warning would be an error
        fit(np.float64(0.1), np.dtype("f4"), (), "other", warned)
        assert got.dtype == np.float32
        assert (got == np.float32(0.1)).all()

    def test_python_numbers_have_no_dtype_to_lose(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert put([0.1], "f4")[0] == np.float32(0.1)
            assert put(0.1, "f2") == np.float16(0.1)

    def test_infinity_and_nan_stay(self):
        row = put([np.inf, -np.inf, np.nan, 1e-300], "f4")
        assert np.array_equal(row, np.array([np.inf, -np.inf, np.nan, 0], "f4"), equal_nan=True)

    def test_the_users_error_state_is_left_alone(self):
        with np.errstate(all="raise"):
            put(np.array([1, 2]), "f4")
            with pytest.raises(SpaceMismatchError):
                put(np.array([np.nan]), "u1")
            assert np.geterr()["over"] == "raise"


class FakeTensor:
    def __init__(self, values):
        self.values = values
        self.dtype = "fake.float32"

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        if self.values is None:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return np.asarray(self.values, "f4")


def test_a_tensor_is_taken_without_its_library():
    assert put(FakeTensor([1, 2]), "f4", (2,)).tolist() == [1, 2]
    with pytest.raises(SpaceMismatchError, match="BFloat16"):
        put(FakeTensor(None), "f4", (2,))
