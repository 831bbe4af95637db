"""Which call has taken longer than it may: arrays of times, the clock handed in.

A limit bounds one call alone. Where a worker hosts one env the call began when it was sent. Where
it hosts several, an env's call begins when its turn comes; nobody reads a clock then, for that
would cost more than a small step. So the keeper looks now and then which env runs, and counts from
the moment it first saw it: never too early, late by a tenth of the limit at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.engine.machine import RESETTING
from envmgr.memory.arena import Arena
from envmgr.workers.contract import Flag

_PENDING = int(Flag.PENDING)
_PART = 0.1  # of a limit: how often a worker with several envs is looked at


class Deadlines:
    """The limits of what is under way.

    Args:
        envs_of: The envs of each worker.
        step_limit: Seconds for a step, None for none.
        reset_limit: Seconds for a reset, None for none.
    """

    def __init__(
        self,
        envs_of: Sequence[range],
        step_limit: float | None,
        reset_limit: float | None,
    ) -> None:
        self._envs_of = list(envs_of)
        self.step_limit = math.inf if step_limit is None else step_limit
        self.reset_limit = math.inf if reset_limit is None else reset_limit
        self.started: NDArray[np.float64] = np.full(sum(map(len, envs_of)), -np.inf)
        self._grace: dict[int, float] = {}
        self._seen: dict[int, tuple[tuple[int, int, int], float]] = {}
        self.earliest = math.inf
        self._part = _PART if any(len(envs) > 1 for envs in envs_of) else 1.0
        self._first_look = (
            min(self.step_limit, self.reset_limit) * self._part,
            self.reset_limit * self._part,
        )

    def begin(self, ids: Any, now: float, resets: bool) -> bool:
        """Calls of ``ids`` go out. Whether the keeper has to look earlier than it meant to."""
        self.started[ids] = now
        look = now + self._first_look[resets]
        if look < self.earliest:
            self.earliest = look
            return True
        return False

    def begin_all(self, now: float) -> bool:
        """Steps of all envs go out; as ``begin``."""
        self.started.fill(now)
        look = now + self._first_look[0]
        if look < self.earliest:
            self.earliest = look
            return True
        return False

    def grant(self, env_id: int, until: float) -> None:
        """Gives an env until then, whatever its limit."""
        self._grace[env_id] = until
        self.earliest = min(self.earliest, until)

    def ended(self, env_id: int) -> None:
        """A grace is over, because the call came back."""
        self._grace.pop(env_id, None)

    def overdue(self, now: float, arena: Arena, op: NDArray[np.uint8]) -> list[int]:
        """The envs whose call has taken longer than it may; sets when to look next."""
        late: list[int] = []
        earliest = math.inf
        flag = arena.flag
        for w, envs in enumerate(self._envs_of):
            pending = [i for i in envs if flag[i] == _PENDING and op[i]]
            if not pending:
                self._seen.pop(w, None)
                continue
            for i in pending:
                if i in self._grace:
                    if now >= self._grace[i]:
                        late.append(i)
                    else:
                        earliest = min(earliest, self._grace[i])
            if any(i in self._grace for i in pending):
                continue
            due, culprit = self._due(w, pending, now, arena, op)
            if due <= now:
                late.append(culprit)
            else:
                earliest = min(earliest, due)
        self.earliest = earliest if earliest < math.inf else self._idle(now)
        return late

    def _idle(self, now: float) -> float:
        """Nothing is under way: look again after a while, so that not every step has to wake the keeper."""
        limit = min(self.step_limit, self.reset_limit)
        return now + max(limit * self._part, 1.0) if limit < math.inf else math.inf

    def _due(
        self, worker: int, pending: list[int], now: float, arena: Arena, op: NDArray[np.uint8]
    ) -> tuple[float, int]:
        running, phase = max(int(arena.running[worker]), -1), int(arena.phase[worker])
        current = running if running in pending else pending[0]
        resets = phase == 1 or op[current] == RESETTING
        limit = self.reset_limit if resets else self.step_limit
        inline = phase == 1 and op[current] != RESETTING
        if len(self._envs_of[worker]) == 1 and not inline:
            return float(self.started[current]) + limit, current
        key = (running, int(arena.seq[current]), phase)
        seen = self._seen.get(worker)
        if seen is None or seen[0] != key:
            begun = float(self.started[current])
            # A worker that was given only this one has begun when it was sent.
            company = any(self.started[i] >= begun for i in self._envs_of[worker] if i != current)
            since = max(begun, now) if company or inline else begun
            self._seen[worker] = (key, since)
        since = self._seen[worker][1]
        if since + limit <= now:
            return since + limit, current
        return min(since + limit, now + max(limit * _PART, 0.005)), current
