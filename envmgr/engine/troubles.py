"""Deaths, hellos, alarms, deadlines: what the keeper hears, and what force is used.

Everything here is called with the lock. The machine decides; this turns what was seen into its events, and
knows how to interrupt, kill and renew.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from envmgr.engine import events as e
from envmgr.engine.blame import Death, Overrun
from envmgr.engine.core import Core
from envmgr.engine.inbox import Inbox
from envmgr.engine.machine import RESETTING
from envmgr.engine.outbox import Outbox
from envmgr.engine.replies import Replies
from envmgr.workers import contract as c

_log = logging.getLogger("envmgr")
_IDLE = int(c.Flag.IDLE)


class Troubles:
    """Looks after what goes wrong.

    Args:
        core: What the parts share.
        inbox: Of the results.
        outbox: For what a fresh worker has to be told.
        replies: For what a dead worker had finished before.
        specs: What workers said of their envs at launch.
    """

    def __init__(
        self, core: Core, inbox: Inbox, outbox: Outbox, replies: Replies, specs: dict[int, c.EnvSpec]
    ) -> None:
        self._core = core
        self._inbox = inbox
        self._outbox = outbox
        self._replies = replies
        self._specs = specs
        self._pool, self._machine = core.pool, core.machine
        self._stacks: dict[int, str] = {}
        self._killed: dict[int, str] = {}
        self._connecting: dict[int, float] = {}
        self._failed_workers: set[int] = set()

    def next_look(self) -> float:
        """When something is due, infinity for never."""
        due = self._machine.next_due()
        times = [self._core.deadlines.earliest, *self._connecting.values()]
        return min(times) if due is None else min(*times, due)

    def look_after(self, ready: list[Any], now: float) -> None:
        """Takes what the pool has heard, and the clock."""
        core = self._core
        for event in self._pool.handle(ready):
            self._pool_event(event, now)
        if core.failure is not None:
            return
        for i in core.deadlines.overdue(now, core.arena, self._machine.op):
            self._overdue(i, now)
        for worker, until in list(self._connecting.items()):
            if now >= until:
                del self._connecting[worker]
                self._killed[worker] = "connect"
                self._pool.kill(worker)
        core.obey(self._machine.handle(e.Tick(), now))

    def _overdue(self, i: int, now: float) -> None:
        core = self._core
        op = "reset" if self._machine.op[i] == RESETTING else "step"
        worker = int(core.worker_of[i])
        if op == "step" and int(core.arena.phase[worker]) == 1:
            op = "reset"
        limit = core.settings.step_timeout if op == "step" else core.settings.reset_timeout
        cause = Overrun(op, limit or 0.0, pid=self._pool.pid(worker), worker_killed=True)
        core.troubled.add(i)
        core.obey(self._machine.handle(e.DeadlinePassed(i, cause), now))

    # -- what the pool tells ---------------------------------------------------------------------------

    def _pool_event(self, event: c.PoolEvent, now: float) -> None:
        if isinstance(event, c.Alarm):
            self._replies.collect_resets()
        elif isinstance(event, c.WorkerUp):
            self._worker_up(event, now)
        elif isinstance(event, c.WorkerFailed):
            self._connecting.pop(event.worker, None)
            self._failed_workers.add(event.worker)
            failed = e.WorkerFailedToBuild(event.worker, event.env_id, event.failure)
            self._core.obey(self._machine.handle(failed, now))
        elif isinstance(event, c.WorkerLost):
            self._worker_lost(event, now)
        elif isinstance(event, c.PoolBroken):
            _log.error("%s", event.text)
            self._core.obey([e.Fail("init", 0, event.text)])

    def _worker_up(self, event: c.WorkerUp, now: float) -> None:
        worker = event.worker
        self._connecting.pop(worker, None)
        first = self._specs[0]
        for i, spec in event.specs.items():
            difference = first.obs.difference(spec.obs) or first.action.difference(spec.action)
            if difference is not None:
                self._core.obey([e.Fail("init", i, f"after its renewal it has other spaces: {difference}")])
                return
        self._pool.attach(worker)
        self._core.obey(self._machine.handle(e.WorkerCameUp(worker), now))
        self._pool.wake()

    def _worker_lost(self, event: c.WorkerLost, now: float) -> None:
        core, worker = self._core, event.worker
        arena = core.arena
        envs = self._pool.envs_of[worker]
        self._replies.collect()  # what it had finished before counts
        self._inbox.whole_due = False
        self._replies.talking.discard(worker)
        self._connecting.pop(worker, None)
        if worker in self._failed_workers:  # it has said why already
            self._failed_workers.discard(worker)
            return
        for i in envs:
            arena.seq[i] += 1
            arena.cmd[i] = 0
            arena.flag[i] = _IDLE
            arena.seeded[i] = 0
            core.deadlines.ended(i)
            core.troubled.add(i)
            self._pool.forget(worker, i)
        stack, killed = self._stacks.get(worker, ""), self._killed.get(worker, "")
        cause: Any = Death(event.report, tuple(envs), stack, killed)
        if killed == "connect":
            cause = Overrun("connect", core.settings.connect_timeout or 0.0, pid=event.report.pid)
        for i in envs:
            interrupted = self._machine.interrupted(i)
            if isinstance(interrupted, Overrun):
                interrupted.stack = stack
        _log.warning("worker %d is gone: %s; its envs: %s", worker, event.report, list(envs))
        core.obey(self._machine.handle(e.WorkerEnded(worker, cause), now))
        self._pool.wake()

    # -- force, on the machine's order -----------------------------------------------------------------

    def renew(self, worker: int) -> None:
        """Starts a fresh worker in the place of one that is gone."""
        for i in self._pool.envs_of[worker]:
            self._core.seeds.renewed(i)
            self._outbox.renewed(i)
        self._killed.pop(worker, None)
        self._stacks.pop(worker, None)
        self._failed_workers.discard(worker)  # its end is no news any more, but that of the new one is
        self._pool.renew(worker)
        limit = self._core.settings.connect_timeout
        if limit is not None:
            self._connecting[worker] = time.monotonic() + limit

    def kill(self, order: e.Kill) -> None:
        """Kills a worker; its stack is kept for the report."""
        worker = order.worker
        stack = self._pool.dump_stack(worker)
        if stack:
            self._stacks[worker] = stack
        self._killed[worker] = order.why
        _log.warning("worker %d (process %s) is killed: %s\n%s", worker, self._pool.pid(worker), order.why,
                     stack)  # fmt: skip
        self._pool.kill(worker)

    def interrupt(self, i: int) -> None:
        """Breaks off the call of an env that takes too long."""
        core = self._core
        core.deadlines.grant(i, time.monotonic() + core.settings.interrupt_grace)
        self._pool.interrupt(int(core.worker_of[i]), i, int(core.arena.seq[i]))
