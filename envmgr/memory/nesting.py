"""Values of nested spaces into their leaves: dicts and tuples are checked and taken apart.

Built once per layout, as one closure per dict or tuple; a leaf costs one append.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envmgr.errors import SpaceMismatchError
from envmgr.memory.layout import Tree, path_name
from envmgr.words import brief

Gather = Callable[[Any, list[Any]], None]
"""Checks the nesting of a value and appends its leaves to a list, in the order of the layout."""

_array = np.ndarray


def gatherer(tree: Tree, what: str, path: tuple[str | int, ...], batch: bool = False) -> Gather:
    """What takes values of this nesting apart.

    Args:
        tree: The nesting, as a layout has it.
        what: What a value is, for messages.
        path: Where in it the tree is.
        batch: Whether the values are batches, where a tuple has to be a tuple: in a list or an array, its
            members and the envs could be taken for each other.
    """
    if isinstance(tree, int):
        return lambda value, out: out.append(value)
    kind, children = tree
    where = what + path_name(path)
    if kind == "dict":
        return _dict_gatherer(
            {key: _below(child, what, (*path, key), batch) for key, child in children.items()}, where
        )
    parts = [_below(child, what, (*path, k), batch) for k, child in enumerate(children)]
    return _tuple_gatherer(parts, where, batch)


def _below(tree: Tree, what: str, path: tuple[str | int, ...], batch: bool) -> Gather | None:
    return None if isinstance(tree, int) else gatherer(tree, what, path, batch)


def _dict_gatherer(children: dict[Any, Gather | None], where: str) -> Gather:
    items, count = list(children.items()), len(children)

    def gather(value: Any, out: list[Any]) -> None:
        if type(value) is not dict:  # a subclass may invent what is not there
            if not isinstance(value, Mapping):
                raise SpaceMismatchError(
                    f"{where}: expected a dict with keys {list(children)}, got {brief(value)}"
                )
            value = {key: value[key] for key in value}
        if len(value) != count:
            raise _keys_differ(children, value, where)
        try:
            for key, child in items:
                part = value[key]
                if child is None:
                    out.append(part)
                else:
                    child(part, out)
        except KeyError:
            raise _keys_differ(children, value, where) from None

    return gather


def _keys_differ(children: Mapping[Any, Any], value: Mapping[Any, Any], where: str) -> SpaceMismatchError:
    missing = [key for key in children if key not in value]
    extra = [key for key in value if key not in children]
    found = [f"{missing} missing"] if missing else []
    found += [f"{extra} not in the space"] if extra else []
    return SpaceMismatchError(f"{where}: expected a dict with keys {list(children)}: {', '.join(found)}")


def _tuple_gatherer(children: list[Gather | None], where: str, batch: bool) -> Gather:
    count = len(children)

    def gather(value: Any, out: list[Any]) -> None:
        if batch and not isinstance(value, tuple):
            raise SpaceMismatchError(
                f"{where}: expected a tuple of {count} batches, one per member, got {brief(value)}"
            )
        if not isinstance(value, tuple | list):
            if not isinstance(value, _array) or not value.ndim:
                raise SpaceMismatchError(f"{where}: expected a tuple of {count}, got {brief(value)}")
            value = tuple(value)
        if len(value) != count:
            raise SpaceMismatchError(
                f"{where}: expected a tuple of {count}, got {type(value).__name__} of {len(value)}"
            )
        for part, child in zip(value, children):  # noqa: B905 - equal, and hot
            if child is None:
                out.append(part)
            else:
                child(part, out)

    return gather
