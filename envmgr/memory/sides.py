"""Values beside the rows: copies of them, and values that travelled without shared memory.

A row takes a copy by itself; a value that has none (a text, a graph, what a user's own space holds) is
the env's own object, which it may write into again. So it is copied where it is taken from an env or given
to one, and each time it is handed to the caller.

Deeply copied rather than pickled and read again: what a process manager could not send (a local class, a
lambda) is still good in `base`, which needs neither names that can be imported nor a second process.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.memory.layout import Layout

_FIXED = frozenset({str, bytes, int, float, complex, bool, type(None)})


def own_copy(value: Any) -> Any:
    """A value that shares nothing with this one that could be changed.

    What cannot be copied (a lock, a socket) is handed over as it is: a process manager says that it cannot
    be sent, and in `base` it is of use to somebody.
    """
    kind = type(value)
    if kind in _FIXED:
        return value
    if kind is np.ndarray and not value.dtype.hasobject:
        return value.copy("K")
    try:
        return copy.deepcopy(value)
    except Exception:  # the user's objects are copied by their own code
        return value


def own_copies(values: Sequence[Any]) -> list[Any]:
    """``own_copy`` of each."""
    return [own_copy(value) for value in values]


def sent_values(
    layout: Layout, rows: Sequence[NDArray[Any]], i: int, side: Sequence[Any] | None
) -> list[Any]:
    """What travels of a value whose rows the receiver cannot see: every leaf, in the order of the layout.

    Args:
        layout: The structure of the value.
        rows: One array per leaf that has rows, the value in row i.
        i: The row. Views of it are given, so it has to be pickled before it is written again.
        side: The values of the leaves that have no rows.
    """
    of_rows, beside = iter(rows), iter(side or ())
    return [next(beside) if leaf.kind == "side" else next(of_rows)[i, ...] for leaf in layout.leaves]


def take_sent(
    layout: Layout, rows: Sequence[NDArray[Any]], i: int, values: Sequence[Any]
) -> list[Any] | None:
    """Takes what ``sent_values`` gave into the receiver's own rows.

    Returns:
        The values of the leaves that have no rows; None where the layout has no such leaves.
    """
    of_rows = iter(rows)
    beside: list[Any] = []
    for leaf, value in zip(layout.leaves, values, strict=True):
        if leaf.kind == "side":
            beside.append(value)
        else:
            next(of_rows)[i, ...] = value
    return beside or None
