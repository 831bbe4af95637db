"""Rewards into their rows, by the rules of observations, and what becomes of those that have no place there.

A reward that is a plain float never comes here (see ``loop``); of the other numbers that most envs give it is
told by their class and size that they fit. Whatever else takes the way through ``memory.casts``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envmgr.errors import SpaceMismatchError
from envmgr.memory.arena import Arena
from envmgr.memory.casts import always_fits, fit, to_numpy
from envmgr.words import brief
from envmgr.workers.contract import Extra

_SCALARS: tuple[type, ...] = (
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64),
)


class RewardWriter:
    """Writes rewards into their rows, by the rules of observations: see ``memory.casts``.

    Args:
        arena: The rows.
    """

    def __init__(self, arena: Arena) -> None:
        plan = arena.plan
        dtype = self._dtype = np.dtype(plan.reward_dtype)
        self._shape = plan.reward_shape
        self._rows = arena.reward
        self._told = False
        floats = dtype.kind == "f"
        self._none = np.nan if floats else 0
        # Of the numbers that most envs give it is told by their class and size that they fit.
        self._number = self._shape == ()
        self._fitting = frozenset(
            [bool, *(kind for kind in _SCALARS if always_fits(np.dtype(kind), dtype))]
            + ([float] if dtype == np.float64 else [])
        )
        self._floats = floats
        self._largest = float(np.finfo(dtype).max) if floats else 0.0
        self._lowest, self._highest = 0, 1
        if floats:
            self._highest = min(2 ** (int(np.finfo(dtype).nmant) + 1), int(self._largest))
            self._lowest = -self._highest
        elif dtype.kind in "iu":
            self._lowest, self._highest = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)

    def write(self, i: int, r: Any, extra: Extra | None) -> Extra | None:
        """Writes a reward; one of another shape than its row goes as a message.

        Args:
            i: The env.
            r: Its reward.
            extra: The message, where there is one already.

        Raises:
            SpaceMismatchError: It is no number, or its row cannot hold its value.
        """
        kind = r.__class__
        if self._number and (
            kind in self._fitting
            or (kind is int and self._lowest <= r <= self._highest)
            or (kind is float and self._floats and not self._largest < abs(r) < np.inf)
        ):
            self._rows[i] = r
            return extra
        array = to_numpy(r, "reward")
        if array.dtype.kind == "c" or (isinstance(r, np.ma.MaskedArray) and np.ma.getmaskarray(r).any()):
            raise SpaceMismatchError(f"reward: expected real numbers, got {brief(r)}")
        if array.size == self._rows[i].size:
            extra = self._fitted(i, r, array, extra)
        else:
            self._rows[i] = self._none
        if array.shape != self._shape:
            extra = extra or Extra()
            extra.reward, extra.has_reward = np.array(array), True
        return extra

    def _fitted(self, i: int, r: Any, array: np.ndarray[Any, Any], extra: Extra | None) -> Extra | None:
        """Writes a reward of the right size, and tells once of float64 that is rounded."""
        # As it came, where it can: Python's own numbers have no dtype that could be too wide.
        value = r if array.shape == self._shape else array.reshape(self._shape)
        self._rows[i] = fit(value, self._dtype, self._shape, "reward", {"reward"})
        if self._told or self._dtype != np.float32 or array.dtype != np.float64 or not hasattr(r, "dtype"):
            return extra
        self._told = True
        extra = extra or Extra()
        extra.warnings.append(
            f"env {i}: float64 rewards go into a float32 reward_space and are rounded. Give the space dtype "
            "float64, or return float32"
        )
        return extra
