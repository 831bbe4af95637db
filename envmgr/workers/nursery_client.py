"""The caller's side of the nursery: starts it, asks it for workers, hears how they end.

Nothing here blocks for long but ``close``. See ``nursery`` for why there is one at all.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from envmgr.errors import EnvInitError
from envmgr.log import log as _log
from envmgr.workers import pickling
from envmgr.workers.hygiene import masked_interrupts
from envmgr.workers.nursery import CALLED_OFF, END, EXITED, RECORD, REFUSED, START, STARTED, nursery_main
from envmgr.workers.watchdog import WATCHDOG_NAME

KEEPER_NAME = "envmgr-keeper"
"""The name of every manager's background thread."""

GUARD_ADVICE = (
    "If your script starts envmgr at its top level, put that part under `if __name__ == '__main__':` "
    "(processes that are not forked import the main module again), or use context='fork' on Linux."
)


class Record(NamedTuple):
    """What the nursery told: a worker has started (with a descriptor to watch it), ended, or was refused."""

    what: int
    worker: int
    pid: int
    code: int
    generation: int
    fd: int


def pickle_env_fns(env_fns: Sequence[Callable[[], Any]]) -> list[bytes]:
    """The env_fns by cloudpickle. Raises EnvInitError that names the env whose function does not pickle."""
    pickles = []
    for env_id, env_fn in enumerate(env_fns):
        try:
            pickles.append(pickling.dumps(env_fn))
        except Exception as error:  # whatever the function's closure holds may raise anything
            raise EnvInitError(
                f"the env_fn of env {env_id} cannot be sent to a process that is not a fork: {error}. "
                "Build what does not pickle (sockets, locks, simulators) inside the function",
                env_id=env_id,
            ) from error
    return pickles


class NurseryClient:
    """One nursery process and the socket to it.

    Args:
        env_fns: One callable per env.
        envs_of: The envs of each worker.
        method: ``'fork'``, ``'spawn'`` or ``'forkserver'``.
        cpus_of: Where each worker may run.
        fresh: Whether a new interpreter is needed, whatever the method.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        envs_of: Sequence[range],
        method: str,
        cpus_of: Sequence[Sequence[int] | None],
        fresh: bool = False,
    ) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise EnvInitError(
                "envmgr was started while a new process imports the main module. " + GUARD_ADVICE
            )
        threads = _others()
        pickles: list[bytes] | None = None
        if method != "fork" or fresh:
            pickles = pickle_env_fns(env_fns)
        elif threads:
            try:
                pickles = pickle_env_fns(env_fns)
            except EnvInitError as error:
                names = ", ".join(t.name for t in threads)
                _log.warning(
                    "forking a process that has other threads (%s), because: %s. A lock that one of "
                    "them holds now stays locked in the workers",
                    names,
                    error,
                )
        self.fresh = pickles is not None
        self._closed = False
        self._reaped = False
        self._asking = threading.Lock()
        self._method = method
        start: Any = multiprocessing.get_context("spawn" if self.fresh else "fork")
        ours, theirs = socket.socketpair()
        self._sock = ours
        with theirs:
            self._process: Any = start.Process(
                target=nursery_main,
                args=(theirs, pickles if pickles is not None else list(env_fns), list(envs_of)),
                kwargs={"pickled": self.fresh, "method": method, "cpus_of": list(cpus_of)},
                name="envmgr-nursery",
                daemon=False,
            )
            try:
                self._start(ours)
            except BaseException:  # Ctrl-C too
                ours.close()
                self._give_up()
                raise
        ours.setblocking(False)

    def _start(self, ours: socket.socket) -> None:
        try:
            with warnings.catch_warnings(), masked_interrupts(tracked=self.fresh):
                # Python 3.12 warns of every fork of a process with threads. Ours has no Python thread but
                # this one (or we have just said so in the log); BLAS threads have their own handlers.
                warnings.simplefilter("ignore", DeprecationWarning)
                if self.fresh and self._method == "fork":
                    with _main_module_hidden(), _no_method_settled():
                        self._process.start()
                elif self.fresh:
                    with _no_method_settled():
                        self._process.start()
                else:
                    _fork(self._process, ours)
        except AssertionError as error:
            ours.close()
            raise EnvInitError(
                f"no worker can be started from here: {error}. Start the process that uses envmgr with "
                "daemon=False, or use the 'base' manager"
            ) from error
        except (OSError, ValueError) as error:  # ValueError: standard input, output or error is closed
            ours.close()
            raise EnvInitError(f"no process could be started: {error}") from error

    @property
    def pid(self) -> int | None:
        """The process id of the nursery."""
        pid: int | None = self._process.pid
        return pid

    def fileno(self) -> int:
        """The descriptor on which it tells of its workers."""
        return self._sock.fileno()

    def start_worker(self, worker: int, generation: int, theirs: socket.socket, stack: int) -> bool:
        """Asks for a worker that talks over ``theirs``. False when the nursery is gone.

        Args:
            worker: Its index.
            generation: How many workers had its place, with this one.
            theirs: Its end of its socket.
            stack: The descriptor on which it writes its Python stack when it is asked to.
        """
        try:
            self._sock.setblocking(True)
            self._sock.settimeout(5.0)
            record = RECORD.pack(START, worker, 0, 0, generation)
            socket.send_fds(self._sock, [record], [theirs.fileno(), stack])
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self._sock.setblocking(False)
        return True

    def read(self) -> tuple[list[Record], bool]:
        """What it has told since, and whether it is still there."""
        records: list[Record] = []
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._sock, RECORD.size, 1)
            except BlockingIOError:
                return records, True
            except OSError:
                return records, False
            if len(data) < RECORD.size:
                return records, False
            what, worker, pid, code, generation = RECORD.unpack(data)
            records.append(Record(what, worker, pid, code, generation, fds[0] if fds else -1))

    def exitcode(self) -> int | None:
        """Waits a moment for the nursery's own end; its exit code."""
        self._await_end(1.0)
        return self._code()

    def _code(self) -> int | None:
        """Its exit code, None while it lives. One thread asks at a time: only who reaps it is told."""
        with self._asking:
            code: int | None = self._process.exitcode
            return code

    def _lives(self) -> bool:
        return not self._reaped and self._code() is None

    def _await_end(self, timeout: float) -> None:
        """Waits for the process itself; ``join`` waits for all that has inherited a pipe of it, too."""
        process = self._process
        if process.pid is None or self._code() is not None:
            return
        try:
            fd = os.pidfd_open(process.pid)
        except ProcessLookupError:  # somebody else has reaped it
            self._reaped = True
            return
        except (AttributeError, OSError):
            process.join(timeout)
            return
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if poll.poll(timeout * 1000) and self._code() is None:  # nobody can: SIGCHLD is ignored
                self._reaped = True
        finally:
            os.close(fd)

    def end(self) -> None:
        """Tells it to start no more workers and to kill those that it has; ``read`` goes on telling.

        It is told to: a worker may be left of which nobody here knows yet, since the nursery was slow to
        start it, and which does not go when its socket closes. And it is told by a signal too, since it may
        take longer than anybody waits until it has read what it was told before.
        """
        with contextlib.suppress(OSError):  # it is gone, or has not read for so long that its end is near
            self._sock.send(RECORD.pack(END, 0, 0, 0, 0))
        self._signal(CALLED_OFF)

    def _signal(self, number: int) -> None:
        if self._process.pid is not None and self._lives():  # so its pid is still its own
            with contextlib.suppress(OSError):
                os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Ends it at once; its workers go on, and nobody learns how they end."""
        self._signal(signal.SIGKILL)

    def _give_up(self) -> None:
        """A nursery that was asked for nothing yet, if there is one: nobody is left behind by its end."""
        self.kill()
        self._await_end(5.0)

    def close(self, deadline: float = 5.0) -> None:
        """Ends it, and with it every worker that it still has; it is killed itself at the deadline."""
        if self._closed:
            return
        self.end()
        self._sock.close()
        try:
            self._await_end(deadline)
        finally:  # a Ctrl-C while it waits: at exit multiprocessing waits for as long as it takes
            if self._lives():
                self.kill()
                self._await_end(deadline)
        self._closed = True
        try:
            self._process.close()
        except ValueError:
            self._let_go()

    def _let_go(self) -> None:
        """What ``Process.close`` refuses where the exit code is not known."""
        self._leave_multiprocessing()
        popen: Any = getattr(self._process, "_popen", None)
        if self._reaped and popen is not None:
            popen.close()

    def _leave_multiprocessing(self) -> None:
        """Its list of children is waited for when the interpreter ends."""
        children: Any = getattr(multiprocessing.process, "_children", set())
        children.discard(self._process)

    def forget(self) -> None:
        """In a forked child: lets go of the socket, touches no process."""
        self._sock.close()
        self._leave_multiprocessing()  # a plain ``os.fork`` leaves it with children that are the parent's


def _others() -> list[threading.Thread]:
    """Threads that a fork would leave behind with whatever they hold.

    The keepers and watchdogs of other managers do not count: they hold nothing but their own manager's
    lock, which no worker ever takes.
    """
    here = threading.current_thread()
    ours = (KEEPER_NAME, WATCHDOG_NAME)
    return [t for t in threading.enumerate() if t is not here and t.name not in ours]


@contextlib.contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Starts a fresh interpreter that does not import the caller's main module again.

    Who asked for the fork method has not written the script for that (no main guard), and need not:
    what the main module defines travels by value.
    """
    main = sys.modules["__main__"]
    kept = {name: main.__dict__.pop(name) for name in ("__spec__", "__file__") if name in main.__dict__}
    main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(kept)  # type: ignore[arg-type,unused-ignore]


@contextlib.contextmanager
def _no_method_settled() -> Iterator[None]:
    """Leaves the choice of a start method to the user, whose ``set_start_method`` may come later.

    To start a fresh interpreter makes multiprocessing settle for its default method, and refuse another.
    """
    settled: Any = multiprocessing.get_start_method(allow_none=True)
    try:
        yield
    finally:
        if settled is None:
            multiprocessing.set_start_method(None, force=True)


def _fork(process: Any, ours: socket.socket) -> None:
    """Starts a forked nursery, which must not hold the caller's end of its own socket."""
    fd = ours.fileno()
    os.set_inheritable(fd, False)
    target, args, kwargs = process._target, process._args, process._kwargs
    process._target = _close_first
    process._args, process._kwargs = (fd, target, args, kwargs), {}
    process.start()


def _close_first(fd: int, target: Callable[..., None], args: Any, kwargs: Any) -> None:
    with contextlib.suppress(OSError):
        os.close(fd)
    target(*args, **kwargs)


__all__ = ["EXITED", "GUARD_ADVICE", "REFUSED", "STARTED", "NurseryClient", "Record", "pickle_env_fns"]
