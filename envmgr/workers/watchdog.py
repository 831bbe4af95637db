"""The clock of `base`: one thread that breaks a call off when it takes longer than it may.

A thread per call would cost more than most steps, and so would waking one. This one is started by the
first call that has a limit and then sleeps until the time that it planned to look. Calls that come and go
meanwhile only move the deadline: when it wakes and finds it later, it plans anew. It is woken only for a
deadline that is earlier than its plan, or when it has none; so with one limit it wakes once per limit, not
once per call.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

WATCHDOG_NAME = "envmgr-watchdog"
"""The name of the thread."""
_JOIN = 5.0  # seconds that ``close`` waits for it at the most; it never holds anything up for long


class Watchdog:
    """Calls ``bite(target)`` from its thread when a call is not over in time.

    ``bite`` is called with the lock: once ``disarm`` has returned it is over, or will not come. It must not
    block, nor call back.

    Args:
        bite: What is done to a call that is late.
    """

    def __init__(self, bite: Callable[[int], None]) -> None:
        self._bite = bite
        self._changed = threading.Condition(threading.Lock())
        self._due = math.inf
        self._planned = math.inf
        self._target = -1
        self._bitten = False
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def arm(self, limit: float, target: int) -> None:
        """A call begins, that may take ``limit`` seconds."""
        due = time.monotonic() + limit
        with self._changed:
            self._due, self._target, self._bitten = due, target, False
            if due < self._planned and not self._stopped:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=WATCHDOG_NAME, daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:  # the interpreter is ending: nobody can watch any more
                        return
                    self._thread = thread
                else:
                    self._changed.notify()
                self._planned = due

    def disarm(self) -> bool:
        """The call is over; whether it was bitten."""
        with self._changed:
            self._due = math.inf
            return self._bitten

    def close(self) -> None:
        """Ends the thread, from any thread; again does nothing. In a forked child there is none to end."""
        if os.getpid() != self._pid:  # and who held the lock at the fork will never release it here
            return
        with self._changed:
            self._stopped = True
            self._changed.notify()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN)

    def _run(self) -> None:
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                if self._due <= now:
                    self._due, self._bitten = math.inf, True
                    self._bite(self._target)
                if self._planned <= now:
                    self._planned = self._due
                if self._planned == math.inf:
                    self._changed.wait()
                else:
                    self._changed.wait(min(self._planned - now, threading.TIMEOUT_MAX))
