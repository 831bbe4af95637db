"""ShmBuffer and ShmBufferContainer: arrays that are handed from process to process."""

import multiprocessing
import os
import pickle
import signal

import numpy as np
import pytest

from envmgr import ShmBuffer, ShmBufferContainer
from envmgr.errors import EnvManagerWarning, ShmError, SpaceMismatchError

START_METHODS = ("fork", "spawn", "forkserver")
DTYPES = ("bool", "uint8", "int8", "int16", "uint32", "int64", "float16", "float32", "float64")


def fill(buffer, value):
    buffer.fill(value)


def fill_and_die(buffer, value):
    buffer.fill(value)
    os.kill(os.getpid(), signal.SIGKILL)


def run(method, target, *args):
    process = multiprocessing.get_context(method).Process(target=target, args=args)
    process.start()
    process.join(40)
    code = process.exitcode
    process.close()
    return code


class TestBuffer:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3), 4], ids=str)
    def test_every_dtype_and_shape(self, dtype, shape):
        buffer = ShmBuffer(dtype, shape)
        expected_shape = (shape,) if isinstance(shape, int) else shape
        assert (buffer.shape, buffer.dtype) == (expected_shape, np.dtype(dtype))
        assert not buffer.get().any()
        value = np.random.default_rng(0).integers(0, 2, expected_shape).astype(dtype)
        buffer.fill(value)
        got = buffer.get()
        assert isinstance(got, np.ndarray)
        assert got.dtype == np.dtype(dtype)
        assert np.array_equal(got, value)

    @pytest.mark.case("O07")
    def test_dtype_as_class_dtype_or_string(self):
        for dtype in (np.float32, np.dtype("float32"), "float32", "f4", ">f4"):
            assert ShmBuffer(dtype, (2,)).get().dtype is np.dtype(np.float32)
        for dtype in (float, int, bool):
            assert ShmBuffer(dtype, 1).dtype == np.dtype(dtype)

    @pytest.mark.parametrize("dtype", [object, str, "U4", "M8[s]", [("a", "f4")]], ids=str)
    def test_dtypes_without_a_place_in_memory(self, dtype):
        with pytest.raises(TypeError, match="dtype"):
            ShmBuffer(dtype, (2,))

    def test_a_copy_is_the_callers_own(self):
        buffer = ShmBuffer("f4", 2)
        got = buffer.get()
        got[:] = 5
        buffer.fill([1, 2])
        assert got.tolist() == [5, 5]
        assert buffer.get().tolist() == [1, 2]

    def test_a_view_cannot_be_written_to_and_follows(self):
        buffer = ShmBuffer("f4", 2, copy_on_get=False)
        got = buffer.get()
        with pytest.raises(ValueError, match="read-only"):
            got[0] = 1
        buffer.fill([1, 2])
        assert got.tolist() == [1, 2]
        del buffer
        assert got.tolist() == [1, 2]

    @pytest.mark.parametrize(
        "src", [1.0, [1.0], np.ones((1, 2)), np.ones((2, 1)), np.ones((3, 2)), [[1], [2]]]
    )
    @pytest.mark.case("O07")
    def test_nothing_is_broadcast(self, src):
        buffer = ShmBuffer("f4", 2)
        with pytest.raises(SpaceMismatchError, match=r"ShmBuffer: expected shape \(2,\)"):
            buffer.fill(src)
        assert buffer.get().tolist() == [0, 0]

    @pytest.mark.case("O07")
    def test_what_converts_without_loss(self):
        buffer = ShmBuffer("f4", 2)
        for src in ([1, 2], np.array([1, 2]), (1.0, 2.0), np.array([1, 2], ">i2"), np.array([2, 1])[::-1]):
            buffer.fill(src)
            assert buffer.get().tolist() == [1, 2]
        with pytest.raises(SpaceMismatchError, match="16777217"):
            buffer.fill(np.array([2**24 + 1, 0]))
        with pytest.raises(SpaceMismatchError):
            buffer.fill({"a": 1})

    @pytest.mark.case("T01")
    def test_float64_into_float32_warns_once(self):
        buffer = ShmBuffer("f4", 2)
        with pytest.warns(EnvManagerWarning, match="ShmBuffer: float64"):
            buffer.fill(np.full(2, 0.1))
        buffer.fill(np.full(2, 0.2))

    @pytest.mark.parametrize("method", START_METHODS)
    @pytest.mark.case("O06")
    def test_a_child_of_any_start_method(self, method):
        buffer = ShmBuffer("float16", (2, 2))
        value = np.arange(4, dtype="f2").reshape(2, 2)
        assert run(method, fill, buffer, value) == 0
        assert np.array_equal(buffer.get(), value)

    @pytest.mark.case("O15")
    def test_a_dead_writer_leaves_it_usable(self):
        buffer = ShmBuffer("i8", 2)
        assert run("fork", fill_and_die, buffer, [1, 2]) == -signal.SIGKILL
        assert buffer.get().tolist() == [1, 2]
        assert run("fork", fill, buffer, [3, 4]) == 0
        assert buffer.get().tolist() == [3, 4]

    def test_is_not_pickled_otherwise(self):
        with pytest.raises(TypeError, match="process that is being started"):
            pickle.dumps(ShmBuffer("f4", 2))

    def test_too_little_memory(self):
        with pytest.raises(ShmError, match="a ShmBuffer needs"):
            ShmBuffer("f8", (1 << 30, 1 << 18))


SHAPES = {"img": (2, 3), "k": (), "in": {"x": 2, "none": (0, 3)}}
VALUE = {
    "img": np.arange(6, dtype="u1").reshape(2, 3),
    "k": np.array(7, "u1"),
    "in": {"x": np.array([1, 2], "u1"), "none": np.zeros((0, 3), "u1")},
}


def same(one, two):
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    return one.dtype == two.dtype and one.shape == two.shape and bool((one == two).all())


class TestContainer:
    @pytest.mark.parametrize("method", START_METHODS)
    def test_nested(self, method):
        container = ShmBufferContainer(np.uint8, SHAPES)
        assert run(method, fill, container, VALUE) == 0
        assert same(container.get(), VALUE)

    def test_a_dtype_per_key(self):
        dtypes = {"img": "u1", "k": np.int64, "in": {"x": np.float16, "none": bool}}
        got = ShmBufferContainer(dtypes, SHAPES).get()
        assert got["img"].dtype == np.uint8
        assert got["k"].dtype == np.int64
        assert got["in"]["x"].dtype == np.float16
        assert got["in"]["none"].dtype == bool
        for dtypes in ({"img": "u1"}, {"img": "u1", "k": "u1", "in": "u1", "more": "u1"}):
            with pytest.raises(ValueError, match="not both"):
                ShmBufferContainer(dtypes, SHAPES)

    @pytest.mark.case("D12")
    def test_the_order_of_keys_makes_no_difference(self):
        container = ShmBufferContainer("u1", SHAPES)
        container.fill(dict(reversed(list(VALUE.items()))))
        assert same(container.get(), VALUE)

    @pytest.mark.parametrize(
        ("value", "named"),
        [
            ({"img": VALUE["img"], "k": 1}, r"\['in'\] missing"),
            ({**VALUE, "more": 1}, r"\['more'\] not in the space"),
            ({**VALUE, "in": {"x": [1, 2]}}, r"ShmBufferContainer\['in'\].*\['none'\] missing"),
            ({**VALUE, "img": np.zeros((3, 2), "u1")}, r"ShmBufferContainer\['img'\].*\(2, 3\).*\(3, 2\)"),
            ({**VALUE, "k": 300}, r"ShmBufferContainer\['k'\].*300"),
            (VALUE["img"], "expected a dict"),
        ],
        ids=["missing", "extra", "missing-below", "shape", "value", "no-dict"],
    )
    @pytest.mark.case("D12")
    def test_what_does_not_fit_is_named_and_changes_nothing(self, value, named):
        container = ShmBufferContainer("u1", SHAPES)
        container.fill(VALUE)
        if isinstance(value, dict):
            value = {key: part + 1 if key == "img" else part for key, part in value.items()}
        with pytest.raises(SpaceMismatchError, match=named):
            container.fill(value)
        assert same(container.get(), VALUE)

    def test_views(self):
        container = ShmBufferContainer("u1", SHAPES, copy_on_get=False)
        got = container.get()
        container.fill(VALUE)
        assert same(got, VALUE)
        with pytest.raises(ValueError, match="read-only"):
            got["in"]["x"][0] = 1

    def test_a_plain_shape(self):
        container = ShmBufferContainer("f4", (2,))
        container.fill([1, 2])
        assert container.get().tolist() == [1, 2]

    def test_an_empty_dict(self):
        container = ShmBufferContainer("f4", {})
        container.fill({})
        assert container.get() == {}

    def test_arrays_do_not_overlap(self):
        container = ShmBufferContainer({"a": bool, "b": "f8", "c": "i2"}, {"a": 3, "b": (2, 2), "c": ()})
        container.fill({"a": [True] * 3, "b": np.zeros((2, 2)), "c": -1})
        got = container.get()
        assert got["a"].all()
        assert not got["b"].any()
        assert got["c"] == -1
