"""Rows into values, of the structure that the env gave them: one row, a batch, one row of a batch.

Discrete rows read as numpy integers, boxes of shape () as arrays of that shape, all else as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.memory.layout import Layout, Tree

_ReadRow = Callable[[int, Sequence[Any] | None], Any]


class RowReader:
    """Reads rows back into values.

    Args:
        layout: The structure of a value.
        rows: One array of shape (n, *leaf shape) per leaf that has rows.

    Attributes:
        copy_all: All rows as a tree of arrays, copied; leaves without rows come as None.
        view_all: The same as read-only views.
    """

    copy_all: Callable[[], Any]
    view_all: Callable[[], Any]

    def __init__(self, layout: Layout, rows: Sequence[NDArray[Any]]) -> None:
        self._layout = layout
        self._rows = list(rows)
        self._frozen = [_read_only(array) for array in rows]
        with_rows = [k for k, leaf in enumerate(layout.leaves) if leaf.kind != "side"]
        without = [k for k, leaf in enumerate(layout.leaves) if leaf.kind == "side"]
        self._row_of = {leaf: row for row, leaf in enumerate(with_rows)}
        self._side_of = {leaf: side for side, leaf in enumerate(without)}
        self._copied = self._row_reader(layout.tree, True)
        self._viewed = self._row_reader(layout.tree, False)
        self.copy_all = self._all_reader(layout.tree, True)
        self.view_all = self._all_reader(layout.tree, False)

    def row(self, i: int, side: Sequence[Any] | None = None, copy: bool = True) -> Any:
        """One row as a value with the env's own structure.

        Args:
            i: The row.
            side: The values of the leaves without rows, in their order; None there when it is None.
            copy: False: read-only views.
        """
        return self._copied(i, side) if copy else self._viewed(i, side)

    def batch(
        self,
        ids: slice | NDArray[np.int64],
        copy: bool = True,
        side: Mapping[int, Sequence[Any]] | None = None,
    ) -> Any:
        """Some rows as a tree of arrays of shape (len(ids), *leaf shape), with one copy per leaf.

        Args:
            ids: The rows: a slice, or an index array.
            copy: False: nothing can be written to what is returned; with a slice it is views of the rows.
            side: Per row the values of the leaves without rows. Each such leaf comes as an object array
                of shape (len(ids),), with None where ``side`` has nothing. (Where no leaf has rows and the
                slice has no end, ids are those that ``side`` has.)
        """
        return self._batch(self._layout.tree, ids, copy, side or {})

    def unbatch(self, batch: Any) -> Callable[[int], Any]:
        """``k -> value`` for a batch: its row k, of views of what the batch holds."""
        return self._unbatch(self._layout.tree, batch)

    # -- one row --------------------------------------------------------------------------------------

    def _row_reader(self, tree: Tree, copy: bool) -> _ReadRow:
        if isinstance(tree, int):
            return self._leaf_reader(tree, copy)
        kind, children = tree
        if kind == "dict":
            items = [(key, self._row_reader(child, copy)) for key, child in children.items()]
            return lambda i, side: {key: read(i, side) for key, read in items}
        reads = [self._row_reader(child, copy) for child in children]
        return lambda i, side: tuple([read(i, side) for read in reads])

    def _leaf_reader(self, k: int, copy: bool) -> _ReadRow:
        leaf = self._layout.leaves[k]
        if leaf.kind == "side":
            at = self._side_of[k]
            return lambda _i, side: None if side is None else side[at]
        rows, frozen = self._rows[self._row_of[k]], self._frozen[self._row_of[k]]
        if leaf.kind == "discrete" and not leaf.shape:
            return lambda i, _side: rows[i]
        if copy:
            return lambda i, _side: rows[i, ...].copy()
        return lambda i, _side: frozen[i, ...]

    # -- batches --------------------------------------------------------------------------------------

    def _all_reader(self, tree: Tree, copy: bool) -> Callable[[], Any]:
        if not isinstance(tree, int):
            kind, children = tree
            if kind == "dict":
                items = [(key, self._all_reader(child, copy)) for key, child in children.items()]
                return lambda: {key: read() for key, read in items}
            reads = [self._all_reader(child, copy) for child in children]
            return lambda: tuple([read() for read in reads])
        if self._layout.leaves[tree].kind == "side":
            return lambda: None
        row = self._row_of[tree]
        read_lone: Callable[[], Any] = self._rows[row].copy if copy else self._frozen[row].view
        return read_lone

    def _batch(self, tree: Tree, ids: Any, copy: bool, side: Mapping[int, Sequence[Any]]) -> Any:
        if not isinstance(tree, int):
            kind, children = tree
            if kind == "dict":
                return {key: self._batch(child, ids, copy, side) for key, child in children.items()}
            return tuple([self._batch(child, ids, copy, side) for child in children])
        if self._layout.leaves[tree].kind == "side":
            return self._side_batch(self._side_of[tree], ids, side)
        row = self._row_of[tree]
        if isinstance(ids, slice):
            return self._rows[row][ids].copy() if copy else self._frozen[row][ids]
        rows = self._rows[row]
        # An index array copies by itself; ``take`` is the quicker way to it but for single numbers.
        taken: NDArray[Any] = rows.take(ids, 0) if rows.ndim > 1 else rows[ids]
        return taken if copy else _read_only(taken)

    def _side_batch(self, at: int, ids: Any, side: Mapping[int, Sequence[Any]]) -> NDArray[Any]:
        if not isinstance(ids, slice):
            listed = ids.tolist()
        elif self._rows:
            listed = range(*ids.indices(len(self._rows[0])))
        elif ids.stop is not None:  # no rows to count, so what is asked for is what there is
            listed = range(ids.start or 0, ids.stop, ids.step or 1)
        else:
            listed = sorted(i for i in side if i in range(*ids.indices(max(side, default=-1) + 1)))
        out = np.empty(len(listed), object)
        for k, i in enumerate(listed):
            out[k] = side[i][at] if i in side else None
        return out

    def _unbatch(self, tree: Tree, batch: Any) -> Callable[[int], Any]:
        if not isinstance(tree, int):
            kind, children = tree
            if kind == "dict":
                items = [(key, self._unbatch(child, batch[key])) for key, child in children.items()]
                return lambda k: {key: take(k) for key, take in items}
            takes = [self._unbatch(child, part) for child, part in zip(children, batch, strict=True)]
            return lambda k: tuple([take(k) for take in takes])
        leaf = self._layout.leaves[tree]
        if leaf.shape or leaf.kind in ("side", "discrete"):
            get: Callable[[int], Any] = batch.__getitem__
            return get
        return lambda k: batch[k, ...]


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
