"""The life of an engine: it comes up, has rows and a keeper, and is closed, from whatever thread, once.

What goes on between the two is not here. Whatever breaks off a launch or a close (an error, a Ctrl-C, the
other of the two from another thread) leaves nothing half started behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from envmgr.engine import events as e
from envmgr.engine.core import Core
from envmgr.engine.keeper import Keeper
from envmgr.engine.startup import check_specs, come_up, plan_of
from envmgr.engine.troubles import log_bad_closes
from envmgr.errors import ManagerClosedError
from envmgr.memory.arena import Arena
from envmgr.workers import contract as c

_CONNECT_ENDS = 5.0  # seconds beyond the grace in which a launch that is called off closes what it began


class Life:
    """Opens and closes what an engine works with.

    Args:
        core: What the parts share.
        specs: Filled with the spec of every env.
        lay: Hands the rows to the parts that look at them.
        before_end: Called with the lock before the workers are closed.
        engine: What the keeper looks after.

    Attributes:
        closed: Whether everything is closed; ``core.closing`` says so from the moment it was asked for.
    """

    def __init__(
        self,
        core: Core,
        specs: dict[int, c.EnvSpec],
        lay: Callable[[Arena], None],
        before_end: Callable[[], None],
        engine: Any,
    ) -> None:
        self.closed = False
        self._core = core
        self._pool = core.pool
        self._specs = specs
        self._lay = lay
        self._before_end = before_end
        self._engine = engine
        self._keeper: Keeper | None = None
        self._coming_up = threading.RLock()
        self._ender: int | None = None
        self._connector: int | None = None

    def connect(self) -> None:
        """Brings the workers up, makes the rows and starts the keeper. Closes everything on an error.

        Raises:
            ManagerClosedError: ``close`` was called meanwhile; by then everything is closed.
        """
        with self._coming_up:
            self._connector = threading.get_ident()
            try:
                self._come_up()
            except BaseException:  # a Ctrl-C too: nothing half started stays behind
                with self._core.lock:
                    self._core.closing = True
                self._end()
                raise
            finally:
                self._connector = None

    def _come_up(self) -> None:
        core, pool = self._core, self._pool
        self._check_wanted()
        core.machine.handle(e.Opened(), time.monotonic())
        limit, grace = core.settings.connect_timeout, core.settings.interrupt_grace
        pool.open()
        self._specs.update(come_up(pool, limit, grace, self._check_wanted))
        check_specs(self._specs)
        self._make_rows()
        for worker in range(pool.worker_num):
            pool.attach(worker)
            core.obey(core.machine.handle(e.WorkerCameUp(worker), time.monotonic()))
        if pool.background:
            self._keeper = Keeper(self._engine)
            core.has_keeper = True
            self._keeper.start()
        self._check_wanted()

    def _check_wanted(self) -> None:
        if self._core.closing:
            raise ManagerClosedError(
                "the manager was closed while it was launched; launch() makes it usable again"
            )

    def _make_rows(self) -> None:
        core, pool = self._core, self._pool
        plan = plan_of(self._specs[0], core.env_num, pool.worker_num, core.settings.shared_memory)
        core.arena = arena = pool.make_arena(plan)
        self._lay(arena)
        for i, spec in self._specs.items():
            if spec.style == "timestep":
                core.seeds.passes_dynamic(i)

    def _leave_rows(self) -> None:
        """Gives the shared rows back now, and not when the garbage collector finds out that nobody has them.

        A call that another thread was in may still look at rows; until it notices, it looks at nobody's.
        """
        if self._core.has_rows:
            self._lay(Arena.private(self._core.arena.plan))

    def close(self) -> dict[int, c.Failure]:
        """Closes everything, from any thread, bounded; again does nothing.

        A ``connect`` that is under way is told, and closes what it has begun itself: nobody else knows how
        far it is. It is waited for, unless this is called from inside it (a signal handler, an env_fn).

        Returns:
            What was raised where envs were closed, by env.
        """
        me, over = threading.get_ident(), self.closed
        with self._core.lock:
            self._core.closing = True
        if over or me in (self._connector, self._ender):
            return {}
        self._pool.nudge()
        limit = self._core.settings.close_grace + (_CONNECT_ENDS if self._pool.background else 0.0)
        if not self._coming_up.acquire(timeout=limit):
            return {}
        try:
            if self.closed:
                return {}
            self._ender = me
            return self._end()
        finally:
            self._ender = None
            self._coming_up.release()

    def _end(self) -> dict[int, c.Failure]:
        core, pool = self._core, self._pool
        failures: dict[int, c.Failure] = {}
        # By this very thread, where a signal handler closes: then the keeper cannot end before that is over.
        locked = getattr(core.lock, "_is_owned", bool)()
        try:
            pool.wake()
            if self._keeper is not None:
                self._keeper.stop(0.0 if locked else 5.0)
            with core.lock:
                self._before_end()
                failures = pool.close(core.settings.close_grace)
        finally:  # after a Ctrl-C too: who is left goes with its bell, and the nursery sees to it
            with core.lock:
                pool.close(0.0)
                core.machine.handle(e.Closed(), time.monotonic())
                self.closed = True
                if not locked:  # else this very thread is at them
                    self._leave_rows()
                core.arena = None
        log_bad_closes(failures)
        return failures
