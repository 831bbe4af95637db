"""Episodes as they are collected: each whole and in order, however the envs interleave.

A :class:`Recorder` is told what is sent to each env and what comes back, in whatever order that
happens, and makes an :class:`Episode` of an env's steps when the last of them is in. ``save`` writes
episodes as one ``.npz`` of flat arrays. They stand there by env, and within an env by time, not in the
order of finishing: that differs from run to run, and so the file of a seeded run is the same in
every manager.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envmgr.observe.files import replacing
from envmgr.observe.trees import concatenate, named_leaves, row, stack
from envmgr.timestep import BaseEnvTimestep

_COMPRESSED_BELOW = 64 * 2**20
"""Bytes; more of them would keep whoever waits for the file waiting for long."""


@dataclasses.dataclass(frozen=True)
class Steps:
    """What an episode of T steps consists of; every leaf has T rows.

    Attributes:
        obs: What the policy saw before each step.
        action: What it did.
        reward: What came back, in the env's own shape.
        final_obs: The observation after the last step (no leading axis).
    """

    obs: Any
    action: Any
    reward: Any
    final_obs: Any


@dataclasses.dataclass(frozen=True)
class Episode:
    """One episode that is over.

    Attributes:
        env_id: The env that it was played in.
        number: How many episodes of that env went before it.
        length: Steps in it.
        total: The sum of its rewards.
        terminated: Whether it ended in a terminal state of the task.
        truncated: Whether it was cut off.
        abnormal: Whether it ended because the env failed.
        finished: Seconds from the start of collecting to its last step.
        steps: What it consists of, or None where that is not kept.
    """

    env_id: int
    number: int
    length: int
    total: float
    terminated: bool
    truncated: bool
    abnormal: bool
    finished: float
    steps: Steps | None


class Recorder:
    """Puts the steps of interleaved envs together into episodes.

    Args:
        env_num: How many envs there are.
        keep_steps: Whether observations, actions and rewards are kept; otherwise only counts and returns.

    Attributes:
        episodes: Those that are over, in the order of finishing.
        steps: Steps that came back, unfinished episodes included.
    """

    def __init__(self, env_num: int, *, keep_steps: bool = True) -> None:
        self.episodes: list[Episode] = []
        self.steps = 0
        self._keep = keep_steps
        self._open = [_Open() for _ in range(env_num)]
        self._counts = [0] * env_num

    def sent(self, env_ids: Sequence[int], obs_batch: Any, actions: Sequence[Any]) -> None:
        """Notes the observations that actions answer to; row k of ``obs_batch`` is that of ``env_ids[k]``."""
        if not self._keep:
            return
        plain = isinstance(obs_batch, np.ndarray)
        for k, env_id in enumerate(env_ids):
            self._open[env_id].pending = (obs_batch[k] if plain else row(obs_batch, k), actions[k])

    def received(self, env_id: int, timestep: BaseEnvTimestep, now: float) -> Episode | None:
        """Takes an env's answer to what was sent to it last.

        Args:
            env_id: The env.
            timestep: Its answer.
            now: Seconds since the start of collecting.

        Returns:
            The episode, when it is over by this step.
        """
        now_open = self._open[env_id]
        self.steps += 1
        now_open.length += 1
        reward = timestep.reward
        # A reward with a shape (one per agent, say) counts by its sum.
        now_open.total += reward if isinstance(reward, float) else float(np.sum(reward))
        if self._keep:
            now_open.steps.append((*now_open.pending, reward))
        abnormal = is_abnormal(timestep)
        if not (timestep.done or abnormal):
            return None
        episode = Episode(
            env_id=env_id,
            number=self._counts[env_id],
            length=now_open.length,
            total=now_open.total,
            terminated=timestep.terminated and not abnormal,
            truncated=timestep.truncated or abnormal,
            abnormal=abnormal,
            finished=now,
            steps=_as_steps(now_open.steps, timestep.obs) if self._keep else None,
        )
        self._open[env_id] = _Open()
        self._counts[env_id] += 1
        self.episodes.append(episode)
        return episode

    @property
    def unfinished(self) -> int:
        """Steps of episodes that are not over."""
        return sum(one.length for one in self._open)


class _Open:
    """An episode that is being played."""

    __slots__ = ("length", "pending", "steps", "total")

    def __init__(self) -> None:
        self.pending: tuple[Any, Any] = (None, None)
        self.steps: list[tuple[Any, Any, Any]] = []
        self.length = 0
        self.total = 0.0


def is_abnormal(timestep: BaseEnvTimestep) -> bool:
    """Whether a timestep says that its env failed."""
    info = timestep.info
    return bool(info) and bool(np.any(info.get("abnormal", False)))


def _as_steps(steps: list[tuple[Any, Any, Any]], final_obs: Any) -> Steps:
    """The columns of the steps as arrays, which are smaller than the many values they were."""
    obs, action, reward = zip(*steps, strict=True)
    return Steps(stack(obs), stack(action), stack(reward), stack([final_obs]))


def save(path: Path, episodes: Sequence[Episode]) -> list[str]:
    """Writes episodes as an ``.npz`` of flat arrays that numpy loads without pickle.

    With S steps in all and E episodes: ``obs``, ``action``, ``reward``, ``terminated``, ``truncated``,
    ``env_id``, ``episode_id`` and ``step`` (the index within the episode) have S rows; ``final_obs``,
    ``episode_env_id``, ``episode_start`` (the row of its first step), ``episode_length``,
    ``episode_return`` and ``episode_abnormal`` have E. The leaves of a Dict or Tuple observation are arrays
    of their own: ``obs/img``.

    Args:
        path: The file, which is replaced as a whole or not at all.
        episodes: In any order; those without steps are left out.

    Returns:
        Names of leaves that could not be written, because numpy would have to pickle them.
    """
    ordered = sorted((e for e in episodes if e.steps is not None), key=lambda e: (e.env_id, e.number))
    arrays, left_out = _arrays(ordered) if ordered else ({}, [])
    with replacing(path) as temporary, temporary.open("wb") as file:
        small = sum(array.nbytes for array in arrays.values()) < _COMPRESSED_BELOW
        (np.savez_compressed if small else np.savez)(file, **arrays)
    return left_out


def _arrays(episodes: list[Episode]) -> tuple[dict[str, Any], list[str]]:
    lengths = np.array([e.length for e in episodes], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    env_ids = np.array([e.env_id for e in episodes], np.int64)
    last = starts + lengths - 1
    ends = {name: np.zeros(int(lengths.sum()), np.bool_) for name in ("terminated", "truncated")}
    ends["terminated"][last] = [e.terminated for e in episodes]
    ends["truncated"][last] = [e.truncated for e in episodes]
    arrays: dict[str, Any] = {
        **ends,
        "env_id": np.repeat(env_ids, lengths),
        "episode_id": np.repeat(np.arange(len(episodes)), lengths),
        "step": np.concatenate([np.arange(n) for n in lengths]),
        "episode_env_id": env_ids,
        "episode_start": starts,
        "episode_length": lengths,
        "episode_return": np.array([e.total for e in episodes], np.float64),
        "episode_abnormal": np.array([e.abnormal for e in episodes], np.bool_),
    }
    left_out = []
    for name in ("obs", "action", "reward", "final_obs"):
        for leaf, array in named_leaves(name, concatenate([getattr(e.steps, name) for e in episodes])):
            if array.dtype.hasobject:
                left_out.append(leaf)
            else:
                arrays[leaf] = array
    return arrays, left_out
