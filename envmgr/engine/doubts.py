"""What stands in rows and belongs to no step that anybody is told of.

A worker that died in the middle of a batch had written steps that it had not announced; a call that was
broken off, and came back as if it had not been, has left who knows what. Their rows are marked dirty: who
asks for the last good observation is given zeros. Called with the lock.
"""

from __future__ import annotations

from envmgr.engine.blame import Overrun
from envmgr.engine.core import Core
from envmgr.engine.machine import STEPPING
from envmgr.workers import contract as c

_PENDING, _FINAL = int(c.Flag.PENDING), int(c.Status.FINAL)


class Doubts:
    """Says which rows are not to be believed.

    Args:
        core: What the parts share.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def swallowed(self, i: int) -> bool:
        """Whether a call was broken off, and its env came back as if it had not been: with who knows what.

        An order that came too late to break anything off still stands; what it was for is a good step.
        """
        broken_off = isinstance(self._core.machine.interrupted(i), Overrun)
        return broken_off and int(self._core.arena.stop_env[self._core.worker_of[i]]) != i

    def disown(self, i: int, status: int) -> None:
        """What a step has left in its row, and the reset that followed it, are told to nobody."""
        self._core.arena.dirty[i] = 1
        if status & _FINAL:
            self._core.seeds.give_back(i)

    def at_work(self, worker: int) -> int:
        """The env whose call runs in a worker, or whose row it writes; -1 where it does neither.

        Beside a call that swallowed its interrupt, or with an info or an end to write, no call counts as
        running: then the rest says which it is.
        """
        arena = self._core.arena
        if (running := int(arena.running[worker])) >= 0:
            return running
        taken = self._taken(worker)
        at = [i for i in taken if arena.dirty[i]] or [i for i in taken if self.swallowed(i)]
        return at[0] if at else -1

    def _taken(self, worker: int) -> list[int]:
        """Envs whose step a worker has begun with, alone or in a batch, and not announced."""
        arena, op = self._core.arena, self._core.machine.op
        envs = self._core.pool.envs_of[worker]
        return [i for i in envs if arena.flag[i] == _PENDING and not arena.cmd[i] and op[i] == STEPPING]

    def distrust(self, worker: int) -> None:
        """What a dead worker had written and not announced belongs to no step that anybody was told of."""
        arena, at = self._core.arena, self.at_work(worker)
        if at < 0 and len(self._core.pool.envs_of[worker]) > 1:  # how far it was, nobody knows
            at = self._core.env_num
        for i in self._taken(worker):
            if i < at:
                arena.dirty[i] = 1
