"""What a gather hands to a face: the rows of some envs, copied out in one go per leaf."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.workers.failures import told
from envmgr.workers.outside import from_a_signal


@dataclasses.dataclass(slots=True)
class StepBatch:
    """Results of steps, row k belongs to env ``ids[k]``.

    Attributes:
        ids: Env ids, in the order of the rows.
        obs: Tree of arrays of shape (len(ids), *leaf shape).
        row: obs -> (k -> the observation of row k, with the env's own structure).
        reward: Array of shape (len(ids), *reward shape).
        terminated, truncated: Bool arrays.
        infos: env_id -> its info, where it is not empty.
        own_rewards: env_id -> a reward that does not have the shape of its space.
        final_obs: env_id -> the last observation of an episode whose env was reset at once.
        abnormal: env_id -> the error of a step that failed.
        ended: Whether some episode has ended in these rows.
    """

    ids: NDArray[np.int64]
    obs: Any
    row: Callable[[Any], Callable[[int], Any]]
    reward: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: dict[int, Any]
    own_rewards: dict[int, Any]
    final_obs: dict[int, Any]
    abnormal: dict[int, BaseException]
    ended: bool


def load_info(data: Any) -> Any:
    """Unpickles an info or a space. It was pickled by envmgr's own worker."""
    return pickle.loads(data)


class InfoReader:
    """Unpickles infos; one that does not is an empty info, and is told of, once per env."""

    def __init__(self) -> None:
        self._told: set[int] = set()

    def read(self, data: Any, env_id: int, warnings: list[str]) -> Any:
        """The info in ``data``, or ``{}``; why goes to ``warnings``.

        It was pickled in one piece, so nobody can tell which of its keys is the bad one.
        """
        try:
            return load_info(data)
        except BaseException as error:  # the user's code runs in it; Ctrl-C is the caller's own
            if from_a_signal(error):
                raise
            if env_id not in self._told:
                self._told.add(env_id)
                warnings.append(
                    f"env {env_id}: an info does not unpickle ({told(error)}) and is "
                    "dropped whole; leave out what pickles but cannot be built again, such as exceptions "
                    "with more arguments than their message"
                )
            return {}


def as_slice(ids: NDArray[np.int64], n: int) -> Any:
    """``ids`` as a slice where they are neighbours in order (a slice copies faster), else as they are."""
    count = len(ids)
    if (
        count == n
        and count
        and ids[0] == 0
        and ids[-1] == n - 1
        and (count == 1 or bool((ids[1:] > ids[:-1]).all()))
    ):
        return slice(0, n)
    if count == 1:
        return slice(int(ids[0]), int(ids[0]) + 1)
    return ids
