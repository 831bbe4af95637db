"""Counts and seconds per env, while the rows are there and after."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.engine.core import Core
from envmgr.engine.outbox import Outbox


class Statistics:
    """What ``manager.stats()`` tells.

    Args:
        core: What the parts share.
        outbox: Counts the steps.
    """

    def __init__(self, core: Core, outbox: Outbox) -> None:
        self._core = core
        self._outbox = outbox
        self._kept: NDArray[np.float64] = np.zeros((2, core.env_num), np.float64)
        self._born_at, self._ended_at = time.monotonic(), 0.0

    def end(self) -> None:
        """The rows are about to go: keeps what stands in them."""
        self._kept[:] = self.times()
        self._ended_at = time.monotonic()

    def times(self) -> NDArray[np.float64]:
        """Seconds per env in step and in reset, shape (2, env_num)."""
        if not self._core.has_rows:
            return self._kept.copy()
        arena = self._core.arena
        out = np.stack([arena.step_time, arena.reset_time])
        for w, envs in enumerate(self._core.pool.envs_of):
            out[0, envs.start : envs.stop] += float(arena.batch_time[w]) / len(envs)
        return out

    def per_env(self) -> dict[int, dict[str, Any]]:
        """Counts and seconds, by env_id.

        ``failures`` are steps and resets that brought no result: the env raised, what it gave was refused, it
        was broken off for taking too long, or its worker died under it (whichever env of it was to blame),
        had died since the env's last call, or could not be built anew for it. Each attempt counts. With
        ``retries`` one knows how many of them were tried again; ``timeouts`` are among them.
        """
        machine = self._core.machine
        times = self.times()
        lived = (self._ended_at or time.monotonic()) - self._born_at
        out = {}
        for i in range(self._core.env_num):
            retries, renewals, timeouts = machine.counts(i)
            step_time, reset_time = float(times[0, i]), float(times[1, i])
            out[i] = {
                "steps": self._outbox.steps_of(i),
                "episodes": int(machine.episodes[i]),
                "step_time": step_time,
                "reset_time": reset_time,
                "wait_time": max(0.0, lived - step_time - reset_time),
                "retries": retries,
                "renewals": renewals,
                "timeouts": timeouts,
                "failures": machine.failures(i),
            }
        return out
