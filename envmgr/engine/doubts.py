"""What stands in rows and belongs to no step that anybody is told of.

A worker marks a row as dirty before it stores an observation there, and takes that back once it has announced
it: who died in between, or failed, has written over the last good observation. Steps that were announced
can be disowned too: a call that was broken off, and came back as if it had not been, has left who knows what.
Who asks for the last good observation is then given zeros. Called with the lock.
"""

from __future__ import annotations

from envmgr.engine.blame import Overrun
from envmgr.engine.core import Core
from envmgr.engine.machine import STEPPING
from envmgr.workers import contract as c

_PENDING, _IN = int(c.Flag.PENDING), int(c.Flag.IN)
_FINAL = int(c.Status.FINAL)


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
        """What a step has left in its row, and the reset that followed it, are told to nobody.

        Rows that are not shared are this side's own: nothing has come into them yet.
        """
        if self._core.arena.plan.obs.shared:
            self._core.disowned.add(i)
        if status & _FINAL:
            self._core.seeds.give_back(i)

    def taken_back(self, i: int) -> bool:
        """Whether the row of an env whose step failed holds anything else than its last good observation.

        Asked once: then the row is zeros.
        """
        core = self._core
        doubtful = bool(core.arena.dirty[i]) or i in core.disowned
        core.arena.dirty[i] = 0
        core.disowned.discard(i)
        return doubtful

    def at_work(self, worker: int) -> int:
        """The env whose call runs in a worker, or whose values it writes; -1 where it does neither.

        Beside a call that swallowed its interrupt no call counts as running: then that tells which it is.
        """
        core = self._core
        if (running := int(core.arena.running[worker])) >= 0:
            return running
        if running < -1:
            return -2 - running
        return next((i for i in core.pool.envs_of[worker] if self._begun(i) and self.swallowed(i)), -1)

    def _begun(self, i: int) -> bool:
        """Whether a worker has begun with a step that it has not answered whole, its message included."""
        arena = self._core.arena
        flag = arena.flag[i]
        begun = flag == _IN or (flag == _PENDING and not arena.cmd[i])
        return bool(begun and self._core.machine.op[i] == STEPPING)

    def distrust(self, worker: int) -> None:
        """Of a dead worker's rows only those can be dirty with whose step it had begun.

        It may not have come to take back the mark of one that was announced, and taken in since.
        """
        for i in self._core.pool.envs_of[worker]:
            if not self._begun(i):
                self._core.arena.dirty[i] = 0
