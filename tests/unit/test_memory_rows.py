"""Values into rows and back: every way to write and to read, and what does not fit."""

import collections
import dataclasses
import pickle
import threading
import types
import warnings

import numpy as np
import pytest
from gymnasium import spaces

from envmgr.errors import EnvManagerWarning, SpaceMismatchError
from envmgr.memory.layout import layout_of
from envmgr.memory.rows import RowReader, RowWriter, rows_for
from envmgr.memory.sides import take_sent

N = 4
Box = spaces.Box
PAIR = spaces.Tuple((Box(0, 255, (2,), np.uint8), spaces.Discrete(3)))
TREE = spaces.Dict({"a": PAIR, "b": spaces.Dict({"c": Box(-1, 1, (3,))}), "e": Box(-1, 1, ())})
TALKING = spaces.Dict(
    {"t": spaces.Text(5), "v": Box(0, 9, (2,), np.int64), "w": spaces.Tuple((spaces.Text(3),))}
)


def made(space, what="observation", n=N):
    layout = layout_of(space)
    rows = rows_for(layout, n, np.zeros)
    return RowWriter(layout, rows, what, n=n), RowReader(layout, rows), rows


def tree(k=0, **changes):
    value = {
        "a": (np.array([k, k + 1], "u1"), np.int64(k % 3)),
        "b": {"c": np.full(3, k / 2, "f4")},
        "e": np.array(k, "f4"),
    }
    return {**value, **changes}


def same(one, two):
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, tuple):
        return type(two) is tuple and len(one) == len(two) and all(map(same, one, two))
    return type(one) is type(two) and one.dtype == two.dtype and np.array_equal(one, two)


def test_rows_have_one_array_per_leaf_with_rows():
    rows = made(TREE)[2]
    assert [(array.shape, array.dtype) for array in rows] == [
        ((N, 2), np.uint8),
        ((N,), np.int64),
        ((N, 3), np.float32),
        ((N,), np.float32),
    ]
    assert [array.shape for array in made(TALKING)[2]] == [(N, 2)]


@pytest.mark.case("T02", "D02", "D06")
def test_a_tree_comes_back_as_it_was():
    writer, reader, _ = made(TREE)
    for i in range(N):
        assert writer.write(i, tree(i)) is None
    for i in range(N):
        assert same(reader.row(i), tree(i))


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (Box(-1, 1, (4,)), np.arange(4, dtype="f4")),
        (Box(-1, 1, ()), np.array(0.5, "f4")),
        (Box(0, 1, (0, 3)), np.zeros((0, 3), "f4")),
        (Box(0, 1, (2,), np.bool_), np.array([True, False])),
        (Box(-1, 1, (2,), np.float16), np.array([np.nan, np.inf], "f2")),
        (spaces.Discrete(5), np.int64(4)),
        (spaces.Discrete(5, start=-3, dtype=np.int32), np.int32(-3)),
        (spaces.MultiDiscrete([3, 4]), np.array([2, 3])),
        (spaces.MultiBinary((2, 2)), np.eye(2, dtype="i1")),
        (spaces.Tuple(()), ()),
        (spaces.Dict({}), {}),
        (spaces.Tuple((Box(0, 1, (1,)),)), (np.ones(1, "f4"),)),
    ],
    ids=str,
)
@pytest.mark.case("T03")
def test_kinds(space, value):
    writer, reader, rows = made(space)
    for write in (lambda value: writer.write(2, value), writer.bind(2)):
        assert write(value) is None
        for got in (reader.row(2), reader.row(2, copy=False), reader.unbatch(reader.batch(slice(None)))(2)):
            if isinstance(value, np.ndarray):
                assert type(got) is np.ndarray
                assert np.array_equal(got, value, equal_nan=value.dtype.kind == "f")
            else:
                assert same(got, value)
        for array in rows:
            assert not array[[0, 1, 3]].any(), "the other rows are as they were"
            array[:] = 0


@pytest.mark.case("D11")
class TestOddArrays:
    def check(self, value):
        space = Box(-np.inf, np.inf, (2, 3))
        writer, reader, _ = made(space)
        writer.write(1, value)
        assert np.array_equal(reader.row(1), np.asarray(value), equal_nan=True)
        assert reader.row(1).dtype == space.dtype

    def test_memory_orders(self):
        value = np.arange(6, dtype="f4").reshape(2, 3)
        self.check(np.asfortranarray(value))
        self.check(value[::-1, ::-1])
        self.check(np.arange(12, dtype="f4").reshape(2, 6)[:, ::2])
        self.check(value.astype(">f4"))
        frozen = value.copy()
        frozen.flags.writeable = False
        self.check(frozen)
        self.check(np.broadcast_to(np.float32(2), (2, 3)))

    def test_values(self):
        self.check(np.array([[np.nan, np.inf, -np.inf], [-0.0, 1e-45, 3e38]], "f4"))

    def test_equal_dtypes_that_are_other_objects(self):
        dtype = pickle.loads(pickle.dumps(np.dtype("f4")))
        assert dtype is not np.dtype("f4")
        self.check(np.ones((2, 3), dtype))

    def test_subclasses_and_lists(self):
        class Sub(np.ndarray):
            pass

        self.check(np.ones((2, 3), "f4").view(Sub))
        self.check([[1, 2, 3], [4.0, 5, 6]])
        self.check(((1, 2, 3), (4, 5, 6)))
        self.check(np.ma.masked_array(np.ones((2, 3), "f4")))


class TestDiscrete:
    @pytest.mark.parametrize(
        "value", [2, np.int64(2), np.int32(2), np.array(2), np.array([2]), [2], True, 2.0, -(2**63)]
    )
    @pytest.mark.case("T05")
    def test_every_way_to_say_a_number(self, value):
        writer, reader, _ = made(spaces.Discrete(5))
        writer.write(1, value)
        got = reader.row(1)
        assert type(got) is np.int64
        assert got == np.asarray(value).reshape(())

    @pytest.mark.parametrize(
        "value", [2**63, -(2**63) - 1, 0.5, None, "2", [1, 2], {"a": 3}, np.uint64(2**63)]
    )
    def test_what_is_no_number_of_it(self, value):
        for space in (spaces.Discrete(5), spaces.Tuple((spaces.Discrete(5),))):
            writer, reader, _ = made(space, "action")
            writer.write(1, 3 if space is not None and isinstance(space, spaces.Discrete) else (3,))
            with pytest.raises(SpaceMismatchError, match=r"^action(\[0\])?: "):
                writer.write(1, value if isinstance(space, spaces.Discrete) else (value,))
            assert np.ravel(reader.row(1)) == [3]


@pytest.mark.case("T06", "D12")
@pytest.mark.parametrize(
    ("space", "value", "said"),
    [
        (Box(0, 1, (1,)), {"a": 3}, r"^observation: expected numbers, got dict \{'a': 3\}; .*shape \(1,\)"),
        (Box(0, 1, (1,)), np.zeros(2, "f4"), r"expected shape \(1,\) .* got shape \(2,\) and dtype float32"),
        (Box(0, 255, (1,), np.uint8), np.array([300]), "uint8, got .*int64: 300 does not fit"),
        (TREE, tree(e=np.zeros(1, "f4")), r"^observation\['e'\]: expected shape \(\)"),
        (TREE, tree(a=(np.zeros(2, "u1"), 0.5)), r"^observation\['a'\]\[1\]: "),
        (TREE, tree(a=(np.zeros(2, "u1"),)), r"^observation\['a'\]: expected a tuple of 2, got tuple of 1"),
        (TREE, tree(a=3), r"^observation\['a'\]: expected a tuple of 2, got int 3"),
        (TREE, tree(a="ab"), r"^observation\['a'\]: expected a tuple"),
        (TREE, tree(b={}), r"^observation\['b'\]: expected a dict with keys \['c'\]: \['c'\] missing"),
        (TREE, tree(b={"d": 1}), r"\['c'\] missing, \['d'\] not in the space"),
        (TREE, tree(more=1), r"^observation: .*\['more'\] not in the space"),
        (TREE, [1, 2, 3], "^observation: expected a dict"),
        (TREE, None, "^observation: expected a dict"),
        (spaces.Dict({}), {"a": 1}, "not in the space"),
        (spaces.Tuple(()), (1,), "a tuple of 0, got tuple of 1"),
    ],
    ids=lambda value: None,
)
def test_what_does_not_fit_is_named_and_changes_nothing(space, value, said):
    writer, _, rows = made(space)
    for array in rows:
        array[...] = 1
    for write in (lambda value: writer.write(0, value), writer.bind(0)):
        with pytest.raises(SpaceMismatchError, match=said) as caught:
            write(value)
        assert caught.value.env_id is None
    for array in rows:
        assert (array == 1).all(), "a value of which one leaf does not fit is not written at all"


@pytest.mark.case("D12")
def test_other_mappings_and_sequences():
    writer, reader, _ = made(TREE)
    value = tree(1)
    for odd in (
        dict(reversed(list(value.items()))),
        collections.OrderedDict(value),
        collections.UserDict(value),
        types.MappingProxyType(value),
        {**value, "a": list(value["a"])},
    ):
        writer.write(0, odd)
        assert same(reader.row(0), value)
        writer.write(0, tree(2))
    inventive = collections.defaultdict(lambda: np.array(9, "f4"), {key: value[key] for key in "ab"}, x=3)
    with pytest.raises(SpaceMismatchError, match=r"\['e'\] missing, \['x'\] not in the space"):
        writer.write(0, inventive)
    actions, reader, _ = made(spaces.Tuple((spaces.Discrete(3), spaces.Discrete(4))))
    actions.write(0, np.array([1, 2]))
    assert reader.row(0) == (1, 2)


@pytest.mark.case("T01")
def test_float64_warns_once_per_writer():
    writer, reader, _ = made(spaces.Dict({"x": Box(-1, 1, (2,)), "y": Box(-1, 1, (2,))}))
    with pytest.warns(EnvManagerWarning, match=r"observation\['x'\]: float64") as seen:
        writer.write(0, {"x": np.full(2, 0.1), "y": np.full(2, 0.2)})
    assert len(seen) == 1
    writer.write(1, {"x": np.full(2, 0.1), "y": np.full(2, 0.2)})  # a second warning would be an error
    assert (reader.row(1)["y"] == np.float32(0.2)).all()


@pytest.mark.case("T04")
class TestSide:
    value = {"t": "abc", "v": np.array([1, 2]), "w": ("x",)}  # noqa: RUF012

    def test_values_without_rows_come_back_from_write(self):
        writer, reader, _ = made(TALKING)
        assert writer.write(1, self.value) == ["abc", "x"]
        assert writer.bind(2)(self.value) == ["abc", "x"]
        got = reader.row(1, side=["abc", "x"])
        assert got["t"] == "abc"
        assert got["w"] == ("x",)
        assert got["v"].tolist() == [1, 2]
        assert reader.row(1)["t"] is None

    def test_a_lone_one(self):
        for space in (None, spaces.Text(4), spaces.Sequence(spaces.Discrete(2))):
            writer, reader, rows = made(space)
            assert rows == []
            odd = ["a"]
            assert writer.write(3, odd) == [odd]
            assert writer.bind(3)(odd) == [odd]
            assert reader.row(3, [odd]) is odd

    @pytest.mark.case("D09")
    def test_those_of_an_observation_are_copies(self):
        for value in (["a"], {"x": [1]}, np.zeros(2), np.array([[1]], object), {"f": lambda: 1, "l": [2]}):
            (kept,) = made(None)[0].write(0, value)
            assert kept is not value and repr(kept) == repr(value)
        nested = {"t": ["a"], "v": [1, 2], "w": (["x"],)}
        text, words = made(TALKING)[0].write(1, nested)
        nested["t"][0] = nested["w"][0][0] = "changed"
        assert (text, words) == (["a"], ["x"])

    def test_what_cannot_be_copied_is_handed_over_as_it_is(self):
        lock = threading.Lock()
        assert made(None)[0].write(0, lock) == [lock]

    def test_those_of_an_action_are_packed_by_who_sends_them(self):
        value = ["a"]
        assert made(None, "action")[0].write(0, value)[0] is value

    @pytest.mark.parametrize("ids", [slice(1, 3), np.array([1, 2])], ids=str)
    def test_batches(self, ids):
        writer, reader, _ = made(TALKING)
        values = {"t": ["a", "b"], "v": [[1, 2], [3, 4]], "w": (["x", "y"],)}
        assert writer.write_many(values, ids) == [["a", "x"], ["b", "y"]]
        batch = reader.batch(ids, side={1: ["a", "x"], 2: ["b", "y"]})
        assert batch["t"].dtype == object
        assert batch["t"].tolist() == ["a", "b"]
        assert batch["w"][0].tolist() == ["x", "y"]
        got = reader.unbatch(batch)(1)
        assert (got["t"], got["w"], got["v"].tolist()) == ("b", ("y",), [3, 4])
        assert reader.batch(ids, side={2: ["b", "y"]})["t"].tolist() == [None, "b"]

    def test_values_that_numpy_would_take_apart(self):
        reader = made(None)[1]
        odd = [np.array(3), [1, 2], np.zeros((2, 2)), {"a": 1}]
        batch = reader.batch(np.arange(4), side={k: [value] for k, value in enumerate(odd)})
        assert batch.shape == (4,)
        assert all(reader.unbatch(batch)(k) is odd[k] for k in range(4))
        assert reader.batch(slice(None), side={3: ["d"], 1: ["b"]}).tolist() == ["b", "d"]

    @pytest.mark.case("F01")
    @pytest.mark.parametrize("values", [["a"], "ab", {0: "a", 1: "b"}, 3, None])
    def test_as_many_values_as_envs(self, values):
        writer = made(None)[0]
        with pytest.raises(SpaceMismatchError, match="expected 2 values"):
            writer.write_many(values, np.array([0, 1]))
        with pytest.raises(SpaceMismatchError, match="expected 4 values"):
            writer.write_all(values)
        assert writer.write_all([1, 2, 3, 4]) == [[1], [2], [3], [4]]


def batched(values):
    first = values[0]
    if isinstance(first, dict):
        return {key: batched([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(batched(list(parts)) for parts in zip(*values, strict=True))
    return np.stack(values)


class TestBatches:
    @pytest.mark.parametrize("ids", [slice(1, 3), np.array([2, 0]), slice(None)], ids=str)
    @pytest.mark.case("D02", "D06")
    def test_a_tree(self, ids):
        writer, reader, _ = made(TREE)
        listed = list(range(N))[ids] if isinstance(ids, slice) else ids.tolist()
        values = [tree(i) for i in listed]
        assert writer.write_many(batched(values), ids) is None
        for i, value in zip(listed, values, strict=True):
            assert same(reader.row(i), value)
        for copy in (True, False):
            batch = reader.batch(ids, copy=copy)
            assert same(batch, batched(values))
            take = reader.unbatch(batch)
            assert all(same(take(k), value) for k, value in enumerate(values))

    def test_all_rows(self):
        for space in (TREE, Box(-1, 1, (2,)), spaces.Discrete(3), spaces.MultiDiscrete([3, 3])):
            writer, reader, _ = made(space)
            values = batched(
                [tree(i) for i in range(N)] if space is TREE else [space.sample() for _ in range(N)]
            )
            assert writer.write_all(values) is None
            assert same(reader.batch(slice(None)), values)

    @pytest.mark.case("D01", "D09")
    def test_copies_are_the_callers_own(self):
        writer, reader, rows = made(Box(-1, 1, (2,)))
        for ids in (slice(None), slice(1, 3), np.array([1, 2])):
            batch = reader.batch(ids)
            batch[:] = 5
            reader.unbatch(batch)(0)[:] = 6
            assert not rows[0].any()
        reader.row(0)[:] = 5
        assert not rows[0].any()
        writer.write(0, np.ones(2, "f4"))
        assert rows[0][0].all()

    def test_views_cannot_be_written_to_and_follow(self):
        writer, reader, rows = made(Box(-1, 1, (2,)))
        view, row = reader.batch(slice(None), copy=False), reader.row(1, copy=False)
        assert np.shares_memory(view, rows[0])
        for locked in (view, row, reader.unbatch(view)(1), reader.batch(np.array([1]), copy=False)):
            assert not locked.flags.writeable
        writer.write(1, np.ones(2, "f4"))
        assert view[1].tolist() == row.tolist() == [1, 1]
        assert rows[0].flags.writeable

    @pytest.mark.case("T05")
    @pytest.mark.parametrize("ids", [slice(None), np.arange(N)], ids=["slice", "array"])
    def test_discrete_actions_of_shape_n_1(self, ids):
        writer, reader, _ = made(spaces.Discrete(5), "action")
        for values in (np.array([[1], [2], [3], [4]]), [[1], [2], [3], [4]], [1, 2, 3, 4], np.arange(1.0, 5)):
            writer.write_many(values, ids)
            assert reader.batch(ids).tolist() == [1, 2, 3, 4]
            writer.write_many(np.zeros(N, np.int64), ids)
        with pytest.raises(SpaceMismatchError):
            writer.write_many(np.zeros((N, 1, 1), np.int64), ids)

    @pytest.mark.case("F01", "T01")
    @pytest.mark.parametrize(
        ("space", "values"),
        [
            (Box(-1, 1, (2,)), np.zeros((3, 2), "f4")),
            (Box(-1, 1, (2,)), np.zeros((5, 2), "f4")),
            (Box(-1, 1, (2,)), np.zeros(2, "f4")),
            (Box(-1, 1, (2,)), np.zeros((1, 2), "f4")),
            (Box(0, 255, (1,), np.uint8), np.full((N, 1), 300)),
            (spaces.Discrete(3), [0, 1]),
            (spaces.Discrete(3), 1),
            (spaces.Discrete(3), None),
            (spaces.Discrete(3), {0: 1, 1: 1, 2: 1, 3: 1}),
            (TREE, batched([tree(i) for i in range(3)])),
            (TREE, [tree(i) for i in range(4)]),
            (TREE, {**batched([tree(i) for i in range(4)]), "e": np.zeros(3, "f4")}),
            (TREE, {**batched([tree(i) for i in range(4)]), "more": 1}),
            (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))), (np.zeros(4, int),)),
        ],
        ids=lambda value: None,
    )
    def test_what_does_not_fit_changes_nothing(self, space, values):
        writer, _, rows = made(space)
        for array in rows:
            array[...] = 1
        for write in (
            writer.write_all,
            lambda values: writer.write_many(values, slice(None)),
            lambda values: writer.write_many(values, np.arange(N)),
        ):
            with pytest.raises(ValueError, match="observation"):
                write(values)
        assert all((array == 1).all() for array in rows)

    def test_float64_batches_warn_once(self):
        writer, reader, _ = made(Box(-1, 1, (2,)))
        with pytest.warns(EnvManagerWarning, match="observation: float64"):
            writer.write_all(np.full((N, 2), 0.1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            writer.write_many(np.full((2, 2), 0.1), slice(0, 2))
            writer.write(0, np.full(2, 0.1))
        assert (reader.batch(slice(None)) == np.float32(0.1)).all()


def test_rows_of_no_env():
    writer, reader, _ = made(TREE, n=0)
    none = reader.batch(slice(None))
    assert none["b"]["c"].shape == (0, 3)
    assert writer.write_many(none, slice(None)) is None
    assert writer.write_all(none) is None


@pytest.mark.case("O08", "O15")
@pytest.mark.parametrize(
    "space",
    [Box(-1, 1, (2,)), spaces.Dict({"x": Box(-1, 1, (2,)), "k": spaces.Discrete(3)}), spaces.Discrete(3)],
    ids=str,
)
def test_a_row_is_marked_before_it_is_stored(space):
    """A worker that is killed then leaves the mark, and the parent knows that the row holds no good step."""
    marks = []

    class Dirty(bytearray):
        def __setitem__(self, i, mark):
            marks.append((i, mark, float(rows[0].sum())))
            super().__setitem__(i, mark)

    layout = layout_of(space)
    rows = rows_for(layout, N, np.zeros)
    dirty = Dirty(N)
    writer = RowWriter(layout, rows, dirty=dirty)
    good = (
        {"x": np.ones(2, "f4"), "k": 1}
        if isinstance(space, spaces.Dict)
        else np.ones(space.shape, space.dtype)
    )
    for write in (lambda value: writer.write(1, value), writer.bind(1)):
        write(good)
        assert marks == [(1, 1, 0.0)] and float(sum(array.sum() for array in rows)) > 0
        marks.clear()
        for array in rows:
            array[...] = 0
        with pytest.raises(SpaceMismatchError):
            write("rubbish")
        assert marks == [], "nothing stored, nothing torn"


class TestNotShared:
    """What is written on one side, and taken on the other, is what shared rows would have held."""

    @staticmethod
    def pair(space, dirty=None):
        layout = dataclasses.replace(layout_of(space), shared=False)
        mine, theirs = rows_for(layout, N, np.zeros), rows_for(layout, N, np.zeros)
        return layout, RowWriter(layout, mine, n=N, dirty=dirty), theirs, RowReader(layout, theirs)

    @pytest.mark.case("D03", "T04")
    @pytest.mark.parametrize(
        ("space", "value"),
        [
            (Box(0, 9, (2,), np.uint8), [1, 2]),
            (Box(0, 9, (), np.float32), 1),
            (spaces.Discrete(3), 2),
            (TREE, tree(1)),
            (TALKING, {"t": "abc", "v": [1, 2], "w": ["x"]}),
            (spaces.Text(5), "abc"),
            (spaces.Dict({}), {}),
        ],
        ids=str,
    )
    def test_values(self, space, value):
        writer, reader, _ = made(space)
        wanted = reader.row(1, writer.write(1, value))
        for k, how in enumerate(("write", "bind")):
            layout, writer, theirs, reader = self.pair(space)
            sent = writer.write(1, value) if how == "write" else writer.bind(1)(value)
            side = take_sent(layout, theirs, 2 + k, pickle.loads(pickle.dumps(sent)))
            got = reader.row(2 + k, side)
            assert repr(got) == repr(wanted)

    def test_what_does_not_fit_is_refused(self):
        for space, value in (
            (Box(0, 255, (2,), np.uint8), [300, 0]),
            (Box(0, 255, (2,), np.uint8), np.zeros(3, np.uint8)),
            (Box(0, 255, (2,), np.uint8), None),
            (TREE, {}),
        ):
            writer = self.pair(space)[1]
            with pytest.raises(SpaceMismatchError):
                writer.write(0, value)
            with pytest.raises(SpaceMismatchError):
                writer.bind(0)(value)

    def test_loops_do_not_store_by_themselves_and_nothing_is_torn(self):
        dirty = memoryview(bytearray(N))
        _, writer, _, _ = self.pair(Box(0, 1, (500,)), dirty)
        assert writer.lone_rows(range(N)) is None
        with pytest.raises(SpaceMismatchError):
            writer.write(0, np.zeros(3))
        writer.write(0, np.ones(500, "f4"))
        assert not any(dirty)


MASKED = np.ma.array([1.0, 2.0], "f4", mask=[True, False])


class TestMasks:
    @pytest.mark.parametrize(
        ("space", "value"),
        [
            (Box(-9, 9, (2,)), MASKED),
            (Box(0, 9, (2,), np.uint8), MASKED),
            (spaces.Discrete(3), np.ma.masked),
            (spaces.MultiBinary(2), np.ma.array([1, 0], "i1", mask=[False, True])),
            (spaces.Dict({"a": Box(-9, 9, (2,))}), {"a": MASKED}),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_one_value(self, space, value):
        for write in (lambda v: made(space)[0].write(0, v), made(space)[0].bind(0)):
            with pytest.raises(SpaceMismatchError, match="masked values cannot be sent"):
                write(value)

    def test_batches(self):
        box, number = made(Box(-9, 9, (2,)), n=2)[0], made(spaces.Discrete(3), n=2)[0]
        for batch in (np.ma.array(np.ones((2, 2), "f4"), mask=np.eye(2)), [np.ones(2, "f4"), MASKED]):
            with pytest.raises(SpaceMismatchError, match="masked values cannot be sent"):
                box.write_all(batch)
        assert not box.write_list([np.ones(2, "f4"), MASKED])
        assert not number.write_list([1, np.ma.masked])
        with pytest.raises(SpaceMismatchError, match="masked values cannot be sent"):
            number.write_all([1, np.ma.masked])

    def test_an_array_that_masks_nothing_is_an_array(self):
        writer, reader, _ = made(Box(-9, 9, (2,)))
        writer.write(0, np.ma.array([1.0, 2.0], "f4"))
        assert reader.row(0).tolist() == [1, 2]
