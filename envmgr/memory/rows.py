"""Values into rows and back, through a layout: the arrays, their writer and their reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.memory.layout import Layout
from envmgr.memory.reading import RowReader
from envmgr.memory.writing import RowWriter

__all__ = ["RowReader", "RowWriter", "rows_for"]


def rows_for(
    layout: Layout, n: int, allocate: Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]
) -> list[NDArray[Any]]:
    """One array of shape (n, *leaf shape) per leaf that has rows.

    Args:
        layout: The structure of a value.
        n: Number of rows.
        allocate: Makes an array of a shape and a dtype; in native byte order, contiguous.
    """
    return [allocate((n, *leaf.shape), leaf.dtype) for leaf in layout.row_leaves]
