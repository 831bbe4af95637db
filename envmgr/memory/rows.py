"""Values into rows and back, through a layout.

``write`` runs for every env-step, so it is built once per layout as plain closures: a lone array
whose dtype and shape are right costs one comparison of each and one assignment (some 300 ns);
everything else takes the careful way through ``casts``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.errors import SpaceMismatchError
from envmgr.memory.casts import fit, to_numpy
from envmgr.memory.layout import Layout, Leaf, Tree

_Write = Callable[[int, Any, list[Any]], None]


def rows_for(
    layout: Layout, n: int, allocate: Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]
) -> list[NDArray[Any]]:
    """One array of shape (n, *leaf shape) per leaf that has rows."""
    return [allocate((n, *leaf.shape), leaf.dtype) for leaf in layout.row_leaves]


class RowWriter:
    """Writes values into rows.

    Args:
        layout: The structure of a value.
        rows: One array per leaf that has rows.
        what: What a value is, for messages.
        n: How many envs there are, where no leaf has rows.

    Attributes:
        write: ``write(i, value)`` writes one value into row i and returns the values of the leaves that have
            no rows (None where there are none). Raises SpaceMismatchError.
        write_all: ``write_all(values)`` writes a batch into all rows; returns as ``write_many``.
    """

    def __init__(
        self, layout: Layout, rows: Sequence[NDArray[Any]], what: str = "observation", n: int = 0
    ) -> None:
        self._layout = layout
        self._rows = list(rows)
        self._n = len(rows[0]) if rows else n
        self._what = what
        self._warned: set[str] = set()
        self._row_index = _row_indices(layout)
        write = self._build(layout.tree)
        has_side = layout.has_side

        def general(i: int, value: Any) -> list[Any] | None:
            side: list[Any] = []
            write(i, value, side)
            return side if has_side else None

        self.write: Callable[[int, Any], list[Any] | None] = general
        self.write_all: Callable[[Any], list[list[Any]] | None] = self._general_all
        if layout.tree == 0 and layout.leaves[0].kind != "side":
            self.write = self._lone(layout.leaves[0])
            self.write_all = self._lone_all(layout.leaves[0])

    def _where(self, leaf: Leaf) -> str:
        return f"{self._what} {leaf.name}".rstrip()

    def _lone(self, leaf: Leaf) -> Callable[[int, Any], None]:
        rows, dtype, shape, array_type = self._rows[0], _canonical(leaf.dtype), leaf.shape, np.ndarray
        slow = self._leaf_writer(0)
        no_side: list[Any] = []

        def write(i: int, value: Any) -> None:
            if type(value) is array_type and value.dtype is dtype and value.shape == shape:
                rows[i] = value
            else:
                slow(i, value, no_side)

        return write

    def _general_all(self, values: Any) -> list[list[Any]] | None:
        return self.write_many(values, slice(0, self._n))

    def _lone_all(self, leaf: Leaf) -> Callable[[Any], None]:
        rows, dtype, array_type = self._rows[0], _canonical(leaf.dtype), np.ndarray
        shape = rows.shape

        def write(values: Any) -> None:
            if type(values) is array_type and values.dtype is dtype and values.shape == shape:
                rows[...] = values
            else:
                self._general_all(values)

        return write

    def _build(self, tree: Tree) -> _Write:
        if isinstance(tree, int):
            return self._leaf_writer(tree)
        kind, children = tree
        if kind == "dict":
            return self._dict_writer({key: self._build(child) for key, child in children.items()})
        return self._tuple_writer([self._build(child) for child in children])

    def _leaf_writer(self, index: int) -> _Write:
        leaf = self._layout.leaves[index]
        if leaf.kind == "side":
            return lambda _i, value, side: side.append(value)
        rows, shape, kind = self._rows[self._row_index[index]], leaf.shape, leaf.kind
        dtype = _canonical(leaf.dtype)
        where, warned, array_type = self._where(leaf), self._warned, np.ndarray
        scalar_int = kind == "discrete" and dtype == np.int64

        def write(i: int, value: Any, _side: list[Any]) -> None:
            if type(value) is array_type and value.dtype is dtype and value.shape == shape:
                rows[i] = value
            elif scalar_int and (value.__class__ is int or value.__class__ is np.int64):
                try:
                    rows[i] = value
                except OverflowError:
                    fit(value, dtype, shape, where, warned, kind)
            else:
                rows[i] = fit(value, dtype, shape, where, warned, kind)

        return write

    def _dict_writer(self, writers: dict[Any, _Write]) -> _Write:
        items, count, what = list(writers.items()), len(writers), self._what

        def write(i: int, value: Any, side: list[Any]) -> None:
            if not isinstance(value, Mapping):
                raise SpaceMismatchError(
                    f"{what}: expected a dict with keys {list(writers)}, got {type(value).__name__}"
                )
            if len(value) != count or any(key not in value for key in writers):
                missing = [key for key in writers if key not in value]
                more = [key for key in value if key not in writers]
                raise SpaceMismatchError(
                    f"{what}: expected a dict with keys {list(writers)}; missing: {missing}, not in the space: {more}"
                )
            for key, child in items:
                child(i, value[key], side)

        return write

    def _tuple_writer(self, writers: list[_Write]) -> _Write:
        what = self._what

        def write(i: int, value: Any, side: list[Any]) -> None:
            if not isinstance(value, list | tuple) or len(value) != len(writers):
                got = f"{type(value).__name__}" + (f" of {len(value)}" if hasattr(value, "__len__") else "")
                raise SpaceMismatchError(f"{what}: expected a tuple of {len(writers)}, got {got}")
            for child, part in zip(writers, value, strict=True):
                child(i, part, side)

        return write

    def write_many(self, values: Any, ids: slice | NDArray[np.int64]) -> list[list[Any]] | None:
        """Writes a batch: a tree of arrays of shape (len(ids), *leaf shape); all or nothing.

        Returns:
            Per env the values of the leaves that have no rows; None where there are none.
        """
        count = len(range(*ids.indices(self._n))) if isinstance(ids, slice) else len(ids)
        ready: list[tuple[NDArray[Any], NDArray[Any]]] = []
        sides: list[list[Any]] = []
        self._batch(self._layout.tree, values, count, ready, sides)
        for rows, array in ready:
            rows[ids] = array
        if not self._layout.has_side:
            return None
        return [list(parts) for parts in zip(*sides, strict=True)]

    def _batch(
        self,
        tree: Tree,
        values: Any,
        count: int,
        ready: list[tuple[NDArray[Any], NDArray[Any]]],
        sides: list[list[Any]],
    ) -> None:
        if not isinstance(tree, int):
            kind, children = tree
            if kind == "dict":
                if not isinstance(values, Mapping) or set(values) != set(children):
                    raise SpaceMismatchError(f"{self._what}: expected a dict of arrays with keys {list(children)}")
                for key, child in children.items():
                    self._batch(child, values[key], count, ready, sides)
            else:
                if not isinstance(values, list | tuple) or len(values) != len(children):
                    raise SpaceMismatchError(f"{self._what}: expected a tuple of {len(children)} arrays")
                for child, part in zip(children, values, strict=True):
                    self._batch(child, part, count, ready, sides)
            return
        leaf = self._layout.leaves[tree]
        if leaf.kind == "side":
            if not hasattr(values, "__len__") or len(values) != count:
                raise SpaceMismatchError(f"{self._where(leaf)}: expected {count} values, one per env")
            sides.append(list(values))
            return
        array = to_numpy(values)
        shape = (count, *leaf.shape)
        if array.shape != shape and leaf.kind == "discrete" and array.shape == (count, 1):
            array = array.reshape(count)
        if array.dtype != leaf.dtype or array.shape != shape:
            array = fit(array, leaf.dtype, shape, self._where(leaf), self._warned)
        ready.append((self._rows[self._row_index[tree]], array))


def _canonical(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The one object that numpy's own arrays of this dtype carry, so that ``is`` finds it."""
    return np.dtype(dtype.type)


def _row_indices(layout: Layout) -> dict[int, int]:
    """Leaf index -> index of its rows."""
    with_rows = [k for k, leaf in enumerate(layout.leaves) if leaf.kind != "side"]
    return {leaf: row for row, leaf in enumerate(with_rows)}


class RowReader:
    """Reads rows back into values.

    Args:
        layout: The structure of a value.
        rows: One array per leaf that has rows.
    """

    def __init__(self, layout: Layout, rows: Sequence[NDArray[Any]]) -> None:
        self._layout = layout
        self._rows = list(rows)
        self._row_index = _row_indices(layout)
        sides = [k for k, leaf in enumerate(layout.leaves) if leaf.kind == "side"]
        self._side_index = {leaf: side for side, leaf in enumerate(sides)}

    def row(self, i: int, side: Sequence[Any] | None = None, copy: bool = True) -> Any:
        """One row as a value with the env's own structure.

        Args:
            i: The row.
            side: The values of the leaves without rows.
            copy: False: read-only views.
        """
        return self._row(self._layout.tree, i, side, copy)

    def _row(self, tree: Tree, i: int, side: Sequence[Any] | None, copy: bool) -> Any:
        if not isinstance(tree, int):
            kind, children = tree
            if kind == "dict":
                return {key: self._row(child, i, side, copy) for key, child in children.items()}
            return tuple(self._row(child, i, side, copy) for child in children)
        leaf = self._layout.leaves[tree]
        if leaf.kind == "side":
            return None if side is None else side[self._side_index[tree]]
        rows = self._rows[self._row_index[tree]]
        if leaf.kind == "discrete" and not leaf.shape:
            return rows[i]
        view = rows[i, ...]
        return view.copy() if copy else _read_only(view)

    def batch(
        self, ids: slice | NDArray[np.int64], copy: bool = True, side: Mapping[int, Sequence[Any]] | None = None
    ) -> Any:
        """Some rows as a tree of arrays of shape (len(ids), *leaf shape), one copy per leaf.

        Args:
            ids: The rows: a slice, or an index array.
            copy: False with a slice: read-only views.
            side: Per row the values of the leaves without rows; they come as object arrays.
        """
        return self._batch(self._layout.tree, ids, copy, side)

    def _batch(self, tree: Tree, ids: Any, copy: bool, side: Mapping[int, Sequence[Any]] | None) -> Any:
        if not isinstance(tree, int):
            kind, children = tree
            if kind == "dict":
                return {key: self._batch(child, ids, copy, side) for key, child in children.items()}
            return tuple(self._batch(child, ids, copy, side) for child in children)
        if self._layout.leaves[tree].kind == "side":
            listed = sorted(side or {}) if isinstance(ids, slice) else ids.tolist()
            if isinstance(ids, slice):
                listed = [i for i in listed if (ids.start or 0) <= i and (ids.stop is None or i < ids.stop)]
            out = np.empty(len(listed), object)
            for k, i in enumerate(listed):
                out[k] = (side or {})[i][self._side_index[tree]]
            return out
        rows = self._rows[self._row_index[tree]]
        if isinstance(ids, slice):
            view = rows[ids]
            return view.copy() if copy else _read_only(view)
        taken = rows[ids]  # an index array copies by itself
        return taken if copy else _read_only(taken)

    def unbatch(self, batch: Any) -> Callable[[int], Any]:
        """k -> row k of a batch, with the env's own structure; views of what the batch holds."""
        return self._unbatch(self._layout.tree, batch)

    def _unbatch(self, tree: Tree, batch: Any) -> Callable[[int], Any]:
        if not isinstance(tree, int):
            kind, children = tree
            if kind == "dict":
                items = [(key, self._unbatch(child, batch[key])) for key, child in children.items()]
                return lambda k: {key: take(k) for key, take in items}
            takes = [self._unbatch(child, part) for child, part in zip(children, batch, strict=True)]
            return lambda k: tuple([take(k) for take in takes])
        leaf = self._layout.leaves[tree]
        if leaf.kind == "side" or leaf.shape or leaf.kind == "discrete":
            get: Callable[[int], Any] = batch.__getitem__
            return get
        return lambda k: batch[k, ...]


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
