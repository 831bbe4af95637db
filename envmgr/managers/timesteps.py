"""Rows into timesteps: the dict face's own form of a batch of results."""

from __future__ import annotations

from typing import Any

from easydict import EasyDict

from envmgr.engine.results import StepBatch
from envmgr.timestep import BaseEnvTimestep


def timesteps_of(batch: StepBatch) -> dict[int, BaseEnvTimestep]:
    """One timestep per row, by env_id, in the order of the rows."""
    row, infos, own = batch.row(batch.obs), batch.infos, batch.own_rewards
    rewards = list(batch.reward)
    terminated, truncated = batch.terminated.tolist(), batch.truncated.tolist()
    out = {}
    for k, i in enumerate(batch.ids.tolist()):
        reward = own[i] if own and i in own else rewards[k]
        if i in batch.abnormal:
            info: Any = EasyDict(infos.get(i) or {})
            info.abnormal = True
            info.update({"err": batch.abnormal[i], "TimeLimit.truncated": True})
            out[i] = BaseEnvTimestep(row(k), reward, True, info)
            continue
        info = infos.get(i, {})
        te, tr = terminated[k], truncated[k]
        if tr and isinstance(info, dict):
            info["TimeLimit.truncated"] = True
            if te:
                out[i] = BaseEnvTimestep.both(row(k), reward, info)
                continue
        out[i] = BaseEnvTimestep(row(k), reward, te or tr, info)
    return out
