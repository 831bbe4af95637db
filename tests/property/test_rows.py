"""Random nested spaces: what goes into rows comes out of them, bit for bit."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envmgr.memory.layout import layout_of
from envmgr.memory.rows import RowReader, RowWriter, rows_for

pytestmark = pytest.mark.case("D03", "T02", "T03", "T04")

DTYPES = st.sampled_from(["?", "u1", "i1", "i2", "u4", "i8", "u8", "f2", "f4", "f8"])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
N = 5

LEAVES = st.one_of(
    st.builds(lambda dtype, shape: spaces.Box(0, 1, shape, np.dtype(dtype).type), DTYPES, SHAPES),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-(2**40), 9)),
    st.sampled_from([(1,), (3,), (2, 2)]).map(lambda shape: spaces.MultiDiscrete(np.full(shape, 2))),
    st.sampled_from([1, 3, (2, 2)]).map(spaces.MultiBinary),
    st.just(spaces.Text(5)),
)
SPACES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.text("abcd", min_size=1, max_size=2), inner, max_size=3).map(spaces.Dict),
        st.lists(inner, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=6,
)


def drawn(space, rng):
    """A value of a space; in a box any bits at all, NaN and infinity too."""
    if isinstance(space, spaces.Dict):
        return {key: drawn(inner, rng) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(drawn(inner, rng) for inner in space.spaces)
    if isinstance(space, spaces.Text):
        return "".join(rng.choice(list("xyz"), rng.integers(5)))
    if isinstance(space, spaces.Discrete):
        return np.int64(space.start + rng.integers(space.n))
    if space.dtype == bool or not isinstance(space, spaces.Box):
        return rng.integers(0, 2, space.shape).astype(space.dtype)
    size = int(np.prod(space.shape)) * space.dtype.itemsize
    bits = [rng.bytes(size), bytes(size), b"\xff" * size][rng.integers(3)]
    return np.frombuffer(bits, space.dtype).reshape(space.shape)


def stacked(space, values):
    if isinstance(space, spaces.Dict):
        return {key: stacked(inner, [value[key] for value in values]) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(inner, [value[k] for value in values]) for k, inner in enumerate(space.spaces))
    if isinstance(space, spaces.Text):
        return list(values)
    return np.stack(values) if values else np.zeros((0, *space.shape), space.dtype)


def same(one, two):
    """Equal in structure, types and bits."""
    if isinstance(one, dict):
        return type(two) is dict and list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, tuple):
        return type(two) is tuple and len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, str):
        return one == two
    alike = type(one) is type(two) and one.dtype == two.dtype and one.shape == two.shape
    return alike and one.tobytes() == two.tobytes()


def made(space, seed=0):
    layout = layout_of(space)
    rows = rows_for(layout, N, np.zeros)
    rng = np.random.default_rng(seed)
    return RowWriter(layout, rows, n=N), RowReader(layout, rows), [drawn(space, rng) for _ in range(N)]


many = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@many
@given(SPACES, st.integers(0, 2**32 - 1), st.permutations(range(N)))
def test_one_by_one(space, seed, order):
    writer, reader, values = made(space, seed)
    sides = {i: writer.write(i, values[i]) for i in order}
    for i, value in enumerate(values):
        assert same(reader.row(i, sides[i]), value)
        assert same(reader.row(i, sides[i], copy=False), value)
        assert writer.bind(i)(value) == sides[i]
    for ids in (np.array(order[:3]), slice(1, 4)):
        listed = range(1, 4) if isinstance(ids, slice) else ids.tolist()
        side = {i: sides[i] for i in listed if sides[i] is not None}
        for copy in (True, False):
            take = reader.unbatch(reader.batch(ids, copy=copy, side=side))
            assert all(same(take(k), values[i]) for k, i in enumerate(listed))


@many
@given(SPACES, st.integers(0, 2**32 - 1), st.permutations(range(N)), st.integers(0, N))
def test_batches(space, seed, order, count):
    writer, reader, values = made(space, seed)
    ids = np.array(order[:count], np.int64)
    side = writer.write_many(stacked(space, [values[i] for i in order[:count]]), ids)
    for k, i in enumerate(order[:count]):
        assert same(reader.row(i, None if side is None else side[k]), values[i])
    side = writer.write_all(stacked(space, values))
    for i, value in enumerate(values):
        assert same(reader.row(i, None if side is None else side[i]), value)


@settings(max_examples=300, deadline=None)
@given(DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, (3,))), DTYPES)
def test_a_conversion_keeps_every_value_or_is_refused(value, dtype):
    """Except float64 into float32; judged by Python's own numbers, which compare exactly."""
    if value.dtype == np.float64 and dtype == "f4":
        return
    writer, reader, _ = made(spaces.Box(0, 1, (3,), np.dtype(dtype).type))
    try:
        writer.write(0, value)
    except ValueError:
        with np.errstate(all="ignore"):
            got = value.astype(dtype).tolist()
        assert not all(map(equal, got, value.tolist()))
    else:
        assert all(map(equal, reader.row(0).tolist(), value.tolist()))


def equal(one, two):
    return one == two or (one != one and two != two)
