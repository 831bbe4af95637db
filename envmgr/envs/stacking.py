"""Values of many agents as one: as rows of an array, or as a dict.

A codec turns a dict by agent, in which some may be missing, into one value of a fixed layout, and back.
Rows of missing agents are zero. Where agents' boxes differ in size, smaller ones are padded with zeros at
the end of each axis; ``decode`` cuts them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from envmgr.envs.spaces import Box, Dict, MultiDiscrete, Tuple
from envmgr.errors import SpaceMismatchError


class Codec(Protocol):
    """One value for many agents."""

    space: Any

    def encode(self, values: Mapping[Any, Any]) -> Any:
        """One value of ``space`` from the values of the agents that are there."""

    def decode(self, value: Any, k: int) -> Any:
        """What the k-th agent has in such a value, in the form its own space wants."""


def stack(spaces: list[Any], agents: list[Any]) -> Codec | None:
    """The codec that puts agents into rows, or None where their spaces do not allow it."""
    names = {_kind(space) for space in spaces}
    if len(names) != 1:
        return None
    kind = names.pop()
    if kind in ("dict", "tuple"):
        return _stack_parts(kind, spaces, agents)
    if kind == "other":
        return None
    if len({len(_shape(space)) for space in spaces}) != 1 or len({_dtype(space) for space in spaces}) != 1:
        return None
    return _Rows(kind, spaces, agents)


def by_name(spaces: list[Any], agents: list[Any]) -> Codec:
    """The codec that keeps a dict by agent."""
    return _ByName(spaces, agents)


def _kind(space: Any) -> str:
    parts = getattr(space, "spaces", None)
    if parts is not None:
        return "dict" if hasattr(parts, "keys") else "tuple" if isinstance(parts, (tuple, list)) else "other"
    if isinstance(getattr(space, "n", None), (int, np.integer)) and _shape(space) == ():
        return "discrete"
    if hasattr(space, "nvec"):
        return "multidiscrete"
    if hasattr(space, "low") and hasattr(space, "high") and _dtype(space).kind in "biuf":
        return "box"
    if hasattr(space, "n") and len(_shape(space)) > 0:
        return "multibinary"
    return "other"


def _shape(space: Any) -> tuple[int, ...]:
    return tuple(getattr(space, "shape", None) or ())


def _dtype(space: Any) -> np.dtype[Any]:
    return np.dtype(getattr(space, "dtype", None) or object)


def _stack_parts(kind: str, spaces: list[Any], agents: list[Any]) -> Codec | None:
    keys = list(spaces[0].spaces) if kind == "dict" else list(range(len(spaces[0].spaces)))
    for space in spaces:
        own = list(space.spaces) if kind == "dict" else list(range(len(space.spaces)))
        if set(own) != set(keys):
            return None
    parts = {}
    for key in keys:
        part = stack([space.spaces[key] for space in spaces], agents)
        if part is None:
            return None
        parts[key] = part
    return _Parts(kind, parts)


class _Rows:
    """Leaves of one kind, agents along the first axis."""

    def __init__(self, kind: str, spaces: list[Any], agents: list[Any]) -> None:
        self._index = {agent: k for k, agent in enumerate(agents)}
        self._shapes = [_shape(space) for space in spaces]
        own = tuple(max(sizes) for sizes in zip(*self._shapes, strict=True))
        self._shape = (len(agents), *own)
        self._dtype = _dtype(spaces[0])
        self._at: list[tuple[Any, ...]] = [(k, *map(slice, shape)) for k, shape in enumerate(self._shapes)]
        self._scalar = own == ()
        self.space: Any = self._space_of(kind, spaces)

    def _space_of(self, kind: str, spaces: list[Any]) -> Any:
        if kind == "discrete":
            starts = [int(getattr(space, "start", 0)) for space in spaces]
            return MultiDiscrete([int(space.n) for space in spaces], starts)
        if kind == "box":
            return Box(self._padded(spaces, "low"), self._padded(spaces, "high"), self._shape, self._dtype)
        if kind == "multibinary":
            return Box(0, 1, self._shape, self._dtype)
        low, high = np.zeros(self._shape, np.int64), np.zeros(self._shape, np.int64)
        for k, space in enumerate(spaces):
            start = np.asarray(getattr(space, "start", 0))
            low[self._at[k]] = start
            high[self._at[k]] = start + np.asarray(space.nvec) - 1
        return Box(low, high, self._shape, self._dtype)

    def _padded(self, spaces: list[Any], bound: str) -> Any:
        bounds = np.zeros(self._shape, self._dtype)
        for k, space in enumerate(spaces):
            bounds[self._at[k]] = getattr(space, bound)
        return bounds

    def encode(self, values: Mapping[Any, Any]) -> Any:
        # In the dtype that came: whether it fits the space is judged, and told, where rows are written.
        arrays = {agent: np.asarray(value) for agent, value in values.items()}
        dtypes = {array.dtype for array in arrays.values()}
        rows = np.zeros(self._shape, self._dtype if dtypes <= {self._dtype} else np.result_type(*dtypes))
        for agent, array in arrays.items():
            k = self._index[agent]
            if array.shape != self._shapes[k]:
                raise SpaceMismatchError(
                    f"the observation of agent {agent!r} has shape {array.shape}; expected {self._shapes[k]}"
                )
            rows[self._at[k]] = array
        return rows

    def decode(self, value: Any, k: int) -> Any:
        return value[k] if self._scalar else np.array(value[self._at[k]])


class _Parts:
    """A dict or tuple whose parts are codecs."""

    def __init__(self, kind: str, parts: dict[Any, Codec]) -> None:
        self._parts, self._is_dict = parts, kind == "dict"
        spaces = {key: part.space for key, part in parts.items()}
        self.space: Any = Dict(spaces) if self._is_dict else Tuple(list(spaces.values()))

    def encode(self, values: Mapping[Any, Any]) -> Any:
        encoded = {
            key: part.encode({agent: value[key] for agent, value in values.items()})
            for key, part in self._parts.items()
        }
        return encoded if self._is_dict else tuple(encoded.values())

    def decode(self, value: Any, k: int) -> Any:
        decoded = {key: part.decode(value[key], k) for key, part in self._parts.items()}
        return decoded if self._is_dict else tuple(decoded.values())


class _ByName:
    """A dict by agent; who is missing has an empty value of its own space."""

    def __init__(self, spaces: list[Any], agents: list[Any]) -> None:
        self._agents = agents
        self._spaces = dict(zip(agents, spaces, strict=True))
        self.space: Any = Dict(self._spaces)

    def encode(self, values: Mapping[Any, Any]) -> Any:
        return {
            agent: values[agent] if agent in values else empty(space) for agent, space in self._spaces.items()
        }

    def decode(self, value: Any, k: int) -> Any:
        return value[self._agents[k]]


def empty(space: Any) -> Any:
    """A value with a space's structure and nothing in it; None where it has no fixed layout."""
    kind = _kind(space)
    if kind == "dict":
        return {key: empty(part) for key, part in space.spaces.items()}
    if kind == "tuple":
        return tuple(empty(part) for part in space.spaces)
    if kind == "other":
        return None
    if kind == "discrete":
        return np.int64(getattr(space, "start", 0))
    return np.zeros(_shape(space), _dtype(space))
