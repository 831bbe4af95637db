"""Rows into timesteps: the dict face's own form of a batch of results."""

from __future__ import annotations

from typing import Any

import numpy as np
from easydict import EasyDict

from envmgr.engine.results import StepBatch
from envmgr.infos import as_dict
from envmgr.timestep import BaseEnvTimestep


def timesteps_of(batch: StepBatch) -> dict[int, BaseEnvTimestep]:
    """One timestep per row, by env_id, in the order of the rows."""
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
            info.update({"err": batch.abnormal[i], "TimeLimit.truncated": True})
            out[i] = BaseEnvTimestep(row(k), reward, True, info)
            continue
        info = infos.get(i, {})
        te, tr = terminated[k], truncated[k]
        if tr:
            if not isinstance(info, dict):
                info = as_dict(info)
            info["TimeLimit.truncated"] = True
            if te:
                out[i] = BaseEnvTimestep.both(row(k), reward, info)
                continue
        out[i] = BaseEnvTimestep(row(k), reward, te or tr, info)
    return out


def _plain(batch: StepBatch) -> dict[int, BaseEnvTimestep]:
    """Nobody has more to say than its row: what most steps are, so without a call per env."""
    obs = batch.obs
    if type(obs) is np.ndarray and obs.ndim > 1:
        rows: Any = list(obs)
    else:
        row = batch.row(obs)
        rows = [row(k) for k in range(len(batch.ids))]
    new, kind = tuple.__new__, BaseEnvTimestep
    listed = zip(batch.ids.tolist(), rows, list(batch.reward), strict=True)
    return {i: new(kind, (obs, reward, False, {})) for i, obs, reward in listed}
