"""The worker that is the caller itself: envs run where their commands are sent.

The same stepper, rows and messages as in a process, so that `base` gives the same results and a
debugger stops inside the env. Each env is a worker of its own here, so that one can be renewed
alone. Nothing happens in the background; limits on time are kept by a watchdog (one thread, and only
where there are limits) that breaks the call off where it can.
"""

from __future__ import annotations

import collections
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from envmgr.memory.arena import Arena, ArenaPlan
from envmgr.memory.sides import own_copy
from envmgr.workers import contract as c
from envmgr.workers.build import build_env, call_env, describe
from envmgr.workers.failures import capture
from envmgr.workers.hygiene import INTERRUPT_SIGNAL
from envmgr.workers.interrupt import Interrupted, Interrupter
from envmgr.workers.outside import from_a_signal, quietly
from envmgr.workers.stepper import Stepper
from envmgr.workers.watchdog import Watchdog

_IN = int(c.Flag.IN)
_LEAST = 0.05  # seconds that each env has for its close, however long those before it took


class SerialPool:
    """See ``contract.Pool``.

    Args:
        env_fns: One callable per env.
        options: What a stepper is told.
        step_limit: Seconds for a step, None for none.
        reset_limit: Seconds for a reset, None for none.
    """

    background = False

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        options: dict[str, Any],
        step_limit: float | None = None,
        reset_limit: float | None = None,
    ) -> None:
        self._env_fns = list(env_fns)
        self.env_num = self.worker_num = len(self._env_fns)
        self.worker_of = list(range(self.env_num))
        self.envs_of = [range(i, i + 1) for i in range(self.env_num)]
        self._options = options
        self._limits = (step_limit, reset_limit)
        self._adapted: dict[int, Any] = {}
        self._steppers: dict[int, Stepper] = {}
        self._interrupters: dict[int, Interrupter] = {}
        self._events: collections.deque[c.PoolEvent] = collections.deque()
        self._extras: dict[tuple[int, int], c.Extra] = {}
        self._answers: dict[int, tuple[bool, Any]] = {}
        self._arena: Arena | None = None
        self._woken = threading.Event()
        self._pressed: BaseException | None = None
        self._watchdog = Watchdog(self._break_off)
        self.sending: set[int] = set()
        self._closed = False

    def open(self) -> None:
        """Builds every env, here."""
        for worker in range(self.worker_num):
            self.renew(worker)

    def renew(self, worker: int) -> None:
        """Builds an env anew."""
        try:
            adapted = self._adapted[worker] = build_env(worker, self._env_fns[worker], pickled=False)
            spec = describe(adapted)
        except BaseException as error:  # an env_fn may raise anything; Ctrl-C is the caller's own, though
            if from_a_signal(error):
                raise
            self._events.append(c.WorkerFailed(worker, worker, capture(error, "env_fn", in_process=True)))
            return
        self._events.append(c.WorkerUp(worker, {worker: spec}))

    def make_arena(self, plan: ArenaPlan) -> Arena:
        """Makes the rows, in private memory."""
        self._arena = Arena.private(plan)
        return self._arena

    def attach(self, worker: int) -> None:
        """Puts a stepper over the rows."""
        if self._arena is None:
            return
        interrupter = self._interrupters[worker] = Interrupter()
        self._steppers[worker] = Stepper(
            self._arena,
            worker,
            self.envs_of[worker],
            [self._adapted[worker]],
            self._post,
            self._ring_back,
            interrupter=interrupter,
            pressed=self._press,
            **self._options,
        )

    def _post(self, env_id: int, seq: int, extra: c.Extra) -> None:
        self._extras[env_id, seq] = extra

    def _ring_back(self, alarm: bool) -> None:
        """Nobody sleeps here: the caller looks when the call is over."""

    def poll(self, timeout: float | None) -> list[Any]:
        """Nothing happens while nobody calls."""
        return []

    def handle(self, ready: list[Any]) -> list[c.PoolEvent]:
        """What has happened in calls."""
        events = list(self._events)
        self._events.clear()
        return events

    @property
    def news(self) -> bool:
        """Whether ``handle`` has something to tell."""
        return bool(self._events)

    def nudge(self) -> None:
        """There is nothing to end."""

    def _press(self, error: BaseException) -> None:
        self._pressed = self._pressed or error

    def raise_pressed(self) -> None:
        """Raises what is the caller's own (a Ctrl-C) and has hit an env's call."""
        pressed, self._pressed = self._pressed, None
        if pressed is not None:
            raise pressed

    def ring(self, workers: Sequence[int]) -> None:
        """Runs what is in the rows, now; after a Ctrl-C the rest of it waits for the caller's next call."""
        for worker in workers:
            if self._pressed is not None:
                self.sending.add(worker)
                continue
            stepper = self._steppers.get(worker)
            if stepper is None:
                continue
            if self._limits == (None, None):
                stepper.work()
            else:
                self._work_within_limits(worker, stepper)

    def _work_within_limits(self, worker: int, stepper: Stepper) -> None:
        arena = self._arena
        if arena is None:
            return
        resets = int(arena.cmd[worker]) & ~c.WITH_MESSAGE == c.Cmd.RESET
        self._within(self._limits[1 if resets else 0], worker, stepper.work)

    def _within(self, limit: float | None, worker: int, call: Callable[[], None]) -> None:
        """Calls, and has what runs of the env broken off when it takes longer than it may."""
        # Only a main thread takes signals for Python; elsewhere the call cannot be broken off.
        main = threading.current_thread() is threading.main_thread()
        if limit is None or INTERRUPT_SIGNAL is None or not main:
            call()
            return
        before = signal.getsignal(INTERRUPT_SIGNAL)
        self._interrupters[worker].install()
        try:
            self._watchdog.arm(limit, worker)
            call()
        finally:
            if self._watchdog.disarm():
                _take_signal(INTERRUPT_SIGNAL)
            if before is not None:
                signal.signal(INTERRUPT_SIGNAL, before)

    def _break_off(self, worker: int) -> None:
        arena, main = self._arena, threading.main_thread().ident
        if arena is None or main is None or INTERRUPT_SIGNAL is None:
            return
        arena.stop_env[worker] = worker
        arena.stop_seq[worker] = arena.seq[worker]
        with contextlib.suppress(OSError):
            signal.pthread_kill(main, INTERRUPT_SIGNAL)

    def pack(self, message: Any) -> Any:
        """Nothing leaves this process; but what an env is given is its own, as anywhere else."""
        if type(message) is tuple and message and message[0] == c.ARGUMENT:
            return (*message[:3], own_copy(message[3]))
        return message

    def send_packed(self, worker: int, packed: Any) -> None:
        """Takes a message at once."""
        kind = packed[0]
        if kind == c.ARGUMENT:
            self._steppers[worker].argument(*packed[1:])
        elif kind == c.CALL:
            _, call_id, env_id, op, name, args, kwargs = packed
            try:
                self._answers[call_id] = (
                    True,
                    call_env(self._adapted[env_id], op, name, args, kwargs, here=True),
                )
            except BaseException as error:  # whatever the env raises is the answer
                if from_a_signal(error):
                    raise
                self._answers[call_id] = False, capture(error, op, in_process=True)

    def extra(self, worker: int, env_id: int, seq: int) -> c.Extra | None:
        """The message of a reply."""
        return self._extras.pop((env_id, seq), None)

    def forget(self, worker: int, env_id: int) -> None:
        """Drops messages that nobody waits for."""
        for key in [k for k in self._extras if k[0] == env_id]:
            del self._extras[key]

    def answer(self, worker: int, call_id: int) -> tuple[bool, Any] | None:
        """The answer to a call."""
        return self._answers.pop(call_id, None)

    def drop_answer(self, worker: int, call_id: int) -> None:
        """It is here already, as every answer."""
        self._answers.pop(call_id, None)

    def wait(self, need: int, timeout: float | None, talking: Sequence[int] = ()) -> None:
        """Sleeps until a retry is due, or until another thread closes the manager."""
        if self._arena is not None and self._arena.flag.tobytes().count(_IN) >= need:
            return
        self._woken.wait(0.05 if timeout is None else timeout)
        self._woken.clear()

    def exchange(self) -> None:
        """Runs what a Ctrl-C has left."""
        left = sorted(self.sending)
        self.sending.clear()
        self.ring(left)

    def wake(self) -> None:
        """Ends ``wait``."""
        self._woken.set()

    def interrupt(self, worker: int, env_id: int, seq: int) -> None:
        """Calls are broken off by the watchdog."""

    def interrupt_build(self, worker: int) -> None:
        """There is no limit to it here."""

    def ask_stack(self, worker: int) -> bool:
        """The caller has its own stack."""
        return False

    def take_stack(self, worker: int) -> str:
        """There is none."""
        return ""

    def retire(self, worker: int) -> None:
        """Closes the env, so that it can be built anew."""
        self.kill(worker)

    def last_words(self, worker: int) -> dict[int, c.Failure] | None:
        """Nothing: a retired env went as it was asked to."""
        return {}

    def kill(self, worker: int) -> None:
        """Closes the env, so that it can be built anew."""
        adapted = self._adapted.pop(worker, None)
        self._steppers.pop(worker, None)
        self.sending.discard(worker)
        try:
            if adapted is not None:
                quietly(adapted.close, None)  # it is being replaced because it is broken
        finally:
            self._events.append(c.WorkerLost(worker, c.ExitReport(None, None)))

    def pid(self, worker: int) -> int | None:
        """It has none of its own."""
        return None

    def close(self, grace: float) -> dict[int, c.Failure]:
        """Closes every env; breaks off what is not done after ``grace`` seconds in all."""
        failures: dict[int, c.Failure] = {}
        if self._closed:
            return failures
        self._closed = True
        self.wake()
        end = time.monotonic() + grace
        pressed: BaseException | None = None
        try:
            for env_id, adapted in self._adapted.items():
                try:
                    self._close_env(env_id, adapted, max(_LEAST, end - time.monotonic()))
                except Interrupted:
                    late = TimeoutError(
                        f"it took longer than close_grace ({grace:g} s in all) and was broken off"
                    )
                    failures[env_id] = capture(late, "close", in_process=True)
                except BaseException as error:  # one env's bad close must not keep the others open
                    if from_a_signal(error):  # nor must a Ctrl-C
                        pressed = pressed or error
                    else:
                        failures[env_id] = capture(error, "close", in_process=True)
        finally:
            self._watchdog.close()
            self._steppers.clear()
            self._arena = None
        if pressed is not None:
            raise pressed
        return failures

    def _close_env(self, env_id: int, adapted: Any, limit: float) -> None:
        arena = self._arena
        if arena is None or env_id not in self._interrupters:
            adapted.close()
            return

        def close() -> None:
            arena.running[env_id] = env_id
            try:
                adapted.close()
            finally:
                arena.running[env_id] = -1

        self._within(limit, env_id, close)


def _take_signal(number: int) -> None:
    """Makes sure that a signal sent to this thread has arrived, before its handler is another one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        if number in signal.sigpending():
            signal.sigwait({number})
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
