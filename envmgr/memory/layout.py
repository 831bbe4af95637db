"""Spaces into layouts: which leaves a space has, and which of them fit a row of fixed size.

By structure, so that spaces of gym and of gymnasium (and of others that look the same) are treated
alike and neither is imported. A leaf without a fixed dtype and shape (text, graphs, sequences, a
space of the user's own) has no row: its values go by the side channel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np



class Leaf(NamedTuple):
    """One leaf of a space.

    Attributes:
        path: Keys and indices from the root.
        dtype: Dtype of a row; object for a leaf without rows.
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
        return "".join(f"[{key!r}]" for key in self.path)


Tree = Any
"""``('dict', {key: tree})``, ``('tuple', (tree, ...))``, or the index of a leaf."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The structure of a space: small, comparable, and to be pickled without any library.

    Attributes:
        tree: The nesting; see ``Tree``.
        leaves: Every leaf, depth first, dict keys in the order of the space.
    """

    tree: Tree
    leaves: tuple[Leaf, ...]

    @property
    def row_leaves(self) -> tuple[Leaf, ...]:
        """The leaves that have rows."""
        return tuple(leaf for leaf in self.leaves if leaf.kind != "side")

    @property
    def side_leaves(self) -> tuple[Leaf, ...]:
        """The leaves that go by the side channel."""
        return tuple(leaf for leaf in self.leaves if leaf.kind == "side")

    @property
    def has_side(self) -> bool:
        """Whether some leaf goes by the side channel."""
        return any(leaf.kind == "side" for leaf in self.leaves)

    def difference(self, other: Layout) -> str | None:
        """None when equal, else a sentence: where ``other`` differs and how."""
        mine = {leaf.path: leaf for leaf in self.leaves}
        theirs = {leaf.path: leaf for leaf in other.leaves}
        for path, leaf in mine.items():
            if path not in theirs:
                return f"it has no leaf {leaf.name or '(a lone one)'}"
            if theirs[path] != leaf:
                got = theirs[path]
                return (
                    f"leaf {leaf.name or '(the whole)'} is {got.kind} of shape {got.shape} and dtype {got.dtype}, not "
                    f"{leaf.kind} of shape {leaf.shape} and dtype {leaf.dtype}"
                )
        for path, leaf in theirs.items():
            if path not in mine:
                return f"it has a leaf {leaf.name or '(a lone one)'} more"
        return None if _shape_of(self.tree) == _shape_of(other.tree) else "it is nested in another way"


def _shape_of(tree: Tree) -> Any:
    """The nesting alone, whatever the order of keys."""
    if isinstance(tree, int):
        return None
    kind, children = tree
    if kind == "dict":
        return kind, {key: _shape_of(child) for key, child in children.items()}
    return kind, tuple(_shape_of(child) for child in children)


def layout_of(space: Any, *, shared: bool = True) -> Layout:
    """The layout of a space.

    Args:
        space: A space of gym or gymnasium, anything that looks like one, or None (one leaf without rows).
        shared: False: no leaf has rows.
    """
    leaves: list[Leaf] = []
    tree = _walk(space, (), leaves, shared)
    return Layout(tree, tuple(leaves))


def _walk(space: Any, path: tuple[str | int, ...], leaves: list[Leaf], shared: bool) -> Tree:
    names = {cls.__name__ for cls in type(space).__mro__}
    children = getattr(space, "spaces", None)
    if "Dict" in names and isinstance(children, Mapping):
        return "dict", {key: _walk(child, (*path, key), leaves, shared) for key, child in children.items()}
    if "Tuple" in names and isinstance(children, list | tuple):
        return "tuple", tuple(_walk(child, (*path, k), leaves, shared) for k, child in enumerate(children))
    leaves.append(_leaf(space, names, path) if shared else _side(path))
    return len(leaves) - 1


def _side(path: tuple[str | int, ...]) -> Leaf:
    return Leaf(path, np.dtype(object), (), "side")


def _leaf(space: Any, names: set[str], path: tuple[str | int, ...]) -> Leaf:
    for name, marks, kind in (
        ("Box", ("low", "high", "shape", "dtype"), "box"),
        ("Discrete", ("n",), "discrete"),
        ("MultiDiscrete", ("nvec",), "multidiscrete"),
        ("MultiBinary", ("n",), "multibinary"),
    ):
        if name in names and all(hasattr(space, mark) for mark in marks):
            dtype = getattr(space, "dtype", None)
            dtype = np.dtype(np.int64 if dtype is None else dtype)
            if dtype.kind not in "biufc":
                return _side(path)
            shape = getattr(space, "shape", None)
            if shape is None:
                shape = np.shape(space.nvec) if kind == "multidiscrete" else ()
            return Leaf(path, dtype.newbyteorder("="), tuple(int(n) for n in shape), kind)
    return _side(path)
