"""Space-like objects for APIs that describe their values in other ways (dm_env, PettingZoo, ``info()``).

They have the names and attributes of Gymnasium's spaces, so that whoever goes by structure
understands them, and import nothing of it: an env that does without Gymnasium has it not imported for
its sake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Space:
    """What all have: shape, dtype, a generator of their own, equality by content."""

    def __init__(self, shape: tuple[int, ...] | None, dtype: Any) -> None:
        self.shape = shape
        self.dtype: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)
        self._rng: np.random.Generator | None = None

    @property
    def np_random(self) -> np.random.Generator:
        """The generator that ``sample`` draws from, made when it is first asked for."""
        if self._rng is None:
            self._rng = np.random.default_rng()
        return self._rng

    def seed(self, seed: int | None = None) -> None:
        """Seeds ``sample``."""
        self._rng = np.random.default_rng(seed)

    def sample(self) -> Any:
        """Draws a value."""
        raise NotImplementedError

    def contains(self, x: Any) -> bool:
        """Whether a value belongs to the space."""
        raise NotImplementedError

    def __contains__(self, x: Any) -> bool:
        return self.contains(x)

    def _key(self) -> tuple[Any, ...]:
        return (self.shape, self.dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.shape))

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._key()}"


class Box(Space):
    """Arrays of a fixed shape and dtype between two bounds."""

    def __init__(self, low: Any, high: Any, shape: Sequence[int], dtype: Any) -> None:
        super().__init__(tuple(int(size) for size in shape), dtype)
        number = self.dtype if np.dtype(dtype).kind in "biuf" else None
        self.low = np.broadcast_to(np.asarray(low, number), self.shape or ())
        self.high = np.broadcast_to(np.asarray(high, number), self.shape or ())

    def sample(self) -> Any:
        """Uniform between the bounds; normal around zero (or the one bound) where there is none."""
        dtype = self.dtype or np.dtype(np.float64)
        if dtype.kind == "b":
            return self.np_random.random(self.shape) < 0.5
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        if dtype.kind in "iu":
            span = self.np_random.random(self.shape) * (high - low + 1)
            return np.clip(np.floor(low + span), low, high).astype(dtype)
        free = self.np_random.standard_normal(self.shape)
        bounded = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore", over="ignore"):
            inside = low + self.np_random.random(self.shape) * (high - low)
        return np.where(bounded, inside, np.clip(free, low, high)).astype(dtype)

    def contains(self, x: Any) -> bool:
        """Whether the shape fits, the dtype can be cast, and every element is within the bounds."""
        x = np.asarray(x)
        if x.shape != self.shape or self.dtype is None or not np.can_cast(x.dtype, self.dtype):
            return False
        return bool(np.all(x >= self.low) and np.all(x <= self.high))

    def _key(self) -> tuple[Any, ...]:
        return (self.low.tolist(), self.high.tolist(), self.shape, self.dtype)

    def __repr__(self) -> str:
        return f"Box(shape={self.shape}, dtype={self.dtype})"


class Discrete(Space):
    """The whole numbers from ``start`` to ``start + n - 1``."""

    def __init__(self, n: int, start: int = 0) -> None:
        super().__init__((), np.int64)
        self.n, self.start = int(n), int(start)

    def sample(self) -> Any:
        """Uniform."""
        return self.start + self.np_random.integers(self.n)

    def contains(self, x: Any) -> bool:
        """Whether it is a whole number of the range."""
        number = np.asarray(x)
        return (
            number.shape == ()
            and number.dtype.kind in "iu"
            and self.start <= int(number) < self.start + self.n
        )

    def _key(self) -> tuple[Any, ...]:
        return (self.n, self.start)


class MultiDiscrete(Space):
    """An array of whole numbers, each with a range of its own."""

    def __init__(self, nvec: Any, start: Any = None) -> None:
        self.nvec = np.asarray(nvec, np.int64)
        self.start = np.zeros_like(self.nvec) if start is None else np.asarray(start, np.int64)
        super().__init__(self.nvec.shape, np.int64)

    def sample(self) -> Any:
        """Uniform."""
        return self.start + self.np_random.integers(self.nvec)

    def contains(self, x: Any) -> bool:
        """Whether shape and every number fit."""
        x = np.asarray(x)
        if x.shape != self.shape or x.dtype.kind not in "iu":
            return False
        return bool(np.all(x >= self.start) and np.all(x < self.start + self.nvec))

    def _key(self) -> tuple[Any, ...]:
        return (self.nvec.tolist(), self.start.tolist())


class Dict(Space):
    """A dict of spaces."""

    def __init__(self, spaces: Mapping[Any, Any]) -> None:
        super().__init__(None, None)
        self.spaces = dict(spaces)

    def seed(self, seed: int | None = None) -> None:
        """Seeds every part, each with a child of the seed."""
        _seed_parts(list(self.spaces.values()), seed)

    def sample(self) -> Any:
        """A sample of every part."""
        return {key: space.sample() for key, space in self.spaces.items()}

    def contains(self, x: Any) -> bool:
        """Whether the keys are these and every value fits."""
        if not isinstance(x, Mapping) or set(x) != set(self.spaces):
            return False
        return all(space.contains(x[key]) for key, space in self.spaces.items())

    def _key(self) -> tuple[Any, ...]:
        return tuple(self.spaces.items())


class Tuple(Space):
    """A tuple of spaces."""

    def __init__(self, spaces: Sequence[Any]) -> None:
        super().__init__(None, None)
        self.spaces = tuple(spaces)

    def seed(self, seed: int | None = None) -> None:
        """Seeds every part, each with a child of the seed."""
        _seed_parts(list(self.spaces), seed)

    def sample(self) -> Any:
        """A sample of every part."""
        return tuple(space.sample() for space in self.spaces)

    def contains(self, x: Any) -> bool:
        """Whether there are as many values and each fits."""
        if not isinstance(x, (tuple, list)) or len(x) != len(self.spaces):
            return False
        return all(space.contains(value) for space, value in zip(self.spaces, x, strict=True))

    def _key(self) -> tuple[Any, ...]:
        return self.spaces


def _seed_parts(parts: list[Any], seed: int | None) -> None:
    words = np.random.SeedSequence(seed).generate_state(max(len(parts), 1))
    for space, word in zip(parts, words, strict=False):
        space.seed(int(word))
