"""Spaces of gymnasium, of gym and of others into layouts."""

import dataclasses
import pickle
import subprocess
import sys
import types

import numpy as np
import pytest
from gymnasium import spaces

from envmgr.envs import spaces as own_spaces
from envmgr.memory.layout import Leaf, layout_of, layout_of_info, layout_of_shapes
from tests.helpers.ids import stable_repr

Box = spaces.Box


def lone(space):
    layout = layout_of(space)
    assert layout.tree == 0
    (leaf,) = layout.leaves
    return leaf.kind, leaf.dtype, leaf.shape


class MyBox(Box):
    pass


class Own(spaces.Space):
    """A space of the user's own, with a shape and a dtype, and values that need not keep to them."""

    def __init__(self):
        super().__init__((2,), np.float32)


class Bounded:
    """Looks like a box, and is of no library."""

    shape, dtype = (2,), ">f4"
    low, high = np.zeros(2), np.ones(2)


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0), (3, 4)])
@pytest.mark.case("T03")
def test_boxes_of_every_dtype_and_shape(dtype, shape):
    low, high = (0, 1)
    assert lone(Box(low, high, shape, np.dtype(dtype).type)) == ("box", np.dtype(dtype), shape)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(5), ("discrete", np.int64, ())),
        (spaces.Discrete(5, start=-2), ("discrete", np.int64, ())),
        (spaces.MultiDiscrete([3, 4]), ("multidiscrete", np.int64, (2,))),
        (
            spaces.MultiDiscrete(np.array([[3, 4], [5, 6]]), dtype=np.int32),
            ("multidiscrete", np.int32, (2, 2)),
        ),
        (spaces.MultiBinary(3), ("multibinary", np.int8, (3,))),
        (spaces.MultiBinary([2, 3]), ("multibinary", np.int8, (2, 3))),
        (MyBox(0, 1, (2,)), ("box", np.float32, (2,))),
        (own_spaces.Box(0, 1, (2,), np.float64), ("box", np.float64, (2,))),
        (own_spaces.Discrete(4), ("discrete", np.int64, ())),
        (Bounded(), ("box", np.float32, (2,))),
    ],
    ids=stable_repr,
)
def test_leaves_with_rows(space, expected):
    assert lone(space) == expected


NODE = Box(0, 1, (2,))
OF_OBJECTS = Box(0, 1, (2,))
OF_OBJECTS.dtype = np.dtype(object)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Graph(NODE, None),
        spaces.Sequence(NODE),
        spaces.Sequence(NODE, stack=True),
        spaces.OneOf([NODE, spaces.Discrete(2)]),
        Own(),
        None,
        object(),
        types.SimpleNamespace(shape=(2,), dtype=np.float32),
        types.SimpleNamespace(n=3),
        OF_OBJECTS,
    ],
    ids=lambda space: type(space).__name__,
)
@pytest.mark.case("T04", "T07")
def test_leaves_without_rows(space):
    layout = layout_of(space)
    assert layout.tree == 0
    assert layout.has_side
    assert layout.side_leaves == (Leaf((), np.dtype(object), (), "side"),)


NESTED = spaces.Dict(
    {
        "z": spaces.Tuple((Box(0, 255, (2,), np.uint8), spaces.Discrete(3))),
        "a": spaces.Dict({"c": Box(0, 1, (1,)), "t": spaces.Text(3)}),
        "none": spaces.Dict({}),
        "nothing": spaces.Tuple(()),
    }
)


@pytest.mark.case("T02", "T04")
def test_nesting():
    layout = layout_of(NESTED)
    named = {leaf.name: leaf.kind for leaf in layout.leaves}
    assert named == {"['z'][0]": "box", "['z'][1]": "discrete", "['a']['c']": "box", "['a']['t']": "side"}
    assert list(layout.tree[1]) == list(NESTED.spaces), "in the order of the space"
    assert layout.tree[1]["none"] == ("dict", {}) and layout.tree[1]["nothing"] == ("tuple", ())
    assert layout.name(layout.leaves[0]) == layout.leaves[0].name
    assert [leaf.name for leaf in layout.row_leaves] == ["['a']['c']", "['z'][0]", "['z'][1]"]
    assert layout.has_side and not layout_of(spaces.Tuple(())).has_side


def test_plain_dicts_and_tuples_of_spaces():
    assert layout_of({"a": Box(0, 1), "b": (spaces.Discrete(2),)}) == layout_of(
        spaces.Dict({"a": Box(0, 1), "b": spaces.Tuple((spaces.Discrete(2),))})
    )


def test_not_shared():
    shared = layout_of(NESTED)
    layout = dataclasses.replace(shared, shared=False)
    assert layout.row_leaves == shared.row_leaves, "each side has rows of its own"
    assert layout.side_leaves == layout.leaves, "and all of them are sent"
    assert layout.has_side and dataclasses.replace(layout_of(spaces.Discrete(2)), shared=False).has_side


def test_layouts_compare_and_pickle():
    layout = layout_of(NESTED)
    again = pickle.loads(pickle.dumps(layout))
    assert again == layout and layout.difference(again) is None
    assert len(pickle.dumps(layout)) < 1000


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (Box(0, 1, (3,)), r"\(the whole\) is box of shape \(3,\) and dtype float32, not box of shape \(2,\)"),
        (Box(0, 1, (2,), np.float64), "dtype float64, not"),
        (spaces.Discrete(2), "is discrete"),
        (spaces.Text(2), "without a fixed shape"),
        (spaces.Dict({"a": Box(0, 1, (2,))}), "no leaf"),
        (spaces.Tuple(()), "no leaf"),
    ],
    ids=stable_repr,
)
def test_differences_of_a_lone_leaf(other, said):
    import re

    assert re.search(said, layout_of(Box(0, 1, (2,))).difference(layout_of(other)))


def test_differences_of_nesting():
    def dict_of(**kw):
        return layout_of(spaces.Dict(kw))

    one, two = spaces.Discrete(2), Box(0, 1)
    assert dict_of(a=one, b=two).difference(layout_of({"b": two, "a": one})) is None
    assert "['b']" in dict_of(a=one, b=two).difference(dict_of(a=one))
    assert "['b'] more" in dict_of(a=one).difference(dict_of(a=one, b=two))
    assert "nested" in dict_of(a=one, b=spaces.Dict({})).difference(dict_of(a=one))
    assert "nested" in layout_of(spaces.Dict({})).difference(layout_of(spaces.Tuple(())))
    assert "nested" in layout_of({0: one}).difference(layout_of((one,)))


def test_gym_and_gymnasium_are_alike():
    gym = pytest.importorskip("gym")

    def make(s):
        pair = s.Tuple((s.Box(0, 1, (2,)), s.MultiBinary(2)))
        return layout_of(s.Dict({"b": pair, "d": s.MultiDiscrete([2, 3])}))

    assert make(gym.spaces) == make(spaces)
    assert layout_of(gym.spaces.Discrete(3)) == layout_of(spaces.Discrete(3))


def test_no_library_of_envs_is_imported():
    code = (
        "import sys, envmgr.memory.rows, envmgr.memory.shm_buffer;"
        "print([name for name in sys.modules if 'gym' in name])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


class TestInfoForm:
    def element(self, shape, value):
        return types.SimpleNamespace(shape=shape, value=value)

    def test_array(self):
        layout = layout_of_info(self.element((3, 4), {"min": 0, "max": 1, "dtype": np.uint8}))
        assert layout.leaves == (Leaf((), np.dtype("u1"), (3, 4), "box"),)
        assert layout_of_info(self.element(3, {"dtype": float})).leaves[0].shape == (3,)
        assert layout_of_info(self.element((3,), None)).leaves[0].dtype == np.float32

    def test_dict_of_arrays(self):
        shape = {"a": (2,), "b": {"c": 3}}
        one = layout_of_info(self.element(shape, {"min": 0, "dtype": np.float64}))
        each = layout_of_info(self.element(shape, {"a": {"dtype": float}, "b": {"c": {"dtype": float}}}))
        assert one == each
        assert [leaf.name for leaf in one.leaves] == ["['a']", "['b']['c']"]


def test_shapes_and_dtypes_must_have_the_same_keys():
    with pytest.raises(ValueError, match=r"\['c'\].*not both"):
        layout_of_shapes({"a": (2,), "b": {"c": 3}}, {"a": "f4", "b": {}})
    with pytest.raises(ValueError, match="'x'"):
        layout_of_shapes({"a": (2,)}, {"a": "f4", "x": "f4"})
    with pytest.raises(TypeError, match="object"):
        layout_of_shapes((2,), object)
