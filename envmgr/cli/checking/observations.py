"""Observations against their space: structure, shape, dtype, bounds; and whether memory is used again.

What a worker does with a value decides what counts as a misfit: the same functions are asked
(``gatherer`` for the structure, ``fit`` for a leaf).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.cli.checking.facts import Misfit
from envmgr.errors import SpaceMismatchError
from envmgr.memory.casts import fit
from envmgr.memory.layout import Layout, Leaf, layout_of
from envmgr.memory.nesting import gatherer
from envmgr.words import brief

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_REMEMBERED = 4  # observations: an env may take turns between a few buffers
_PLAIN = (str, bytes, bool, int, float, complex, type(None))


class ObservationCheck:
    """Looks at every observation of an env.

    Args:
        space: Its observation space, or None.

    Attributes:
        layout: What rows it has.
    """

    def __init__(self, space: Any) -> None:
        self.layout: Layout = layout_of(space)
        self._gather = gatherer(self.layout.tree, "observation", ())
        self._leaves = [(leaf, _at(space, leaf.path)) for leaf in self.layout.leaves]
        self._found: dict[tuple[str, str], Misfit] = {}

    @property
    def misfits(self) -> list[Misfit]:
        """What was found, in the order of its first time."""
        return list(self._found.values())

    def parts(self, obs: Any) -> list[Any]:
        """The leaves' values; an empty list where the structure is another one."""
        parts: list[Any] = []
        try:
            self._gather(obs, parts)
        except SpaceMismatchError:
            return []
        return parts

    def look(self, obs: Any, at: str) -> None:
        """Takes notice of an observation.

        Args:
            obs: As the env returned it.
            at: The call that it came from.
        """
        parts: list[Any] = []
        try:
            self._gather(obs, parts)
        except SpaceMismatchError as error:
            self._note("", "structure", error.message, at)
            return
        for (leaf, space), value in zip(self._leaves, parts, strict=True):
            if leaf.kind == "side":
                self._look_aside(leaf, space, value, at)
            else:
                self._look_at(leaf, space, value, at)

    def _look_at(self, leaf: Leaf, space: Any, value: Any, at: str) -> None:
        where = f"observation{leaf.name}"
        try:
            # A name in the set of those that were warned of: no warning, we tell it ourselves.
            array = fit(value, leaf.dtype, leaf.shape, where, {where}, leaf.kind)
        except SpaceMismatchError as error:
            self._note(leaf.name, _kind_of(value, leaf), error.message, at)
            return
        given = getattr(value, "dtype", None)
        source = given.newbyteorder("=") if isinstance(given, np.dtype) else None
        if source is not None and source != leaf.dtype:
            kind = "rounded" if (source, leaf.dtype) == (_FLOAT64, _FLOAT32) else "cast"
            self._note(leaf.name, kind, f"{source} goes into a space of {leaf.dtype}", at)
        if array.dtype.kind in "fc" and np.isnan(array).any():
            self._note(
                leaf.name, "nan", f"it has NaN in {int(np.isnan(array).sum())} of {array.size} places", at
            )
        self._within(leaf, space, array, at)

    def _within(self, leaf: Leaf, space: Any, array: NDArray[Any], at: str) -> None:
        bounds = _bounds(space, leaf)
        if bounds is None:
            return
        low, high = bounds
        try:
            outside = np.asarray((array < low) | (array > high))
        except (TypeError, ValueError):  # bounds of a space of the user's own
            return
        if outside.any():
            example = np.asarray(array)[outside].flat[0] if np.ndim(array) else array
            text = f"{example!s} is not within {_range(low, high, outside)}"
            self._note(leaf.name, "bounds" if leaf.kind == "box" else "range", text, at)

    def _look_aside(self, leaf: Leaf, space: Any, value: Any, at: str) -> None:
        contains = getattr(space, "contains", None)
        if callable(contains):
            try:
                inside = bool(contains(value))
            except Exception as error:  # a space of the user's own may do anything
                self._note(
                    leaf.name, "foreign", f"its space could not tell: {type(error).__name__}: {error}", at
                )
                return
            if not inside:
                self._note(leaf.name, "foreign", f"{brief(value)} is not in {brief(space)}", at)

    def _note(self, leaf: str, kind: str, text: str, at: str) -> None:
        found = self._found.get((leaf, kind))
        if found is None:
            self._found[leaf, kind] = Misfit(leaf, kind, text, at)
        else:
            found.count += 1


class ReuseCheck:
    """Remembers what came last, to see whether the env writes into what it has handed out."""

    def __init__(self) -> None:
        self._kept: deque[tuple[str, list[tuple[str, Any, Any]]]] = deque(maxlen=_REMEMBERED)
        self.reused: dict[str, str] = {}

    def look(self, named: list[tuple[str, Any]], at: str) -> None:
        """Takes notice of what a call returned, after it.

        Args:
            named: Name and value of each part; of an info its arrays and its dicts (see ``parts_of_info``).
            at: The call.
        """
        for when, parts in self._kept:
            for name, value, copy in parts:
                if name not in self.reused and not _same(value, copy):
                    what = "array" if isinstance(value, np.ndarray) else "dict"
                    self.reused[name] = f"the {what} that {when} returned was written to by {at}"
        kept = [(name, value, _copy(value)) for name, value in named if isinstance(value, np.ndarray | dict)]
        self._kept.append((at, kept))


def parts_of_info(info: Any) -> list[tuple[str, Any]]:
    """The arrays and the dicts of an info, with their names: ``info['pos']``."""
    parts: list[tuple[str, Any]] = []
    seen: set[int] = set()

    def visit(name: str, value: Any) -> None:
        if isinstance(value, np.ndarray):
            parts.append((name, value))
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, dict):
                parts.append((name, value))
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            for key, part in items:
                visit(f"{name}[{key!r}]", part)

    with contextlib.suppress(Exception):  # a mapping of the user's own may do anything
        visit("info", info)
    return parts


def _copy(value: Any) -> Any:
    """An array's values; of a dict the plain ones: what else is in it is looked at by itself, or not."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return {key: part for key, part in value.items() if isinstance(part, _PLAIN)}


def _same(value: Any, copy: Any) -> bool:
    if isinstance(value, dict):
        now = _copy(value)
        return now.keys() == copy.keys() and all(
            now[key] is copy[key] or now[key] == copy[key] for key in now
        )
    return bool(np.array_equal(value, copy, equal_nan=value.dtype.kind in "fc"))


def _kind_of(value: Any, leaf: Leaf) -> str:
    """Whether it is the shape or the values that do not fit."""
    try:
        return "lossy" if np.shape(value) == leaf.shape else "shape"
    except ValueError:  # ragged
        return "shape"


def _at(space: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        children: Any = space if isinstance(space, dict | tuple | list) else getattr(space, "spaces", None)
        if children is None:
            return None
        space = children[key]
    return space


def _bounds(space: Any, leaf: Leaf) -> tuple[Any, Any] | None:
    """The least and the greatest values of a leaf, where its space says so."""
    if leaf.kind == "box":
        low, high = getattr(space, "low", None), getattr(space, "high", None)
        return None if low is None or high is None else (low, high)
    if leaf.kind == "multibinary":
        return 0, 1
    start = getattr(space, "start", 0)
    sizes = getattr(space, "nvec", None) if leaf.kind == "multidiscrete" else getattr(space, "n", None)
    if sizes is None:
        return None
    start = np.asarray(0 if start is None else start)
    return start, start + np.asarray(sizes) - 1


def _range(low: Any, high: Any, outside: NDArray[np.bool_]) -> str:
    """The bounds where they are not kept."""
    lowest, highest = (np.broadcast_to(bound, outside.shape)[outside].flat[0] for bound in (low, high))
    return f"[{lowest!s}, {highest!s}]"
