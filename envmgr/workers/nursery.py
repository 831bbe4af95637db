"""The nursery: one small process per manager that starts its workers and sees to their end.

Why it is there. A process with threads must not be forked, and a training process has threads by
the time a worker is renewed; so the workers are forked from a process that has none, made at
launch. It learns exit codes, which only a parent can. And when the caller's process dies, it
survives by a few seconds: it lets the workers close their envs, and kills those that hang, also
in a C call that no thread of their own could interrupt.

A signal (CALLED_OFF) tells it that nothing of what it was asked for is wanted any more: while it still
imports, when it has no children, that ends it; later it starts no more workers and kills those it has.

    caller ──control socket──▶ nursery ──fork or spawn──▶ workers
       └───────────── one socket per worker ──────────────┘

With the fork method the nursery is a fork of the caller (when that has one thread only), so env_fns
need no pickling; otherwise it is a fresh interpreter that gets them pickled. With ``forkserver`` it
is always fresh and forks; with ``spawn`` it starts each worker as a fresh interpreter.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import multiprocessing
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Sequence
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any

from envmgr.workers import hygiene

RECORD = struct.Struct("<IIiiq")
START, EXITED, STARTED, REFUSED, END = range(5)
CALLED_OFF = hygiene.INTERRUPT_SIGNAL or signal.SIGTERM
LAST_ORDERS = 2.0  # seconds that workers have after the caller is gone; twice, where an env has a manager too


def nursery_main(
    control: socket.socket,
    env_fns: Sequence[Any],
    envs_of: Sequence[range],
    *,
    pickled: bool,
    method: str,
    cpus_of: Sequence[Sequence[int] | None],
) -> None:
    """Runs the nursery until its control socket closes.

    Records on the control socket have one size: (what, worker, pid, code, generation); the code is the exit
    code, the reason of a refusal, or whether the descriptor that comes with STARTED is a pidfd.
    """
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    hygiene.fresh_signals()
    hygiene.one_blas_thread()
    nursery = _Nursery(control, env_fns, envs_of, pickled, method, cpus_of)
    signal.signal(CALLED_OFF, nursery.stop)
    nursery.run()
    os._exit(0)


class _Nursery:
    def __init__(
        self,
        control: socket.socket,
        env_fns: Sequence[Any],
        envs_of: Sequence[range],
        pickled: bool,
        method: str,
        cpus_of: Sequence[Sequence[int] | None],
    ) -> None:
        self._control = control
        self._env_fns = env_fns
        self._envs_of = envs_of
        self._pickled = pickled
        self._forks = method in ("fork", "forkserver")
        self._context: Any = multiprocessing.get_context("fork" if self._forks else "spawn")
        self._cpus_of = cpus_of
        self._children: dict[int, tuple[BaseProcess, int, int, int]] = {}  # watched fd -> ...
        self._poll = select.poll()
        self._unwanted = False
        if self._forks:
            # The modules that every worker needs come in once, here; and what is here is not walked by
            # the workers' garbage collectors, so that its pages stay shared. Nothing is collected before:
            # that would copy the caller's whole heap, and end the caller's dead objects a second time.
            import envmgr.workers.build
            import envmgr.workers.channel
            import envmgr.workers.stepper  # noqa: F401

            hygiene.limit_loaded_blas()
            gc.freeze()

    def stop(self, *_: Any) -> None:
        """The handler of CALLED_OFF, which goes with an END: what was asked before that does not count."""
        self._unwanted = True

    def run(self) -> None:
        control = self._control.fileno()
        self._poll.register(control, select.POLLIN)
        while True:
            for fd, _ in self._poll.poll():
                if fd != control:
                    self._reap(fd)
                elif not self._serve():
                    self._last_orders()
                    return

    def _serve(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, RECORD.size, 2)
        except OSError:  # the caller died with something unread: as good as end-of-file
            return False
        while data and len(data) < RECORD.size:
            more = self._control.recv(RECORD.size - len(data))
            if not more:
                return False
            data += more
        if not data:
            return False
        what, worker, _, _, generation = RECORD.unpack(data)
        if what == END or self._unwanted:
            for fd in fds:
                os.close(fd)
            for ended, _ in self._poll.poll(0):  # of those, what they have left running may go on
                if ended in self._children:
                    self._reap(ended)
            self._kill_all()
            return False
        try:
            if len(fds) < 2:  # they were sent, and there was no room for them here
                for fd in fds:
                    os.close(fd)
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            stack = connection.Connection(fds[1], readable=False)  # pickles, as a plain number does not
            self._start(worker, generation, socket.socket(fileno=fds[0]), stack)
        except Exception as error:  # no more processes, no more memory: the caller says so with its reason
            code = getattr(error, "errno", 0) or 0
            self._tell(REFUSED, worker, 0, code, generation)
        return True

    def _start(self, worker: int, generation: int, sock: socket.socket, stack: Any) -> None:
        envs = self._envs_of[worker]
        with sock, stack:
            process = self._context.Process(
                target=_forked if self._forks else _spawned,
                args=(sock, stack, worker, envs, [self._env_fns[i] for i in envs]),
                kwargs={"pickled": self._pickled, "cpus": self._cpus_of[worker]},
                name=f"envmgr-worker-{worker}",
            )
            if self._forks:
                process.__dict__["_nursery_fds"] = (self._control.fileno(), *self._children)
            with hygiene.masked_interrupts(tracked=not self._forks):
                process.start()
        fd = _watch_fd(process)
        self._children[fd] = (process, worker, generation, process.pid or 0)
        self._poll.register(fd, select.POLLIN)
        self._tell(STARTED, worker, process.pid or 0, int(fd != process.sentinel), generation, [fd])

    def _reap(self, fd: int) -> None:
        process, worker, generation, pid = self._children.pop(fd)
        self._poll.unregister(fd)
        code = process.exitcode
        if code is None:  # not for long; and not by a pidfd, which would have been right at once
            process.join(1.0)
            code = process.exitcode
        if code != 0:  # it did not go in peace: what it had started goes with it
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        if fd != process.sentinel:
            os.close(fd)
        with contextlib.suppress(ValueError):
            process.close()
        self._tell(EXITED, worker, pid, -1000 if code is None else code, generation)

    def _tell(
        self, what: int, worker: int, pid: int, code: int, generation: int, fds: Sequence[int] = ()
    ) -> None:
        with contextlib.suppress(OSError):  # the caller is gone: the next poll says so
            socket.send_fds(self._control, [RECORD.pack(what, worker, pid, code, generation)], list(fds))

    def _last_orders(self) -> None:
        """The caller is gone: the workers have seen it too; wait for them, then kill."""
        self._poll.unregister(self._control.fileno())
        deadline = time.monotonic() + LAST_ORDERS
        while self._children:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            for fd, _ in self._poll.poll(left * 1000):
                self._reap(fd)
        self._kill_all()

    def _kill_all(self) -> None:
        for _, _, _, pid in self._children.values():
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(pid, signal.SIGKILL)


def _watch_fd(process: BaseProcess) -> int:
    """A descriptor that becomes readable when the process ends, whoever else holds its pipes."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(process.pid or 0)
    return process.sentinel


def _forked(
    sock: socket.socket, stack: Any, worker: int, envs: range, env_fns: Sequence[Any], **kwargs: Any
) -> None:
    from envmgr.workers.child import child_main

    for fd in getattr(multiprocessing.current_process(), "_nursery_fds", ()):
        with contextlib.suppress(OSError):
            os.close(fd)
    child_main(sock, stack, worker, envs, env_fns, forked=True, **kwargs)


def _spawned(
    sock: socket.socket, stack: Any, worker: int, envs: range, env_fns: Sequence[Any], **kwargs: Any
) -> None:
    from envmgr.workers.child import child_main

    child_main(sock, stack, worker, envs, env_fns, forked=False, **kwargs)
