"""Observations and actions of many steps as one: stacked leaf by leaf, along a new first axis.

Only what a report needs. The arena's own rows are elsewhere; here nothing is known of spaces, so that
values without a fixed layout can be carried too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


def stack(values: Sequence[Any]) -> Any:
    """One tree from many of the same structure, each leaf an array whose first axis counts ``values``.

    Args:
        values: At least one value: an array, a number, a string, anything; or a dict or tuple of such.

    Returns:
        An array, or a dict or tuple of arrays. A leaf whose values do not make an array of numbers or
        text becomes one of objects.
    """
    first = values[0]
    if isinstance(first, dict):
        return {key: stack([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(stack([value[i] for value in values]) for i in range(len(first)))
    try:
        array = np.array(values)
    except (ValueError, TypeError):  # arrays of different shapes
        return _objects(values)
    return _objects(values) if array.dtype.hasobject else array


def row(tree: Any, k: int) -> Any:
    """The k-th of the values that were stacked: a view where the leaf is an array."""
    if isinstance(tree, dict):
        return {key: row(leaf, k) for key, leaf in tree.items()}
    if isinstance(tree, tuple):
        return tuple(row(leaf, k) for leaf in tree)
    return tree[k]


def concatenate(trees: Sequence[Any]) -> Any:
    """Stacked trees one after the other, along their first axis."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: concatenate([tree[key] for tree in trees]) for key in first}
    if isinstance(first, tuple):
        return tuple(concatenate([tree[i] for tree in trees]) for i in range(len(first)))
    try:
        return np.concatenate(trees)
    except (ValueError, TypeError):  # leaves whose shape changes from episode to episode
        return _objects([value for tree in trees for value in tree])


def named_leaves(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Each leaf with its path: ``('obs/img', array)``, or ``('obs', array)`` for a lone leaf."""
    if isinstance(tree, dict):
        for key, leaf in tree.items():
            yield from named_leaves(f"{name}/{key}", leaf)
    elif isinstance(tree, tuple):
        for i, leaf in enumerate(tree):
            yield from named_leaves(f"{name}/{i}", leaf)
    else:
        yield name, tree


def _objects(values: Sequence[Any]) -> Any:
    array = np.empty(len(values), object)
    for i, value in enumerate(values):  # one by one: assigned as a whole, numpy would look inside
        array[i] = value
    return array
