"""Trajectories to compare: whether two runs of an env were the same, and where they parted."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Moment(NamedTuple):
    """What one call gave, as far as two runs must agree on it.

    Attributes:
        obs: The observation's values as bytes, leaf by leaf.
        reward: The reward; None of a reset.
        ends: ``(terminated, truncated)``; None of a reset.
    """

    obs: tuple[Any, ...]
    reward: Any = None
    ends: tuple[bool, bool] | None = None

    @classmethod
    def of(
        cls,
        parts: Callable[[Any], list[Any]],
        obs: Any,
        reward: Any = None,
        ends: tuple[bool, bool] | None = None,
    ) -> Moment:
        """Takes down a call's values, so that the env may change them afterwards.

        Args:
            parts: Takes an observation apart; gives nothing where it has another structure than its space.
            obs: The observation.
            reward: The reward.
            ends: Its ends.
        """
        return cls(
            tuple(_bytes(part) for part in (parts(obs) or [obs])),
            None if reward is None else _bytes(reward),
            ends,
        )


def parting(one: Sequence[Moment], other: Sequence[Moment]) -> str:
    """Where two runs parted, in words; an empty text if nowhere."""
    steps = 0
    for a, b in zip(one, other, strict=False):
        steps += a.ends is not None
        where = (
            f"step {steps}" if a.ends is not None else "the reset" + (f" after step {steps}" if steps else "")
        )
        if (a.ends is None) != (b.ends is None) or a.ends != b.ends:
            return f"the end of the episode differs at step {steps}"
        if a.obs != b.obs:
            return f"the observation differs at {where}"
        if a.reward != b.reward:
            return f"the reward differs at {where}"
    return "" if len(one) == len(other) else "one has more episodes"


def _bytes(value: Any) -> Any:
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        array = np.asarray(None)
    if array.dtype.kind in "biufcSU":
        return array.shape, array.tobytes()
    try:
        return pickle.dumps(value)
    except Exception:  # what does not pickle can raise anything
        return repr(type(value))
