"""Spaces into layouts: which leaves a space has, and which of them fit a row of fixed size.

By structure, so that spaces of gym and of gymnasium (and of others that look the same) are treated
alike and neither is imported. The names of a space's class and of its bases say what it means to be (an
``n`` alone could be anything), its attributes say that it is. A leaf without a fixed dtype and shape
(text, graphs, sequences, a space of the user's own) has no row: its values go by the side channel.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

_NUMBERS = "biufc"


class Leaf(NamedTuple):
    """One leaf of a space.

    Attributes:
        path: Keys and indices from the root.
        dtype: Dtype of a row, in native byte order; object for a leaf without rows.
        shape: Shape of one env's value.
        kind: ``'box'``, ``'discrete'``, ``'multidiscrete'``, ``'multibinary'`` or ``'side'``.
    """

    path: tuple[str | int, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    kind: str

    @property
    def name(self) -> str:
        """The way to this leaf, such as ``['img'][0]``; empty for a lone leaf."""
        return path_name(self.path)


def path_name(path: tuple[str | int, ...]) -> str:
    """A path as one would write it in Python: ``['img'][0]``; empty for the root."""
    return "".join(f"[{key!r}]" for key in path)


Tree = Any
"""``('dict', {key: tree})``, ``('tuple', (tree, ...))``, or the index of a leaf."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The structure of a space: small, comparable, and to be pickled without any library.

    Attributes:
        tree: The nesting; see ``Tree``.
        leaves: Every leaf, depth first, dict keys in the order of the space.
        shared: Whether both sides see the same rows. Where not, each has rows of its own, and every leaf goes
            by the side channel from one to the other.
    """

    tree: Tree
    leaves: tuple[Leaf, ...]
    shared: bool = True

    @property
    def row_leaves(self) -> tuple[Leaf, ...]:
        """The leaves that have rows."""
        return tuple(leaf for leaf in self.leaves if leaf.kind != "side")

    @property
    def side_leaves(self) -> tuple[Leaf, ...]:
        """The leaves that go by the side channel."""
        return tuple(leaf for leaf in self.leaves if leaf.kind == "side" or not self.shared)

    @property
    def has_side(self) -> bool:
        """Whether something of a value goes by the side channel."""
        return not self.shared or any(leaf.kind == "side" for leaf in self.leaves)

    def name(self, leaf: Leaf) -> str:
        """The way to a leaf, such as ``['img'][0]``; empty for a lone leaf."""
        return leaf.name

    def difference(self, other: Layout) -> str | None:
        """Where ``other`` differs and how, in one sentence; None when the same values fit both.

        The order of a dict's keys makes no difference.
        """
        mine = {leaf.path: leaf for leaf in self.leaves}
        theirs = {leaf.path: leaf for leaf in other.leaves}
        for path, leaf in mine.items():
            if path not in theirs:
                return f"it has no leaf {leaf.name or '(a lone one)'}"
            if theirs[path] != leaf:
                got = theirs[path]
                return f"leaf {leaf.name or '(the whole)'} is {_described(got)}, not {_described(leaf)}"
        for path, leaf in theirs.items():
            if path not in mine:
                return f"it has a leaf {leaf.name or '(a lone one)'} more"
        return None if _nesting(self.tree) == _nesting(other.tree) else "it is nested in another way"


def _described(leaf: Leaf) -> str:
    if leaf.kind == "side":
        return "without a fixed shape"
    return f"{leaf.kind} of shape {leaf.shape} and dtype {leaf.dtype}"


def _nesting(tree: Tree) -> Any:
    """The tree without its leaves' indices, which depend on the order of keys."""
    if isinstance(tree, int):
        return None
    kind, children = tree
    if kind == "dict":
        return kind, {key: _nesting(child) for key, child in children.items()}
    return kind, tuple(_nesting(child) for child in children)


def layout_of(space: Any) -> Layout:
    """The layout of a space.

    Args:
        space: A space of gym or gymnasium, anything that looks like one, or None (one leaf without rows).
    """
    leaves: list[Leaf] = []
    tree = _walk(space, (), leaves)
    return Layout(tree, tuple(leaves))


def layout_of_info(element: Any) -> Layout:
    """The layout of an element of the older ``info()`` form: ``.shape`` and ``.value['dtype']``.

    Args:
        element: Its ``shape`` is a tuple, a number, or a (nested) dict of shapes; its ``value`` a dict with a
            ``dtype`` (float32 where there is none), or a dict of such dicts beside a dict of shapes.
    """
    value = getattr(element, "value", None)
    leaves: list[Leaf] = []
    tree = _walk_shapes(element.shape, value, (), leaves, np.dtype(np.float32))
    return Layout(tree, tuple(leaves))


def layout_of_shapes(shape: Any, dtype: Any) -> Layout:
    """The layout of arrays in (nested) dicts.

    Args:
        shape: A shape, a number, or a dict of shapes.
        dtype: One dtype for all, or a dict: by the keys of ``shape``, or one ``dtype`` under that key.

    Raises:
        ValueError: A dict of dtypes does not have the keys of the shapes, or a size is negative.
        TypeError: A size is no whole number; what is given for a dtype is none, or one without a fixed size.
    """
    leaves: list[Leaf] = []
    tree = _walk_shapes(shape, dtype, (), leaves, None)
    return Layout(tree, tuple(leaves))


def row_dtype(dtype: Any) -> np.dtype[Any] | None:
    """A dtype as rows have it, or None when it has no place in a row.

    It is numpy's one object for it, in native byte order: what an array says of itself can then be
    compared by identity. (A dtype that was pickled or given another byte order is equal, not identical.)
    """
    found = np.dtype(dtype)
    return np.dtype(found.newbyteorder("=").str) if found.kind in _NUMBERS else None


def _walk(space: Any, path: tuple[str | int, ...], leaves: list[Leaf]) -> Tree:
    names = {cls.__name__ for cls in type(space).__mro__}
    children = space if type(space) in (dict, tuple, list) else getattr(space, "spaces", None)
    if names & {"Dict", "dict"} and isinstance(children, Mapping):
        return "dict", {key: _walk(child, (*path, key), leaves) for key, child in children.items()}
    if names & {"Tuple", "tuple", "list"} and isinstance(children, list | tuple):
        return "tuple", tuple(_walk(child, (*path, k), leaves) for k, child in enumerate(children))
    leaves.append(_row_leaf(space, names, path) or Leaf(path, np.dtype(object), (), "side"))
    return len(leaves) - 1


def _row_leaf(space: Any, names: set[str], path: tuple[str | int, ...]) -> Leaf | None:
    """The leaf of a space whose values have one dtype and shape; None for any other."""
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    if ("Box" in names or _has_bounds(space, shape)) and shape is not None and dtype is not None:
        kind = "box"
    elif "Discrete" in names and hasattr(space, "n"):
        kind, shape, dtype = "discrete", shape or (), dtype or np.int64
    elif "MultiDiscrete" in names and hasattr(space, "nvec"):
        kind, shape, dtype = "multidiscrete", np.shape(space.nvec), dtype or np.int64
    elif "MultiBinary" in names and hasattr(space, "n"):
        kind, shape, dtype = "multibinary", (space.n if shape is None else shape), dtype or np.int8
    else:
        return None
    of_row = row_dtype(dtype)
    return None if of_row is None else Leaf(path, of_row, _as_shape(shape), kind)


def _has_bounds(space: Any, shape: Any) -> bool:
    """Whether a space of another name is a box nevertheless: it has an array of bounds on either side."""
    return isinstance(shape, tuple) and all(
        isinstance(bound, np.ndarray) and bound.shape == shape
        for bound in (getattr(space, "low", None), getattr(space, "high", None))
    )


def _as_shape(shape: Any) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple | list | np.ndarray) else (shape,)
    return tuple(operator.index(size) for size in sizes)


def _walk_shapes(
    shape: Any, dtype: Any, path: tuple[str | int, ...], leaves: list[Leaf], default: np.dtype[Any] | None
) -> Tree:
    where = f"shapes{path_name(path)}"
    if isinstance(shape, Mapping):
        if isinstance(dtype, Mapping) and (shape or dtype) and set(dtype) != set(shape):
            if "dtype" not in dtype:
                odd = sorted(set(dtype) ^ set(shape), key=str)
                raise ValueError(f"{where}: {odd} has a shape or a dtype, but not both")
            dtype = dict.fromkeys(shape, dtype)
        parts = dtype if isinstance(dtype, Mapping) else dict.fromkeys(shape, dtype)
        return "dict", {
            key: _walk_shapes(part, parts[key], (*path, key), leaves, default) for key, part in shape.items()
        }
    if isinstance(dtype, Mapping):
        if default is None and "dtype" not in dtype:
            raise ValueError(f"{where}: dtypes for {list(dtype)}, but the shape {shape} of one array")
        dtype = dtype.get("dtype")
    if dtype is None:
        dtype = default
    of_row = None if dtype is None else row_dtype(dtype)
    if of_row is None:
        raise TypeError(f"{where}: dtype {dtype!r} has no fixed size in shared memory")
    sizes = _as_shape(shape)
    if any(size < 0 for size in sizes):
        raise ValueError(f"{where}: shape {shape} has a negative size")
    leaves.append(Leaf(path, of_row, sizes, "box"))
    return len(leaves) - 1
