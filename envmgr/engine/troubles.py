"""Deaths, hellos, alarms, deadlines: what the keeper hears, and what force is used.

Everything here is called with the lock. The machine decides; this turns what was seen into its events, and
knows how to interrupt, kill and renew.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import Any

from envmgr.engine import events as e
from envmgr.engine.blame import Death, Overrun, error_for, why_killed
from envmgr.engine.core import Core
from envmgr.engine.doubts import Doubts
from envmgr.engine.inbox import Inbox
from envmgr.engine.machine import RESETTING
from envmgr.engine.outbox import Outbox
from envmgr.engine.replies import Replies
from envmgr.engine.startup import STACK_LOOK, STACK_WAIT, ended_by_interrupt
from envmgr.log import log as _log
from envmgr.workers import contract as c

_IDLE = int(c.Flag.IDLE)
_KILL_AGAIN = 1.0  # seconds; nobody knew the process yet, perhaps
_SLOW_START = "it did not come up in time"


@dataclasses.dataclass(slots=True)
class _Dying:
    """A worker that is being killed: asked for its stack first, which nobody waits for with the lock.

    ``told``: whether the kill is news beside the end of the worker, which is told with its reason.
    ``retired``: whether it was asked to go, nothing being wrong with it, and is killed if it does not.
    """

    why: str
    until: float
    look: float
    told: bool = True
    retired: bool = False
    stack: str = ""
    killed: bool = False


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
        self._doubts = Doubts(core)
        self._specs = specs
        self._pool, self._machine = core.pool, core.machine
        self._dying: dict[int, _Dying] = {}
        self._connecting: dict[int, float] = {}
        self._late: set[int] = set()
        self._failed_workers: set[int] = set()

    def next_look(self) -> float:
        """When something is due, infinity for never."""
        times = [dying.look for dying in self._dying.values()]
        if self._core.failure is None:  # it waits for the caller, and all else waits for that
            due = self._machine.next_due()
            times += [self._core.deadlines.earliest, *self._connecting.values()]
            times += [] if due is None else [due]
        return min(times, default=float("inf"))

    def look_after(self, ready: list[Any], now: float) -> None:
        """Takes what the pool has heard, and the clock."""
        core = self._core
        for event in self._pool.handle(ready):
            self._pool_event(event, now)
        self._end_dying(now)
        if core.failure is not None:
            return
        for i in core.deadlines.overdue(now, core.arena, self._machine.op):
            self._overdue(i, now)
        for worker, until in list(self._connecting.items()):
            if now >= until:
                self._hurry(worker, now)
        core.obey(self._machine.handle(e.Tick(), now))

    def _hurry(self, worker: int, now: float) -> None:
        """A new worker has not come up in time: it is interrupted, then asked for its stack, then killed."""
        del self._connecting[worker]
        if worker not in self._late:
            self._late.add(worker)
            self._connecting[worker] = now + self._core.settings.interrupt_grace
            self._pool.interrupt_build(worker)
            return
        asked = self._pool.ask_stack(worker)
        self._dying[worker] = _Dying(_SLOW_START, now + (STACK_WAIT if asked else 0.0), now)
        self._end_dying(now)

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
            cause: Any = event.failure
            if event.worker in self._late and event.failure.interrupted:
                cause = self._slow_start(event.worker, event.failure.traceback)
            self._late.discard(event.worker)
            failed = e.WorkerFailedToBuild(event.worker, event.env_id, cause)
            self._core.obey(self._attempted(failed, {event.env_id: cause}, now, "init"))
        elif isinstance(event, c.WorkerLost):
            self._worker_lost(event, now)
        elif isinstance(event, c.PoolBroken):
            _log.error("%s", event.text)
            self._core.obey([e.Fail("init", 0, event.text)])

    def _slow_start(self, worker: int, stack: str) -> Overrun:
        limit = self._core.settings.connect_timeout or 0.0
        return Overrun("connect", limit, stack, pid=self._pool.pid(worker))

    def _worker_up(self, event: c.WorkerUp, now: float) -> None:
        worker = event.worker
        self._connecting.pop(worker, None)
        self._late.discard(worker)
        dying = self._dying.get(worker)
        if dying is not None and dying.why == _SLOW_START and not dying.killed:
            del self._dying[worker]  # it was only asked where it is
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
        was_up = self._machine.worker_up[worker]
        running = self._doubts.at_work(worker) if was_up else -1  # its predecessor's, before it had its rows
        self._replies.collect()  # what it had finished before counts
        self._doubts.distrust(worker)
        self._inbox.whole_due = False
        self._replies.talking.discard(worker)
        self._connecting.pop(worker, None)
        dying = self._dying.pop(worker, None)
        if worker in self._failed_workers:  # it has said why already
            self._failed_workers.discard(worker)
            return
        for i in envs:
            arena.seq[i] += 1
            arena.cmd[i] = 0
            arena.flag[i] = _IDLE
            if arena.seeded[i]:  # laid ready for a reset that this worker did not come to
                core.seeds.give_back(i)
                arena.seeded[i] = 0
            core.deadlines.ended(i)
            core.troubled.add(i)
            self._pool.forget(worker, i)
        stack = dying.stack if dying is not None else ""
        why = dying.why if dying is not None and dying.killed else ""
        if worker in self._late and ended_by_interrupt(event.report):
            why = _SLOW_START
        self._late.discard(worker)
        core.deaths[worker] = death = Death(event.report, tuple(envs), stack, why)
        cause: Any = death
        if why == _SLOW_START:
            cause = self._slow_start(worker, stack)
        causes: dict[int, Any] = dict.fromkeys(envs, cause)
        for i in envs:
            interrupted = self._machine.interrupted(i)
            if isinstance(interrupted, Overrun):
                interrupted.stack = stack
                causes[i] = interrupted
        report = dataclasses.replace(event.report, why=why or event.report.why)
        words = self._pool.last_words(worker) if dying is not None and dying.retired else None
        level = logging.WARNING if words is None else logging.DEBUG
        _log.log(level, "worker %d is gone: %s; its envs: %s", worker, report, list(envs))
        log_bad_closes(words or {})
        ended = e.WorkerEnded(worker, cause, running if running >= 0 else None)
        core.obey(self._attempted(ended, causes, now, "reset" if was_up else "init"))
        self._pool.wake()

    def _attempted(self, event: e.Event, causes: dict[int, Any], now: float, op: str) -> list[e.Instruction]:
        """Hands an event to the machine, and logs which resets failed with it and are tried again."""
        machine = self._machine
        before = {i: machine.attempts(i)[1] for i in causes}
        orders = machine.handle(event, now)
        if not any(isinstance(order, e.Fail) and order.what != "step" for order in orders):
            for i, cause in causes.items():
                attempt = machine.attempts(i)[1]
                if attempt > before[i]:
                    self._replies.log_attempt(i, "reset", attempt, error_for(i, cause, op))
                elif isinstance(event, e.WorkerFailedToBuild):  # nobody waits for it, and still it is tried
                    _log.warning("env %d is tried to be built again: %s", i, error_for(i, cause, "init"))
        return orders

    # -- force, on the machine's order -----------------------------------------------------------------

    def renew(self, worker: int) -> None:
        """Starts a fresh worker in the place of one that is gone."""
        for i in self._pool.envs_of[worker]:
            self._core.seeds.renewed(i)
            self._outbox.renewed(i)
        self._dying.pop(worker, None)
        self._late.discard(worker)
        self._failed_workers.discard(worker)  # its end is no news any more, but that of the new one is
        self._pool.renew(worker)
        limit = self._core.settings.connect_timeout
        if limit is not None:
            self._connecting[worker] = time.monotonic() + limit

    def retire(self, worker: int) -> None:
        """Has a worker close its envs and go; one that takes too long over it is killed."""
        until = time.monotonic() + self._core.settings.close_grace
        self._dying[worker] = _Dying("it did not close its envs in time", until, until, retired=True)
        self._pool.retire(worker)

    def kill(self, order: e.Kill) -> None:
        """Kills a worker; one that is stuck has a moment in which it may write its stack for the report."""
        now = time.monotonic()
        envs = self._pool.envs_of[order.worker]
        stuck = any(self._machine.interrupted(i) is not None for i in envs)
        asked = stuck and self._pool.ask_stack(order.worker)
        until = now + (STACK_WAIT if asked else 0.0)
        self._dying[order.worker] = _Dying(why_killed(order, len(envs) > 1), until, now, told=stuck)
        self._end_dying(now)

    def _end_dying(self, now: float) -> None:
        for worker, dying in self._dying.items():
            if now < dying.look:
                continue
            text = self._pool.take_stack(worker)
            dying.stack += text
            if not dying.killed and (now >= dying.until or (dying.stack and not text)):
                dying.killed = True
                if dying.told:
                    pid, stack = self._pool.pid(worker), f"\n{dying.stack}".rstrip()
                    _log.warning("worker %d (process %s) is killed: %s%s", worker, pid, dying.why, stack)
            if dying.killed:
                self._pool.kill(worker)
            dying.look = now + (_KILL_AGAIN if dying.killed else STACK_LOOK)

    def interrupt(self, i: int) -> None:
        """Breaks off the call of an env that takes too long."""
        core = self._core
        core.deadlines.grant(i, time.monotonic() + core.settings.interrupt_grace)
        self._pool.interrupt(int(core.worker_of[i]), i, int(core.arena.seq[i]))


def log_bad_closes(failures: dict[int, c.Failure]) -> None:
    """Says which envs raised in their ``close``; nobody waits for it any more."""
    for env_id, failure in failures.items():
        _log.warning(
            "env %d raised in close: %s: %s\n%s", env_id, failure.kind, failure.text, failure.traceback
        )
