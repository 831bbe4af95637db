"""The main function of a worker process: build the envs, say hello, serve the rows, go quietly.

The life of a worker: it cleans what it inherited (``hygiene``), calls its env_fns, says HELLO with
the spaces, gets SETUP (the rows, the bells) as descriptors over its socket, and then waits for
work (``doze``). End-of-file on the bell or the socket means that the parent is gone: the envs are closed and
the process ends without a word.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from envmgr.workers import hygiene
from envmgr.workers.stray import end_if_stray, watch

STACK_SIGNAL = hygiene.INTERRUPT_SIGNAL + 1 if hygiene.INTERRUPT_SIGNAL is not None else None
"""The signal at which a worker writes its Python stack, by a C handler that needs no interpreter."""

_ADVICE = "envs must close the descriptors that they open, and no others"
_LONG = 1 << 15
"""Bytes of a message that may not fit into what is left of a socket's buffer."""


def child_main(
    sock: socket.socket,
    stack: Any,
    worker: int,
    env_ids: range,
    env_fns: Sequence[Any],
    *,
    pickled: bool,
    forked: bool,
    cpus: Sequence[int] | None = None,
) -> None:
    """Runs a worker to its end.

    Args:
        sock: This worker's end of its socket pair.
        stack: Where it writes its Python stack when it is asked to: has a ``fileno``.
        worker: Its index.
        env_ids: The envs that it hosts.
        env_fns: One callable per env, or its pickle.
        pickled: Whether they are pickles.
        forked: Whether this process is a fork, so that its exit handlers are somebody else's.
        cpus: Where to run, None for anywhere.
    """
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)  # so that a kill can take the programs with it that the env has started
    hygiene.fresh_signals()
    _write_stacks(stack.fileno())
    hygiene.one_blas_thread()
    if cpus is not None and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, cpus)
    hygiene.fresh_globals()
    watch()
    code = _Child(sock, stack.fileno(), worker, env_ids).run(env_fns, pickled)
    for child in multiprocessing.active_children():
        if child.daemon:
            child.terminate()
    with contextlib.suppress(Exception):  # a closed stream is not worth a word at the very end
        sys.stdout.flush()
        sys.stderr.flush()
    if forked:
        os._exit(code)


def _write_stacks(fd: int) -> None:
    if STACK_SIGNAL is not None:
        faulthandler.register(STACK_SIGNAL, file=fd, all_threads=True)


class _Child:
    def __init__(self, sock: socket.socket, stack: int, worker: int, env_ids: range) -> None:
        from envmgr.workers.channel import ChildChannel
        from envmgr.workers.interrupt import Interrupter

        self._channel = ChildChannel(sock)
        self._stack = stack
        self._worker = worker
        self._env_ids = env_ids
        self._adapted: dict[int, Any] = {}
        self._interrupter = Interrupter()
        self._stepper: Any = None
        self._leaves: list[str] = []  # of observations: those that go by the side channel
        self._bell = -1
        self._parent_bell = -1
        self._alarm = -1
        self._closing = False

    def run(self, env_fns: Sequence[Any], pickled: bool) -> int:
        from envmgr.workers.channel import ChannelClosedError

        try:
            if not self._build(env_fns, pickled):
                self._close_envs()
                return 1
            self._serve()
        except OSError as error:  # of our own: what envs raise is told and caught
            print(f"envmgr: worker {self._worker} cannot go on: {error}; {_ADVICE}", file=sys.stderr)
            self._close_envs()
            return 1
        except ChannelClosedError:
            pass
        failures = self._close_envs()
        if self._closing:
            from envmgr.workers.contract import CLOSED

            with contextlib.suppress(Exception):  # the parent may be gone: then nobody wants to know
                self._channel.send((CLOSED, failures))
        return 0

    # -- coming up ------------------------------------------------------------------------------------

    def _build(self, env_fns: Sequence[Any], pickled: bool) -> bool:
        from envmgr.workers.build import build_env, describe
        from envmgr.workers.contract import HELLO, INIT_FAILED
        from envmgr.workers.failures import capture

        specs = {}
        self._interrupter.install()
        for env_id, env_fn in zip(self._env_ids, env_fns, strict=True):
            try:
                try:
                    self._interrupter.building = True
                    self._adapted[env_id] = build_env(env_id, env_fn, pickled)
                finally:
                    self._interrupter.building = False
                end_if_stray()
                specs[env_id] = describe(self._adapted[env_id])
            except BaseException as error:  # an env_fn may raise anything, SystemExit too
                end_if_stray(error)
                self._channel.send((INIT_FAILED, env_id, capture(error, "env_fn")))
                return False
        self._channel.send((HELLO, specs))
        return True

    def _setup(self, plan: Any, options: dict[str, Any]) -> None:
        from envmgr.memory.arena import Arena
        from envmgr.workers.stepper import Stepper

        fds = self._channel.fds
        if len(fds) < 4:  # they were sent, and there was no room for them here
            raise OSError(errno.EMFILE, "no file descriptors are left")
        arena_fd, self._bell, self._parent_bell, self._alarm = (fds.popleft() for _ in range(4))
        arena = Arena.attached(plan, arena_fd)
        if arena.block is not None:
            arena.block.keep_from_forks()
        self._leaves = [leaf.name for leaf in plan.obs.side_leaves]
        _write_stacks(self._stack)  # once more: an env may have taken the signal
        self._stepper = Stepper(
            arena,
            self._worker,
            self._env_ids,
            list(self._adapted.values()),
            self._post,
            self._ring,
            interrupter=self._interrupter,
            fetch=self._fetch,
            **options,
        )
        self._interrupter.install()

    def _post(self, env_id: int, seq: int, extra: Any) -> None:
        from envmgr.workers.channel import pack
        from envmgr.workers.contract import EXTRA
        from envmgr.workers.sealing import seal_extra

        data = pack((EXTRA, env_id, seq, seal_extra(extra, self._leaves)))
        if len(data) > _LONG:  # it blocks until the parent reads it, who may just be falling asleep
            self._ring(False)
        self._channel.send_bytes(data)

    def _ring(self, alarm: bool) -> None:
        # A full pipe rings as loud as it can; where the parent is gone, this worker's own bell says so.
        with contextlib.suppress(OSError):
            os.write(self._alarm if alarm else self._parent_bell, b"\x01")

    # -- serving --------------------------------------------------------------------------------------

    def _serve(self) -> None:
        from envmgr.workers.contract import ARGUMENT, SETUP, Bell
        from envmgr.workers.doze import make_doze, make_sleep
        from envmgr.workers.solo import solo_loop
        from envmgr.workers.spin import Spinner

        message = self._channel.recv()
        if message[0] != SETUP:  # CLOSE before any setup
            self._closing = True
            return
        self._setup(message[1], message[2])
        work, kind = self._stepper.work, int(Bell.MESSAGE)
        views, spin = self._stepper.views, message[3]
        spinner = Spinner(spin) if spin > 0 else None
        sleep = make_sleep(views, self._bell)
        doze = make_doze(views, self._bell, sleep, spinner)
        hear = solo_loop(self._stepper, sleep, doze, spinner, self._parent_bell) or doze
        while True:
            data = hear()
            if not data:
                return
            work()  # first: a call that came after a step waits for that step
            if kind in data:
                # However many rings there were, or will be: messages are taken until there is none.
                while (message := self._channel.poll()) is not None:
                    if message[0] != ARGUMENT:  # which the work may be waiting for
                        work()
                    self._message(message)
                if self._closing:
                    return

    def _fetch(self) -> None:
        """Takes a message before its ring has been heard."""
        self._message(self._channel.recv())

    def _message(self, message: tuple[Any, ...]) -> None:
        from envmgr.workers.contract import ARGUMENT, CALL, CLOSE
        from envmgr.workers.sealing import open_argument

        kind = message[0]
        if kind == ARGUMENT:
            _, env_id, seq, data = message
            self._stepper.argument(env_id, seq, open_argument(data))
        elif kind == CALL:
            self._call(*message[1:])
        elif kind == CLOSE:
            self._closing = True

    def _call(self, call_id: int, env_id: int, op: str, name: str, arguments: bytes) -> None:
        import pickle

        from envmgr.workers.build import answer_call
        from envmgr.workers.contract import ANSWER, Failure
        from envmgr.workers.sealing import open_call

        opened = open_call(arguments)
        if isinstance(opened, Failure):
            ok, data = False, pickle.dumps(opened)
        else:
            ok, data = answer_call(self._adapted[env_id], op, name, *opened)
            end_if_stray()
        self._channel.send((ANSWER, call_id, ok, data))
        self._ring(False)

    # -- going ----------------------------------------------------------------------------------------

    def _close_envs(self) -> dict[int, Any]:
        from envmgr.workers.failures import capture

        if hygiene.INTERRUPT_SIGNAL is not None:
            signal.signal(hygiene.INTERRUPT_SIGNAL, signal.SIG_IGN)
        failures = {}
        for env_id, adapted in self._adapted.items():
            try:
                adapted.close()
                end_if_stray()
            except BaseException as error:  # one env's bad close must not keep the others open
                end_if_stray(error)
                failures[env_id] = capture(error, "close")
        return failures
