"""ShmBuffer and ShmBufferContainer across processes and past their own end (test_memory_buffer: in one)."""

import gc
import multiprocessing
import os
import signal

import numpy as np
import pytest

from envmgr import ShmBuffer, ShmBufferContainer
from envmgr.errors import SpaceMismatchError

START_METHODS = ("fork", "spawn", "forkserver")
BIG = (4096, 1024)  # 32 MB of float64: a fill takes so long that a kill hits one


def run(method, target, *args):
    process = multiprocessing.get_context(method).Process(target=target, args=args)
    process.start()
    process.join(40)
    code = process.exitcode
    process.close()
    return code


def fill(buffer, value):
    buffer.fill(value)


def fill_for_ever(buffer, writer):
    ones, twos = np.ones(BIG), np.full(BIG, 2.0)
    os.write(writer.fileno(), b"x")
    while True:
        buffer.fill(ones)
        buffer.fill(twos)


def copy_over(buffers, more):
    """Reads what the parent wrote, and writes it elsewhere; the same buffer twice is one buffer."""
    source, target = buffers
    assert more["again"] is source
    assert not target.copy_on_get
    target.fill(source.get())
    more["container"].fill({"k": source.get()[0], "img": [[True, False]]})


def hand_on(method, buffer):
    raise SystemExit(run(method, fill, buffer, [5, 6]))


@pytest.mark.case("O15")
@pytest.mark.parametrize("method", START_METHODS)
def test_a_writer_killed_in_the_middle_of_a_big_fill_locks_nobody_out(method):
    buffer = ShmBuffer("f8", BIG, copy_on_get=False)
    context = multiprocessing.get_context(method)
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=fill_for_ever, args=(buffer, writer))
    child.start()
    seen = buffer.get()
    assert os.read(reader.fileno(), 1) == b"x"
    while not seen[-1, -1]:  # until the first fill is through: the loop does little but fill from now on
        pass
    os.kill(child.pid, signal.SIGKILL)
    child.join(20)
    assert child.exitcode == -signal.SIGKILL
    assert set(np.unique(seen)) <= {1.0, 2.0}, "torn it may be, but nothing else"
    buffer.fill(np.full(BIG, 3.0))
    assert (seen == 3).all()
    small = np.zeros(BIG, "u1")
    assert run(method, fill, buffer, small) == 0
    assert not seen.any()
    child.close()
    reader.close()
    writer.close()


@pytest.mark.case("O06")
@pytest.mark.parametrize("method", START_METHODS)
def test_several_in_one_child_nested_in_its_arguments(method):
    source, target = ShmBuffer("i4", 2), ShmBuffer("i4", 2, copy_on_get=False)
    container = ShmBufferContainer({"img": bool, "k": "f2"}, {"img": (1, 2), "k": ()})
    source.fill([7, 8])
    assert run(method, copy_over, [source, target], {"again": source, "container": container}) == 0
    assert target.get().tolist() == [7, 8]
    got = container.get()
    assert got["img"].tolist() == [[True, False]]
    assert got["k"] == 7


@pytest.mark.parametrize("method", START_METHODS)
def test_a_child_hands_it_on_to_its_own(method):
    buffer = ShmBuffer("u1", 2)
    assert run(method, hand_on, "fork", buffer) == 0
    assert buffer.get().tolist() == [5, 6]


@pytest.mark.parametrize("copy", [True, False])
def test_what_the_caller_holds_stays_readable_after_all_is_gone(copy):
    buffer = ShmBuffer("f4", (1000, 100), copy_on_get=copy)
    container = ShmBufferContainer("f4", {"a": (1000, 100), "b": {"c": ()}}, copy_on_get=copy)
    value = np.random.default_rng(0).random((1000, 100), "f4")
    buffer.fill(value)
    container.fill({"a": value, "b": {"c": 3}})
    array, arrays = buffer.get(), container.get()
    del buffer, container
    gc.collect()
    others = [ShmBuffer("f4", (1000, 100)) for _ in range(4)]  # would take the place of what was unmapped
    assert np.array_equal(array, value)
    assert np.array_equal(arrays["a"], value)
    assert arrays["b"]["c"] == 3
    assert not any(other.get().any() for other in others)


@pytest.mark.case("S04")
def test_memory_goes_with_the_last_array():
    def mappings():
        gc.collect()
        with open("/proc/self/maps") as maps:
            return sum("memfd:envmgr" in line for line in maps)

    before = mappings()
    buffer = ShmBuffer("f4", 1000, copy_on_get=False)
    view = buffer.get()[10:]
    del buffer
    assert mappings() == before + 1
    del view
    assert mappings() == before


@pytest.mark.case("D11")
def test_odd_arrays_have_the_same_values():
    buffer = ShmBuffer("f4", (2, 3))
    base = np.array([[np.nan, np.inf, -np.inf], [-0.0, 1.5, 3e38]], "f4")
    frozen = base.copy()
    frozen.flags.writeable = False
    for odd in (np.asfortranarray(base), base[::-1, ::-1], base.astype(">f4"), frozen, base.tolist()):
        buffer.fill(odd)
        assert np.array_equal(buffer.get(), np.asarray(odd, "f4"), equal_nan=True)
    assert np.signbit(buffer.get()[1, 0])


def test_filled_from_its_own_view():
    buffer = ShmBuffer("i8", 5, copy_on_get=False)
    buffer.fill(range(5))
    buffer.fill(buffer.get()[::-1])
    assert buffer.get().tolist() == [4, 3, 2, 1, 0]


class TestArguments:
    @pytest.mark.parametrize("shape", [-1, (2, -1)])
    def test_negative_sizes(self, shape):
        with pytest.raises(ValueError, match="negative size"):
            ShmBuffer("f4", shape)

    @pytest.mark.parametrize("shape", [2.5, (2.0,), None, "ab", ((1, 2),)])
    def test_shapes_that_are_none(self, shape):
        with pytest.raises(TypeError):
            ShmBuffer("f4", shape)
        with pytest.raises(TypeError):
            ShmBufferContainer("f4", {"a": shape})

    def test_integers_of_numpy_and_lists_are_shapes(self):
        assert ShmBuffer("f4", np.int64(3)).shape == (3,)
        assert ShmBuffer("f4", [2, np.int32(3)]).shape == (2, 3)

    def test_no_dtype_is_not_some_dtype(self):
        for make in (lambda: ShmBuffer(None, 2), lambda: ShmBufferContainer({"a": None}, {"a": 2})):
            with pytest.raises(TypeError, match="dtype None"):
                make()
        with pytest.raises(TypeError, match="nonsense"):
            ShmBuffer("nonsense", 2)

    def test_a_dict_is_for_the_container(self):
        with pytest.raises(TypeError, match="ShmBufferContainer"):
            ShmBuffer("f4", {"a": 2})

    @pytest.mark.parametrize(
        ("dtype", "shape", "named"),
        [
            ({"a": {"x": "f4"}, "b": "f4"}, {"a": 2, "b": 3}, r"shapes\['a'\]: dtypes for \['x'\]"),
            ({"x": "f4"}, (2,), r"dtypes for \['x'\]"),
            ({"a": {"y": "f4"}}, {"a": {"x": 2}}, r"shapes\['a'\]: \['x', 'y'\]"),
            ({}, {"a": 2}, r"\['a'\]"),
        ],
    )
    def test_dtypes_that_do_not_match_the_shapes(self, dtype, shape, named):
        with pytest.raises(ValueError, match=named):
            ShmBufferContainer(dtype, shape)

    def test_one_dtype_for_a_part_of_the_keys(self):
        got = ShmBufferContainer({"a": "f2", "b": bool}, {"a": {"x": 1, "y": (2, 0)}, "b": ()}).get()
        assert got["a"]["x"].dtype == got["a"]["y"].dtype == np.float16
        assert got["b"].dtype == bool


@pytest.mark.case("O07")
def test_a_container_of_one_array_refuses_what_a_buffer_refuses():
    container = ShmBufferContainer(np.float32, 3)
    for src in (1.0, [1.0], np.ones((3, 1)), {"a": 1}, "abc"):
        with pytest.raises(SpaceMismatchError, match=r"^ShmBufferContainer: .*shape \(3,\)"):
            container.fill(src)
