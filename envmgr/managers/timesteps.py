"""Rows into timesteps: the dict face's own form of a batch of results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from easydict import EasyDict

from envmgr.engine.results import StepBatch
from envmgr.infos import as_dict
from envmgr.timestep import BaseEnvTimestep

_TRUNCATED = "TimeLimit.truncated"
_KIND, _NOT_DONE = itertools.repeat(BaseEnvTimestep), itertools.repeat(False)
_NO_INFOS: Iterator[dict[str, Any]] = iter(dict, None)  # each a new one


def timesteps_of(batch: StepBatch) -> dict[int, BaseEnvTimestep]:
    """One timestep per row, by env_id, in the order of the rows.

    ``info['TimeLimit.truncated']`` of an episode's end is made to say what ``truncated`` says: True where it
    is missing, False where an env that is terminated and not truncated has set it. The infos of a batch are
    copies in every manager, so no env finds its own dict changed.
    """
    if not (batch.ended or batch.infos or batch.own_rewards or batch.abnormal):
        return _plain(batch)
    row, infos, own = batch.row(batch.obs), batch.infos, batch.own_rewards
    rewards = list(batch.reward)
    terminated, truncated = batch.terminated.tolist(), batch.truncated.tolist()
    out = {}
    for k, i in enumerate(batch.ids.tolist()):
        reward = own[i] if own and i in own else rewards[k]
        if i in batch.abnormal:
            info: Any = EasyDict(as_dict(infos.get(i)))
            info.abnormal = True
            info.update({"err": batch.abnormal[i], _TRUNCATED: True})
            out[i] = BaseEnvTimestep(row(k), reward, True, info)
            continue
        info = infos.get(i, {})
        te, tr = terminated[k], truncated[k]
        if tr:
            if not isinstance(info, dict):
                info = as_dict(info)
            info[_TRUNCATED] = True
            if te:
                out[i] = BaseEnvTimestep.both(row(k), reward, info)
                continue
        elif te and isinstance(info, dict) and info.get(_TRUNCATED):
            info[_TRUNCATED] = False  # the env's two flags stand above what its info says of one of them
        out[i] = BaseEnvTimestep(row(k), reward, te or tr, info)
    return out


def _plain(batch: StepBatch) -> dict[int, BaseEnvTimestep]:
    """Nobody has more to say than its row: what most steps are, so without a call per env."""
    rows = batch.obs
    if type(rows) is not np.ndarray or rows.ndim < 2:
        row = batch.row(rows)
        rows = [row(k) for k in range(len(batch.ids))]
    # All of it in C: (obs, reward, done, info) of each row, made a timestep without its own __new__.
    fields = zip(rows, batch.reward, _NOT_DONE, _NO_INFOS)  # noqa: B905 - the last two have no end
    return dict(zip(batch.ids.tolist(), map(tuple.__new__, _KIND, fields), strict=True))
