"""Values into rows.

``write`` runs for every env-step, so what it does is chosen once per layout, as closures. A value of
the right dtype and shape is told by three comparisons and stored by one assignment; everything else
takes the careful way through ``casts``. A value of many leaves is checked as a whole before any of it is
stored: where it does not fit, the row is as it was.

Measured for Box(4) float32, checks included: 320 ns with a view per row made beforehand,
``views[i][...] = v``; 500 ns with ``rows[i] = v``, which makes that view each time; 600 with
``np.copyto``, 370 with slices of a memoryview (a second copy, so twice as slow for large rows).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.errors import SpaceMismatchError
from envmgr.memory.casts import fit, to_numpy
from envmgr.memory.layout import Layout, Leaf, row_dtype
from envmgr.memory.nesting import gatherer
from envmgr.memory.sides import own_copy, sent_values
from envmgr.words import brief

_Side = list[Any] | None
_array, _int64 = np.ndarray, np.int64
_ints, _masked = {int, np.int64}, {np.ma.MaskedArray, type(np.ma.masked)}


class RowWriter:
    """Writes values into rows.

    A value that does not fit in structure, shape or dtype raises SpaceMismatchError (without an env_id: the
    caller knows it), and nothing is written. float64 values for a float32 row warn once per writer.

    Args:
        layout: The structure of a value.
        rows: One array of shape (n, *leaf shape) per leaf that has rows.
        what: What a value is, for messages. Values without rows are copied, but for those of an action: they
            are packed at once by who sends them.
        n: How many rows there are, where no leaf has rows.
        dirty: One byte per row, set to 1 before anything is stored in it; who reads the rows sets it back.

    Attributes:
        write: ``write(i, value)`` writes one value into row i and returns the values of the leaves that
            have no rows, in their order; None where the layout has no such leaves. Where rows are not shared,
            what is to be sent: see ``sides``.
        write_all: ``write_all(values)`` writes a batch into all rows; returns as ``write_many``.
    """

    write: Callable[[int, Any], _Side]
    write_all: Callable[[Any], list[list[Any]] | None]

    def __init__(
        self,
        layout: Layout,
        rows: Sequence[NDArray[Any]],
        what: str = "observation",
        n: int = 0,
        dirty: memoryview | None = None,
    ) -> None:
        self._dirty = dirty = dirty if layout.shared else None  # nobody but this side sees other rows
        self._layout = layout
        self._rows = list(rows)
        self._n = len(rows[0]) if rows else n
        self._what = what
        # A policy that computes in float64 is no fault of anybody's: only what envs return is warned of.
        self._warned: set[str] = {what} if what == "action" else set()
        with_rows = [k for k, leaf in enumerate(layout.leaves) if leaf.kind != "side"]
        self._row_of = {leaf: row for row, leaf in enumerate(with_rows)}
        self._gather_batch = gatherer(layout.tree, what, (), batch=True)
        self._lone_rows = self._rows[0] if layout.tree == 0 and not layout.has_side else None
        self.write_all = self._every_row
        self._own = what != "action"
        if layout.tree != 0:
            self.write = self._write_tree()
        elif layout.leaves[0].kind == "side":
            self.write = self._write_side
        else:
            self.write, self.write_all = self._write_lone(), self._write_all_lone()
        if not layout.shared:
            self.write = self._write_sent(self.write)

    def let_go(self) -> None:
        """Gives the rows back now; its functions refer to it, so it would wait for the garbage collector."""
        vars(self).clear()

    def bind(self, i: int) -> Callable[[Any], _Side]:
        """``write`` for one row: a function of the value alone."""
        layout, write = self._layout, self.write
        if layout.tree != 0 or layout.leaves[0].kind != "box" or not layout.shared:
            return lambda value: write(i, value)
        view, dtype, shape, repair = self._rows[0][i, ...], *self._check(0)
        dirty = self._dirty

        def write_one(value: Any) -> None:
            if not (type(value) is _array and value.dtype is dtype and value.shape == shape):
                value = repair(value)
            if dirty is not None:
                dirty[i] = 1
            view[...] = value

        return write_one

    def write_list(self, values: Sequence[Any]) -> bool:
        """Writes a value into each row, where all of them are plain; False, and nothing written, where not.

        Plain are values that make one array of the rows' own dtype and shape: nothing has to be looked at.
        """
        rows = self._lone_rows
        if rows is None:
            return False
        # numpy would drop masks; beside an int, np.ma.masked becomes a float, which is told by its dtype.
        if type(values[0]) not in _ints and not _masked.isdisjoint(map(type, values)):
            return False
        try:
            array = np.array(values)
        except Exception:  # ragged, or strange: the careful way says what is wrong
            return False
        if array.dtype != rows.dtype or array.shape != rows.shape:
            return False
        rows[...] = array
        return True

    def lone_rows(
        self, ids: Sequence[int]
    ) -> tuple[np.dtype[Any], tuple[int, ...], list[NDArray[Any]]] | None:
        """For loops that store (and mark) lone boxes by themselves: a value's dtype and shape, and each row.

        None for every other layout: there ``write`` or ``bind`` is to be used.
        """
        layout = self._layout
        lone = layout.tree == 0 and layout.leaves[0].kind == "box" and layout.shared
        if not lone:
            return None
        dtype, shape, _ = self._check(0)
        return dtype, shape, [self._rows[0][i, ...] for i in ids]

    def write_many(self, values: Any, ids: slice | NDArray[np.int64]) -> list[list[Any]] | None:
        """Writes a batch into some rows, all of it or nothing.

        Args:
            values: A tree of arrays (or lists) of shape (len(ids), *leaf shape); for a discrete leaf
                (len(ids), 1) too; for a leaf without rows any sequence of len(ids) values. A tuple is a tuple
                here: in a list or an array, members and envs could be taken for each other.
            ids: The rows: a slice, or an index array.

        Returns:
            Per row the values of the leaves that have no rows; None where the layout has no such leaves.

        Raises:
            SpaceMismatchError: The structure, a length, a shape or a dtype does not fit.
        """
        count = len(range(*ids.indices(self._n))) if isinstance(ids, slice) else len(ids)
        parts: list[Any] = []
        self._gather_batch(values, parts)
        sides: list[Sequence[Any]] = []
        stores: list[tuple[NDArray[Any], NDArray[Any]]] = []
        for k, (leaf, part) in enumerate(zip(self._layout.leaves, parts, strict=True)):
            if leaf.kind == "side":
                sides.append(self._side_values(leaf, part, count))
            else:
                stores.append((self._rows[self._row_of[k]], self._batch_of(leaf, part, count)))
        for rows, array in stores:
            rows[ids] = array
        if not self._layout.has_side:
            return None
        return [list(of_one) for of_one in zip(*sides, strict=True)]

    # -- one value ------------------------------------------------------------------------------------

    def _where(self, leaf: Leaf) -> str:
        return f"{self._what}{leaf.name}"

    def _check(self, k: int) -> tuple[np.dtype[Any], tuple[int, ...], Callable[[Any], Any]]:
        """What a value of leaf k should be, and what makes it so (or raises)."""
        leaf, warned = self._layout.leaves[k], self._warned
        dtype, shape, kind, where = (
            row_dtype(leaf.dtype) or leaf.dtype,
            leaf.shape,
            leaf.kind,
            self._where(leaf),
        )
        number = kind == "discrete" and dtype == _int64

        def repair(value: Any) -> Any:
            if number and (type(value) is _int64 or (type(value) is int and -(2**63) <= value < 2**63)):
                return value
            _refuse_masked(value, where)
            return fit(value, dtype, shape, where, warned, kind)

        return dtype, shape, repair

    def _write_side(self, _i: int, value: Any) -> _Side:
        return [own_copy(value) if self._own else value]

    def _write_sent(self, write: Callable[[int, Any], _Side]) -> Callable[[int, Any], _Side]:
        """Writes into this side's own rows, for the checks and casts, and returns what is in them."""
        layout, rows = self._layout, self._rows

        def write_sent(i: int, value: Any) -> _Side:
            return sent_values(layout, rows, i, write(i, value))

        return write_sent

    def _write_lone(self) -> Callable[[int, Any], None]:
        rows, leaf, (dtype, shape, repair) = self._rows[0], self._layout.leaves[0], self._check(0)
        dirty = self._dirty
        if leaf.kind == "discrete" and shape == () and dtype == _int64:
            cells: Any = rows.data  # its items are quicker than numpy's

            def write_number(i: int, value: Any) -> None:
                if not (type(value) is _int64 or (type(value) is int and -(2**63) <= value < 2**63)):
                    value = int(repair(value))
                if dirty is not None:
                    dirty[i] = 1
                cells[i] = value

            return write_number

        views: dict[int, NDArray[Any]] = {}  # made as they are needed: a worker writes few of all rows

        def write(i: int, value: Any) -> None:
            if not (type(value) is _array and value.dtype is dtype and value.shape == shape):
                value = repair(value)
            try:
                view = views[i]
            except KeyError:
                view = views[i] = rows[i, ...]
            if dirty is not None:
                dirty[i] = 1
            view[...] = value

        return write

    def _write_tree(self) -> Callable[[int, Any], _Side]:
        gather = gatherer(self._layout.tree, self._what, ())
        side_at = [k for k, leaf in enumerate(self._layout.leaves) if leaf.kind == "side"]
        row_at = list(self._row_of)
        checks = [(row, *self._check(k)) for row, k in enumerate(row_at)]
        rows, dirty, own = self._rows, self._dirty, self._own
        views_of: dict[int, list[NDArray[Any]]] = {}

        def write(i: int, value: Any) -> _Side:
            parts: list[Any] = []
            gather(value, parts)
            side = None
            if side_at:
                side = [own_copy(parts[k]) for k in side_at] if own else [parts[k] for k in side_at]
                parts = [parts[k] for k in row_at]
            for k, dtype, shape, repair in checks:
                part = parts[k]
                if not (type(part) is _array and part.dtype is dtype and part.shape == shape):
                    parts[k] = repair(part)
            try:
                views = views_of[i]
            except KeyError:
                views = views_of[i] = [array[i, ...] for array in rows]
            if dirty is not None:
                dirty[i] = 1
            for view, part in zip(views, parts):  # noqa: B905 - equal by what gather checked, and hot
                view[...] = part
            return side

        return write

    # -- batches --------------------------------------------------------------------------------------

    def _every_row(self, values: Any) -> list[list[Any]] | None:
        return self.write_many(values, slice(0, self._n))

    def _write_all_lone(self) -> Callable[[Any], list[list[Any]] | None]:
        rows, dtype, careful = self._rows[0], self._check(0)[0], self._every_row
        shape = rows.shape

        def write_all(values: Any) -> list[list[Any]] | None:
            if type(values) is _array and values.dtype is dtype and values.shape == shape:
                rows[...] = values
                return None
            return careful(values)

        return write_all

    def _batch_of(self, leaf: Leaf, values: Any, count: int) -> NDArray[Any]:
        where, shape = f"batch of {self._where(leaf)}", (count, *leaf.shape)
        if type(values) is _array and values.dtype == leaf.dtype and values.shape == shape:
            return values
        if isinstance(values, list | tuple):
            if not count and not values:
                return np.empty(shape, leaf.dtype)
            for value in values:
                _refuse_masked(value, where)
        _refuse_masked(values, where)
        if leaf.kind == "discrete":
            array = to_numpy(values, where)
            if array.shape == (*shape, 1):
                values = array.reshape(shape)
        return fit(values, leaf.dtype, shape, where, self._warned)

    def _side_values(self, leaf: Leaf, values: Any, count: int) -> Sequence[Any]:
        if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
            raise SpaceMismatchError(
                f"{self._where(leaf)}: expected {count} values, one per env, got {brief(values)}"
            )
        if len(values) != count:
            raise SpaceMismatchError(
                f"{self._where(leaf)}: expected {count} values, one per env, got {len(values)}"
            )
        return list(values)


def _refuse_masked(value: Any, where: str) -> None:
    """A row has no place for a mask, and what is under it is not meant to be seen."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise SpaceMismatchError(
            f"{where}: masked values cannot be sent, got a {type(value).__name__}; fill them first "
            "(filled()), or send the mask as a leaf of its own"
        )
