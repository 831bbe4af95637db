"""Conversions against Python's own numbers, which are exact: near the limits of each dtype above all."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from envmgr.errors import EnvManagerWarning, SpaceMismatchError
from envmgr.memory.casts import fit

pytestmark = pytest.mark.case("T01", "O07")

few = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))

INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
FLOATS = ["f2", "f4", "f8"]
DTYPES = ["?", *INTEGERS, *FLOATS, "c8", "c16"]

# Powers of two are where every limit of every dtype lies: of its range, and of what it can tell apart.
EDGES = sorted({sign * 2**k + off for k in range(65) for off in (-1, 0, 1) for sign in (-1, 1)})


def integers(dtype):
    info = np.iinfo(dtype)
    inside = [edge for edge in EDGES if info.min <= edge <= info.max]
    return st.sampled_from(inside) | st.integers(int(info.min), int(info.max))


def floats(dtype):
    width = 8 * np.dtype(dtype).itemsize
    with np.errstate(over="ignore"):
        near = [float(np.dtype(dtype).type(float(edge) + off)) for edge in EDGES for off in (0, 0.5)]
    return st.sampled_from(near) | st.floats(width=width)


def numbers(dtype):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return st.booleans()
    if kind in "iu":
        return integers(dtype)
    if kind == "f":
        return floats(dtype)
    part = "f4" if dtype == "c8" else "f8"
    return st.builds(complex, floats(part), floats(part))


def arrays(dtype):
    return st.lists(numbers(dtype), min_size=1, max_size=3).map(lambda values: np.array(values, dtype))


def equal(one, two):
    """Of Python numbers, so 2**53 + 1 is not 2.0**53; NaN equals NaN, in each part of a complex one."""
    parts = [(number.real, number.imag) for number in (one, two)]
    return all(a == b or (a != a and b != b) for a, b in zip(*parts, strict=True))


def converted(value, dtype):
    return fit(value, np.dtype(dtype), value.shape, "value", set())


@few
@given(st.sampled_from(DTYPES).flatmap(arrays), st.sampled_from(DTYPES))
def test_a_value_stays_itself_or_is_refused(array, dtype):
    assume(not (array.dtype == "f8" and dtype == "f4"))
    row = np.zeros(array.shape, dtype)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            row[...] = converted(array, dtype)
    except SpaceMismatchError:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a complex number loses
            cast = array.astype(dtype)
        finite_again = all(map(equal, cast.tolist(), array.tolist()))
        assert not finite_again, "refused, though no value would have changed"
    else:
        assert all(map(equal, row.tolist(), array.tolist()))


@few
@given(arrays("f8"))
def test_float64_into_float32_is_rounded_to_the_nearest_or_refused(array):
    largest = float(np.finfo("f4").max)
    with np.errstate(over="ignore"):
        nearest = array.astype("f4")
    overflows = (np.isinf(nearest) & np.isfinite(array)).any()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            got = converted(array, "f4")
        except SpaceMismatchError:
            assert overflows, f"refused, though all is within {largest}"
            assert not caught
        else:
            assert not overflows
            assert got.tobytes() == nearest.tobytes()
            assert [warning.category for warning in caught] == [EnvManagerWarning]


@few
@given(st.sampled_from(DTYPES).flatmap(arrays), st.sampled_from(DTYPES))
def test_one_by_one_it_is_as_in_one_array(array, dtype):
    def fits(value):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EnvManagerWarning)
            try:
                converted(value, dtype)
            except SpaceMismatchError:
                return False
        return True

    assert fits(array) == all(fits(np.array(value, array.dtype)) for value in array)


@few
@given(st.sampled_from(DTYPES).flatmap(arrays), st.sampled_from(DTYPES))
def test_the_byte_order_of_the_source_makes_no_difference(array, dtype):
    swapped = array.astype(array.dtype.newbyteorder())
    outcomes = []
    for value in (array, swapped):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EnvManagerWarning)
            row = np.zeros(array.shape, dtype)
            try:
                row[...] = converted(value, dtype)
                outcomes.append(row.tobytes())
            except SpaceMismatchError:
                outcomes.append(None)
    assert outcomes[0] == outcomes[1]
