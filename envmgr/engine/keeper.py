"""The keeper: the one background thread of a manager.

It sleeps for what must not wait for the caller (deaths, failed resets, hellos of renewed workers)
and until the next deadline, and tells the engine. It never touches a result, so a caller that is
busy stepping does not share the interpreter with it.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from envmgr.log import log as _log
from envmgr.workers.nursery_client import KEEPER_NAME


class Keeper:
    """Runs ``engine.look_after`` whenever there is something to look after.

    Args:
        engine: Offers ``pool``, ``next_look()``, ``look_after(ready, now)`` and ``keeper_failed(error)``.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._stop = False
        self._thread = threading.Thread(target=self._run, name=KEEPER_NAME, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Ends the thread and waits for it, unless this is it."""
        self._stop = True
        self._engine.pool.nudge()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        engine = self._engine
        try:
            while not self._stop:
                due = engine.next_look()
                timeout = None if due is None else max(0.0, due - time.monotonic())
                ready = engine.pool.poll(timeout)
                engine.look_after(ready, time.monotonic())
        except BaseException as error:  # a bug here must reach the caller, not die in a thread
            if not self._stop:
                self._tell(error)
                _log.exception("the keeper of a manager failed")

    def _tell(self, error: BaseException) -> None:
        """Wakes the caller, first of all: nobody else would any more."""
        try:
            self._engine.keeper_failed(error)
        except BaseException:  # the error may be a user's own, whose repr raises
            self._engine.keeper_failed(RuntimeError(type(error).__name__))
