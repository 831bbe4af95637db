"""Batches where they could be misread, and conversions at the very edge of a dtype."""

import numpy as np
import pytest
from gymnasium import spaces

from envmgr.errors import EnvManagerWarning, SpaceMismatchError
from envmgr.memory.casts import fit
from envmgr.memory.layout import layout_of
from envmgr.memory.rows import RowReader, RowWriter, rows_for

PAIR = spaces.Tuple((spaces.Discrete(3), spaces.Discrete(4)))
TALKING = spaces.Dict({"t": spaces.Text(5), "v": spaces.Discrete(3)})


def made(space, n=2):
    layout = layout_of(space)
    rows = rows_for(layout, n, np.zeros)
    return RowWriter(layout, rows, "action", n=n), RowReader(layout, rows)


@pytest.mark.case("D02")
class TestTuples:
    """Two envs, two members: [[a, b], [c, d]] could be by env or by member."""

    @pytest.mark.parametrize(
        "values", [[(0, 1), (2, 3)], [[0, 1], [2, 3]], np.array([[0, 1], [2, 3]])], ids=str
    )
    @pytest.mark.parametrize("ids", [slice(0, 2), np.array([0, 1])], ids=["slice", "array"])
    def test_what_could_be_transposed_is_refused(self, values, ids):
        writer, reader = made(PAIR)
        with pytest.raises(
            SpaceMismatchError, match=r"^action: expected a tuple of 2 batches, one per member"
        ):
            writer.write_many(values, ids)
        writer, _ = made(spaces.Dict({"p": PAIR}))
        with pytest.raises(SpaceMismatchError, match=r"^action\['p'\]: expected a tuple of 2 batches"):
            writer.write_all({"p": values})
        assert reader.row(0) == (0, 0)

    def test_a_tuple_is_by_member(self):
        writer, reader = made(PAIR)
        writer.write_all(([0, 1], np.array([2, 3])))
        assert [reader.row(i) for i in range(2)] == [(0, 2), (1, 3)]

    def test_one_value_may_be_a_list_or_an_array(self):
        writer, reader = made(PAIR)
        for value in ([1, 2], np.array([1, 2]), (1, 2)):
            writer.write(0, value)
            assert reader.row(0) == (1, 2)


class TestOfNoEnv:
    @pytest.mark.parametrize("ids", [slice(0, 0), slice(1, 1), np.zeros(0, np.int64)], ids=str)
    @pytest.mark.parametrize(
        ("space", "values"),
        [
            (spaces.Box(0, 1, (2, 3)), []),
            (spaces.Box(0, 1, (2, 3)), np.zeros((0, 2, 3), "f4")),
            (spaces.Box(0, 255, (), np.uint8), ()),
            (spaces.Discrete(3), []),
            (spaces.Discrete(3), np.zeros((0, 1), np.int64)),
            (PAIR, ([], [])),
            (TALKING, {"t": [], "v": []}),
        ],
        ids=str,
    )
    def test_nothing_is_written(self, space, values, ids):
        writer, reader = made(space)
        before = reader.batch(slice(None))
        assert writer.write_many(values, ids) == ([] if space is TALKING else None)
        assert str(reader.batch(slice(None))) == str(before)
        leaves = reader.batch(ids)
        for leaf in leaves.values() if isinstance(leaves, dict) else np.atleast_1d(leaves):
            assert len(np.atleast_1d(leaf)) == 0

    def test_a_shape_is_checked_nevertheless(self):
        writer, _ = made(spaces.Box(0, 1, (2, 3)))
        with pytest.raises(SpaceMismatchError, match=r"shape \(0, 2, 3\)"):
            writer.write_many(np.zeros((0, 3, 2), "f4"), slice(0, 0))
        with pytest.raises(SpaceMismatchError, match=r"shape \(0, 2, 3\)"):
            writer.write_many(np.zeros((1, 2, 3), "f4"), slice(0, 0))


@pytest.mark.case("T04")
class TestSideOfSomeEnvs:
    @pytest.mark.parametrize("space", [spaces.Text(5), TALKING], ids=["lone", "beside rows"])
    @pytest.mark.parametrize(
        ("ids", "expected"),
        [
            (slice(0, 4), [None, "b", None, "d"]),
            (slice(1, 4), ["b", None, "d"]),
            (slice(0, 4, 2), [None, None]),
            (slice(3, 4), ["d"]),
            (slice(2, 2), []),
            (np.array([3, 0, 1]), ["d", None, "b"]),
            (np.zeros(0, np.int64), []),
        ],
        ids=str,
    )
    def test_a_batch_is_as_long_as_its_ids(self, space, ids, expected):
        _, reader = made(space, n=4)
        batch = reader.batch(ids, side={3: ["d"], 1: ["b"], 9: ["of another"]})
        got = batch["t"] if space is TALKING else batch
        assert (got.dtype, got.tolist()) == (object, expected)
        if space is TALKING:
            assert len(batch["v"]) == len(expected)


@pytest.mark.case("T01")
class TestEdges:
    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            (np.array(-(2**31), "i4"), "f2"),  # -inf there, which wraps to itself on its way back
            (np.array(-(2**63), "i8"), "f2"),
            (np.array(2**63 - 1, "i8"), "f4"),
            (np.array(2**64 - 1, "u8"), "f8"),
            (np.array(complex(np.nan, 1e300)), "c8"),  # the NaN of one part hides nothing of the other
            (np.array(complex(1e300, np.nan)), "c8"),
            (np.array(complex(1, np.nan)), "f8"),
        ],
    )
    def test_refused(self, value, dtype):
        with pytest.raises(SpaceMismatchError, match="does not fit"):
            fit(value, np.dtype(dtype), (), "obs", set())

    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            (np.array(-(2**31), "i4"), "f4"),
            (np.array(-(2**63), "i8"), "f8"),
            (np.array(2**63, "u8"), "f4"),
            (np.array(complex(np.nan, 1.5)), "c8"),
            (np.array(2**24, "i8"), "c8"),
            (np.array(-65504, "i4"), "f2"),
        ],
    )
    def test_taken(self, value, dtype):
        got = fit(value, np.dtype(dtype), (), "obs", set()).astype(dtype)
        assert np.array_equal(got, value, equal_nan=True)

    @pytest.mark.case("D11")
    def test_big_endian_float64_is_float64(self):
        value = np.array([0.1, -2.5], ">f8")
        with pytest.warns(EnvManagerWarning, match="float64"):
            assert fit(value, np.dtype("f4"), (2,), "obs", set()).tolist() == value.astype("f4").tolist()

    def test_a_signalling_nan_raises_nothing(self):
        value = np.array([0x7FF0000000000001], "u8").view("f8")
        with np.errstate(all="raise"):
            assert np.isnan(fit(value, np.dtype("f4"), (1,), "obs", {"warned before"})).all()
