"""One array, or a nested dict of arrays, in memory that processes share.

For whoever moves data between processes by hand; a manager's own rows are laid out by the arena, of
the same parts. A buffer is handed to a child as an argument of its ``Process``, with any start method.
There is no lock, so a process that dies while it writes leaves none behind: who writes when is for
the two sides to agree on, as a reader may otherwise see half of what is being written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.memory.block import SharedBlock
from envmgr.memory.layout import Layout, layout_of_shapes
from envmgr.memory.rows import RowReader, RowWriter, rows_for

_ALIGN = 64  # a cache line: no two arrays share one


class _Shared:
    """What both have: a layout, laid over a block as one row."""

    def __init__(self, layout: Layout, copy_on_get: bool) -> None:
        sizes = [_size(leaf.shape, leaf.dtype) for leaf in layout.leaves]
        block = SharedBlock(sum(sizes), f"a {type(self).__name__}")
        self._lay(layout, copy_on_get, block)

    def _lay(self, layout: Layout, copy_on_get: bool, block: SharedBlock) -> None:
        self.copy_on_get = copy_on_get
        self._layout = layout
        self._block = block
        memory: Any = block.buffer
        at = 0

        def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
            nonlocal at
            array: NDArray[Any] = np.ndarray(shape, dtype, memory, 0 if 0 in shape else at)
            at += _size(shape, dtype)
            return array

        rows = rows_for(layout, 1, allocate)
        self._write = RowWriter(layout, rows, what=type(self).__name__).bind(0)
        self._read = RowReader(layout, rows).row

    def fill(self, src: Any) -> None:
        """Stores a value; a wrong one changes nothing.

        Args:
            src: Of exactly the shape: nothing is broadcast. Lists and numbers are taken as arrays. Another
                dtype is converted where no value changes; float64 into float32 is rounded and warns once.

        Raises:
            SpaceMismatchError: A key, a shape or a dtype does not fit.
        """
        self._write(src)

    def get(self) -> Any:
        """What was stored last (zeros at first): a copy, or read-only views of the shared memory."""
        return self._read(0, None, self.copy_on_get)

    def __getstate__(self) -> tuple[Layout, bool, SharedBlock]:
        return self._layout, self.copy_on_get, self._block

    def __setstate__(self, state: tuple[Layout, bool, SharedBlock]) -> None:
        self._lay(*state)


class ShmBuffer(_Shared):
    """One array in shared memory.

    Args:
        dtype: Dtype as a class, a dtype or a string: a number or bool of fixed size.
        shape: Shape, or a length; ``()`` and zero-sized shapes too.
        copy_on_get: Whether ``get`` returns an array of the caller's own, or a read-only view which changes
            with the next ``fill``.

    Raises:
        ShmError: There is too little memory.
        TypeError: Not a dtype of fixed size, or not a shape.
        ValueError: A negative size.
    """

    def __init__(self, dtype: Any, shape: int | tuple[int, ...], copy_on_get: bool = True) -> None:
        if isinstance(shape, Mapping):
            raise TypeError("a ShmBuffer holds one array: for a dict of shapes there is ShmBufferContainer")
        super().__init__(layout_of_shapes(shape, None if dtype is None else np.dtype(dtype)), copy_on_get)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the array."""
        return self._layout.leaves[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._layout.leaves[0].shape


class ShmBufferContainer(_Shared):
    """Arrays under the keys of a (nested) dict, in one piece of shared memory.

    Args:
        dtype: One dtype for all arrays, or a dict of dtypes with the keys of ``shape``.
        shape: A dict of shapes, nested at will; a plain shape makes it a buffer of one array.
        copy_on_get: As for ``ShmBuffer``.

    Raises:
        ShmError: There is too little memory.
        ValueError: ``dtype`` and ``shape`` have different keys, or a size is negative.
        TypeError: Not a dtype of fixed size, or not a shape.
    """

    def __init__(self, dtype: Any, shape: Any, copy_on_get: bool = True) -> None:
        super().__init__(layout_of_shapes(shape, dtype), copy_on_get)


def _size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return -(-size // _ALIGN) * _ALIGN
