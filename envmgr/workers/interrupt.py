"""Breaking off a call that takes too long, from inside its own thread.

A signal handler in the main thread raises Interrupted where the env's code stands; sleeping and
waiting calls of Python end with it, a C function that never comes back does not (its worker is
killed then). The handler looks whether the call that was meant is the one that runs, so that an
order that comes late hits nothing.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType

from envmgr.memory.arena import Arena
from envmgr.workers.hygiene import INTERRUPT_SIGNAL


class Interrupted(BaseException):
    """Raised inside an env's call that took longer than it may."""


class Interrupter:
    """Raises in the running call when the arena's ``stop_`` rows ask for it.

    Which call runs is what the ``running`` row says: a worker sets it right before the call and
    takes it back right after, inside the same ``try``.

    Attributes:
        building: Whether an env_fn runs. There are no rows yet, and nothing else that could be meant.
    """

    __slots__ = ("_arena", "_running", "_worker", "building")

    def __init__(self) -> None:
        self.building = False
        self._arena: Arena | None = None
        self._worker = 0
        self._running: memoryview | None = None

    def bind(self, arena: Arena, worker: int) -> None:
        """Says where the orders stand."""
        self._worker = worker
        self._running = arena.bytes_of("running").cast("i")[worker : worker + 1]
        self._arena = arena

    def install(self) -> None:
        """Takes the signal; only a main thread can, elsewhere it does nothing."""
        if INTERRUPT_SIGNAL is None or threading.current_thread() is not threading.main_thread():
            return
        with contextlib.suppress(ValueError, OSError):
            signal.signal(INTERRUPT_SIGNAL, self._handle)

    def _handle(self, _signum: int, _frame: FrameType | None) -> None:
        arena, worker, running = self._arena, self._worker, self._running
        if self.building:
            self.building = False
            raise Interrupted
        if arena is None or running is None:
            return
        env = running[0]
        if (
            env >= 0
            and int(arena.stop_env[worker]) == env
            and int(arena.stop_seq[worker]) == int(arena.seq[env])
        ):
            arena.stop_env[worker] = -1
            running[0] = -1
            raise Interrupted
