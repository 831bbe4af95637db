"""Workers that are processes: the pool as the engine sees it.

Per worker the parent holds one socket (hello, descriptors, messages), the writing end of one bell
and, on Linux, one pidfd. All workers share one bell back, and one alarm for what must not wait for
the caller. Two waits exist: ``wait``, where the caller sleeps for results, and ``poll``, where the
keeper sleeps for everything that is not a result. A worker's death is seen by the nursery's word,
the pidfd or end-of-file on its socket, whichever comes first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import pickle
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from envmgr.errors import EnvInitError
from envmgr.memory.arena import Arena, ArenaPlan, fence
from envmgr.workers import contract as c
from envmgr.workers.bells import Bell
from envmgr.workers.channel import ParentChannel, pack, remaining
from envmgr.workers.child import STACK_SIGNAL
from envmgr.workers.hygiene import INTERRUPT_SIGNAL, parent_ends
from envmgr.workers.nursery_client import EXITED, GUARD_ADVICE, REFUSED, STARTED, NurseryClient, Record

_LOST_AFTER = 1.0  # seconds that an exit code may come later than the death itself
_FDS = 4  # descriptors that the parent holds per worker: socket, bell, pidfd, stack
_FDS_BESIDE = 16  # and beside them: bells, nursery, rows, and what is needed for a moment
_RECHECK = 0.05  # seconds: `wait` looks again, should a ring ever be missed


@dataclasses.dataclass(slots=True)
class _Worker:
    """What the parent holds of one worker."""

    index: int
    bells: list[int]
    """Of all workers: the descriptors as ``ring`` reads them."""
    generation: int = 0
    channel: ParentChannel | None = None
    bell: int = -1
    pidfd: int = -1
    pid: int | None = None
    greeted: bool = False
    gone: bool = True
    gone_since: float | None = None
    orphan: bool = False
    """Whether the nursery that started it is gone, so that its end is seen on its socket alone."""
    stack: int = -1
    """Where it writes its stack when it is asked to."""
    extras: dict[tuple[int, int], c.Extra] = dataclasses.field(default_factory=dict)
    answers: dict[int, tuple[bool, Any]] = dataclasses.field(default_factory=dict)
    unwanted: set[int] = dataclasses.field(default_factory=set)
    """Calls whose answer is dropped when it comes."""
    closed: dict[int, c.Failure] | None = None

    def let_go(self) -> None:
        """Closes what is open; a bell that closes ends its worker."""
        if self.bell >= 0:
            self.bells[self.index] = -1
        if self.channel is not None:
            self.channel.close()
        for fd in (self.bell, self.pidfd, self.stack):
            if fd >= 0:
                os.close(fd)
        self.channel, self.bell, self.pidfd, self.stack = None, -1, -1, -1


class ProcessPool:
    """See ``contract.Pool``.

    Args:
        env_fns: One callable per env.
        envs_of: The envs of each worker, neighbours.
        method: ``'fork'``, ``'spawn'`` or ``'forkserver'``.
        options: What a stepper is told: ``each``, ``info_errors``, ``isolate_rng``.
        cpus_of: Where each worker may run; None for anywhere.
    """

    background = True

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        envs_of: Sequence[range],
        method: str,
        options: dict[str, Any],
        cpus_of: Sequence[Sequence[int] | None] | None = None,
    ) -> None:
        self._env_fns = list(env_fns)
        self.envs_of = list(envs_of)
        self.env_num = len(self._env_fns)
        self.worker_num = len(self.envs_of)
        self.worker_of = [w for w, envs in enumerate(self.envs_of) for _ in envs]
        self._method = method
        self._options = options
        self._cpus_of = list(cpus_of) if cpus_of is not None else [None] * self.worker_num
        self._bells = [-1] * self.worker_num
        self._workers = [_Worker(w, self._bells) for w in range(self.worker_num)]
        self._nursery: NurseryClient | None = None
        self._epoll: Any = None
        self._bell: Bell | None = None
        self._alarm: Bell | None = None
        self._nudge: Bell | None = None
        self._broken: list[c.PoolEvent] = []
        self._arena: Arena | None = None
        self._flag: memoryview | None = None
        self._need: memoryview | None = None
        self._awake: memoryview = memoryview(b"")
        self._closing = False
        self._opened = False
        self._nursery_gone = False
        self.sending: set[int] = set()
        self.news = False

    # -- coming up ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Starts the nursery and asks it for every worker.

        Raises:
            EnvInitError: No process, or too few file descriptors; nothing is left open after ``close``.
        """
        raise_fd_limit(_FDS * self.worker_num + 64)
        check_fds(_FDS * self.worker_num + _FDS_BESIDE, self.worker_num)
        try:
            self._open()
        except OSError as error:
            raise EnvInitError(_lacking("the workers", error)) from error

    def _open(self) -> None:
        self._nursery = NurseryClient(self._env_fns, self.envs_of, self._method, self._cpus_of)
        self._opened = True
        parent_ends.add(self)
        self._bell = Bell()
        self._alarm = Bell()
        self._nudge = Bell()
        self._epoll = select.epoll() if hasattr(select, "epoll") else _PollEpoll()
        for fd in (self._nursery.fileno(), self._alarm.read_fd, self._nudge.read_fd):
            self._epoll.register(fd, select.POLLIN)
        for worker in self._workers:
            self._start(worker)

    def renew(self, worker: int) -> None:
        """Starts a new worker in the place of one that is gone; PoolBroken follows where that fails."""
        try:
            self._start(self._workers[worker])
        except OSError as error:
            self._break(_lacking(f"a new worker {worker}", error))
        except EnvInitError as error:
            self._break(str(error))

    def _break(self, text: str) -> None:
        self._broken.append(c.PoolBroken(text))
        self.nudge()

    def _start(self, worker: _Worker) -> None:
        worker.let_go()
        ours, theirs = socket.socketpair()
        generation = worker.generation + 1
        fresh = _Worker(worker.index, self._bells, generation, ParentChannel(ours), gone=False)
        self._workers[worker.index] = fresh
        try:
            with theirs:
                if not self._ask(fresh, theirs):
                    self._new_nursery()
                    fresh.orphan = False
                    self._ask(fresh, theirs)
        except BaseException:  # nobody will come up, so nobody is waited for
            fresh.gone = True
            fresh.let_go()
            raise
        self._epoll.register(ours.fileno(), select.POLLIN)

    def _ask(self, worker: _Worker, theirs: socket.socket) -> bool:
        return self._nursery is not None and self._nursery.start_worker(
            worker.index, worker.generation, theirs
        )

    def _new_nursery(self) -> None:
        """The nursery itself was killed: a fresh one, never a fork, because by now there are threads."""
        if self._nursery is not None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                self._epoll.unregister(self._nursery.fileno())
            self._nursery.close(0.5)
        self._nursery_ended()
        self._nursery = NurseryClient(self._env_fns, self.envs_of, self._method, self._cpus_of, fresh=True)
        self._nursery_gone = False
        self._epoll.register(self._nursery.fileno(), select.POLLIN)

    def _nursery_ended(self) -> None:
        self._nursery_gone = True
        for w in self._workers:
            w.orphan = True

    def make_arena(self, plan: ArenaPlan) -> Arena:
        """Makes the rows in shared memory; ShmError when there is too little."""
        self._arena = Arena.shared(plan)
        self._flag = self._arena.bytes_of("flag")
        self._need = self._arena.bytes_of("need").cast("q")
        self._awake = self._arena.bytes_of("awake")
        return self._arena

    def attach(self, worker: int) -> None:
        """Hands the rows and the bells to a worker."""
        w, arena, bell, alarm = self._workers[worker], self._arena, self._bell, self._alarm
        if w.channel is None or arena is None or bell is None or alarm is None or arena.block is None:
            return
        try:
            read_fd, w.bell = os.pipe()
            try:
                w.stack, stack_fd = os.pipe()
            except OSError:
                os.close(read_fd)
                raise
        except OSError as error:
            self._break(_lacking(f"worker {worker}", error))
            return
        os.set_blocking(w.bell, False)
        os.set_blocking(w.stack, False)
        self._bells[worker] = w.bell
        arena.running[worker] = -1
        arena.stop_env[worker] = -1
        arena.awake[worker] = 0
        try:
            w.channel.send_with_fds(
                (c.SETUP, arena.plan, self._options),
                [arena.block.fd, read_fd, bell.write_fd, alarm.write_fd, stack_fd],
            )
        finally:
            os.close(read_fd)
            os.close(stack_fd)

    # -- what must not wait for the caller ------------------------------------------------------------

    def nudge(self) -> None:
        """Ends ``poll``, from any thread."""
        if self._nudge is not None:
            self._nudge.ring()

    def poll(self, timeout: float | None) -> list[Any]:
        """Sleeps for deaths, hellos and alarms."""
        late = [w.gone_since for w in self._workers if w.gone_since is not None and not w.gone]
        if late:
            left = max(0.0, min(late) + _LOST_AFTER - time.monotonic())
            timeout = left if timeout is None else min(timeout, left)
        try:
            ready: list[Any] = self._epoll.poll(-1 if timeout is None else timeout)
        except (OSError, ValueError):  # closed by another thread
            return []
        return ready

    def handle(self, ready: list[Any]) -> list[c.PoolEvent]:
        """Turns what ``poll`` saw into events."""
        events: list[c.PoolEvent] = []
        fds = {fd for fd, _ in ready}
        nursery, alarm, nudge = self._nursery, self._alarm, self._nudge
        if self._closing or nursery is None or alarm is None or nudge is None:
            return events
        self._broken, events = [], self._broken
        if nudge.read_fd in fds:
            nudge.drain()
        if nursery.fileno() in fds:
            self._hear_nursery(nursery, events)
        for w in list(self._workers):
            if w.gone:
                continue
            if w.channel is not None and w.channel.fileno() in fds:
                self._hear(w, events)
            # What was seen may be older than this worker: its predecessor's descriptor had the same number.
            if w.pidfd >= 0 and w.pidfd in fds and _is_readable(w.pidfd):
                self._mark_gone(w)
            if w.gone_since is not None and time.monotonic() - w.gone_since >= _LOST_AFTER:
                self._lost(w, None, events)
        if alarm.read_fd in fds:
            alarm.drain()
            events.append(c.Alarm())
        return events

    def _hear_nursery(self, nursery: NurseryClient, events: list[c.PoolEvent]) -> None:
        records, alive = nursery.read()
        for record in records:
            w = self._workers[record.worker]
            if record.generation != w.generation or w.gone:
                if record.fd >= 0:
                    os.close(record.fd)
                continue
            if record.what == STARTED:
                self._started(w, record)
            elif record.what == EXITED:
                self._lost(w, None if record.code == -1000 else record.code, events)
            elif record.what == REFUSED:
                self._forget_socket(w)
                w.gone = True  # it never was there, so nobody waits for its end
                w.let_go()
                text = os.strerror(record.code) if record.code else "for an unknown reason"
                events.append(
                    c.PoolBroken(
                        f"the system gave no process for worker {record.worker}: {text}. Use fewer workers "
                        "(num_workers=...), or raise the limit on processes or memory"
                    )
                )
        if not alive:
            self._epoll.unregister(nursery.fileno())
            self._nursery_ended()
            code = nursery.exitcode()
            if any(not w.gone and w.pid is None for w in self._workers):
                events.append(
                    c.PoolBroken(
                        f"the process that starts the workers ended (exit code {code}). {GUARD_ADVICE}"
                    )
                )

    def _started(self, w: _Worker, record: Record) -> None:
        w.pid, w.pidfd = record.pid, record.fd
        if w.pidfd >= 0:
            self._epoll.register(w.pidfd, select.POLLIN)

    def _hear(self, w: _Worker, events: list[c.PoolEvent]) -> None:
        channel = w.channel
        if channel is None:
            return
        self._pump(w)
        while channel.messages:
            message = channel.messages.popleft()
            if message[0] == c.HELLO:
                w.greeted = True
                events.append(c.WorkerUp(w.index, message[1]))
                # From here on its messages are read by whoever waits for one; only its end is news.
                self._epoll.modify(channel.fileno(), getattr(select, "EPOLLRDHUP", 0))
            elif message[0] == c.INIT_FAILED:
                events.append(c.WorkerFailed(w.index, message[1], message[2]))
        if channel.dead:
            with contextlib.suppress(OSError, KeyError):
                self._epoll.unregister(channel.fileno())
            self._mark_gone(w)

    def _mark_gone(self, w: _Worker) -> None:
        """It is gone; its exit code may come a moment later."""
        if w.gone_since is None:
            w.gone_since = time.monotonic()
        if w.pidfd >= 0:
            with contextlib.suppress(OSError, KeyError):
                self._epoll.unregister(w.pidfd)

    def _forget_socket(self, w: _Worker) -> None:
        if w.channel is not None:
            with contextlib.suppress(OSError, KeyError, ValueError):
                self._epoll.unregister(w.channel.fileno())

    def _lost(self, w: _Worker, code: int | None, events: list[c.PoolEvent]) -> None:
        self._pump(w)
        w.gone = True
        if w.channel is not None:
            while w.channel.messages:  # what it had still said before it went
                message = w.channel.messages.popleft()
                if message[0] == c.INIT_FAILED:
                    events.append(c.WorkerFailed(w.index, message[1], message[2]))
        self._forget_socket(w)
        self._mark_gone(w)
        w.let_go()
        events.append(c.WorkerLost(w.index, c.ExitReport(w.pid, code)))

    # -- requests and replies -------------------------------------------------------------------------

    def ring(self, workers: Sequence[int]) -> None:
        """One byte each: there is work in the rows. Who is awake sees it without."""
        awake, bells, write = self._awake, self._bells, os.write
        fence()
        for index in workers:
            if not awake[index]:
                try:
                    write(bells[index], b"\x01")
                except OSError:  # gone (its WorkerLost is under way), or the pipe is full of rings
                    continue

    def pack(self, message: Any) -> bytes:
        """Pickles a message; what does not pickle by reference goes by value."""
        return pack(message)

    def send_packed(self, worker: int, packed: bytes) -> None:
        """Sends a message and rings for it."""
        w = self._workers[worker]
        if w.channel is None:
            return
        w.channel.send_bytes(packed)
        if w.channel.wants_to_send:
            self.sending.add(worker)
        if w.bell >= 0:
            with contextlib.suppress(OSError):
                os.write(w.bell, b"\x02")

    def extra(self, worker: int, env_id: int, seq: int) -> c.Extra | None:
        """The message of a reply, or None while it is under way."""
        w = self._workers[worker]
        if (env_id, seq) not in w.extras:
            self._pump(w)
        return w.extras.pop((env_id, seq), None)

    def answer(self, worker: int, call_id: int) -> tuple[bool, Any] | None:
        """The answer to a call, or None while it is under way."""
        w = self._workers[worker]
        if call_id not in w.answers:
            self._pump(w)
        return w.answers.pop(call_id, None)

    def drop_answer(self, worker: int, call_id: int) -> None:
        """Nobody waits for this answer any more."""
        w = self._workers[worker]
        if w.answers.pop(call_id, None) is None and w.channel is not None:
            w.unwanted.add(call_id)

    def _pump(self, w: _Worker) -> None:
        channel = w.channel
        if channel is None or channel.dead:
            return
        channel.pump()
        if not channel.wants_to_send:
            self.sending.discard(w.index)
        kept = []
        while channel.messages:
            message = channel.messages.popleft()
            if message[0] == c.EXTRA:
                _, env_id, seq, extra = message
                w.extras[env_id, seq] = extra
            elif message[0] == c.ANSWER and message[1] in w.unwanted:
                w.unwanted.discard(message[1])
            elif message[0] == c.ANSWER:
                w.answers[message[1]] = (message[2], pickle.loads(message[3]))
            elif message[0] == c.CLOSED:
                w.closed = message[1]
            else:
                kept.append(message)
        channel.messages.extend(kept)

    def forget(self, worker: int, env_id: int) -> None:
        """Drops messages of replies that nobody waits for."""
        extras = self._workers[worker].extras
        for key in [k for k in extras if k[0] == env_id]:
            del extras[key]

    def wait(self, need: int, timeout: float | None, talking: Sequence[int] = ()) -> None:
        """The caller's sleep: one wait for all bells. Deaths come as a ring of the keeper."""
        bell, flag, need_row = self._bell, self._flag, self._need
        if bell is None or flag is None or need_row is None:
            return
        timeout = _RECHECK if timeout is None else min(timeout, _RECHECK)
        need_row[0] = need
        fence()
        try:
            if flag.tobytes().count(2) >= need:
                return
            if not talking:
                bell.listen(timeout)
            else:
                self._listen_all(bell, talking, timeout)
        finally:
            need_row[0] = 0

    def _listen_all(self, bell: Bell, talking: Sequence[int], timeout: float) -> None:
        poll = select.poll()
        poll.register(bell.read_fd, select.POLLIN)
        for index in talking:
            channel = self._workers[index].channel
            if channel is not None and not channel.dead:
                poll.register(
                    channel.fileno(), select.POLLIN | (select.POLLOUT if channel.wants_to_send else 0)
                )
        poll.poll(timeout * 1000)
        bell.drain()
        for index in talking:
            channel = self._workers[index].channel
            if channel is not None and channel.wants_to_send and channel.flush():
                self.sending.discard(index)

    def wake(self) -> None:
        """Ends ``wait``, from any thread."""
        if self._bell is not None:
            self._bell.ring()

    # -- force ----------------------------------------------------------------------------------------

    def _signal(self, w: _Worker, number: int) -> bool:
        if w.gone or w.pid is None or w.gone_since is not None:
            return False
        try:
            if w.pidfd >= 0:
                signal.pidfd_send_signal(w.pidfd, number)  # type: ignore[attr-defined,unused-ignore]
            else:
                os.kill(w.pid, number)
        except OSError:
            return False
        return True

    def interrupt(self, worker: int, env_id: int, seq: int) -> None:
        """Breaks a call off inside its worker, if that call is still the one that runs there."""
        if self._arena is None or INTERRUPT_SIGNAL is None:
            return
        self._arena.stop_env[worker] = env_id
        self._arena.stop_seq[worker] = seq
        fence()
        self._signal(self._workers[worker], INTERRUPT_SIGNAL)

    def ask_stack(self, worker: int) -> bool:
        """Asks a stuck worker for its Python stack; whether it could be asked."""
        return STACK_SIGNAL is not None and self._signal(self._workers[worker], STACK_SIGNAL)

    def take_stack(self, worker: int) -> str:
        """What it has written of it since; the pipe is this worker's own."""
        fd, text = self._workers[worker].stack, b""
        with contextlib.suppress(BlockingIOError):
            while fd >= 0 and (part := os.read(fd, 65536)):
                text += part
        return text.decode(errors="replace")

    def kill(self, worker: int) -> None:
        """Kills a worker for good."""
        self._signal(self._workers[worker], signal.SIGKILL)

    def pid(self, worker: int) -> int | None:
        """The process id of a worker."""
        return self._workers[worker].pid

    # -- going ----------------------------------------------------------------------------------------

    def close(self, grace: float) -> dict[int, c.Failure]:
        """Asks, waits, interrupts, waits, kills; bounded by ``grace`` and a little."""
        if self._closing or not self._opened:
            return {}
        self._closing = True
        self.nudge()
        self.wake()
        start = time.monotonic()
        alive = [w for w in self._workers if not w.gone and w.channel is not None]
        for w in alive:
            self.send_packed(w.index, pack((c.CLOSE,)))
        interrupted = False
        killed = False
        while alive:
            now = time.monotonic()
            if not interrupted and now - start >= grace / 2:
                interrupted = True
                self._interrupt_all(alive)
            if not killed and now - start >= grace:
                killed = True
                for w in alive:
                    self._signal(w, signal.SIGKILL)
            if now - start >= grace + 3.0:
                break  # a process that SIGKILL cannot end is the kernel's; the nursery goes on watching it
            edge = start + (grace / 2 if not interrupted else grace if not killed else grace + 3.0)
            alive = self._still_there(alive, remaining(edge) or 0.0)
        failures: dict[int, c.Failure] = {}
        for w in self._workers:
            failures.update(w.closed or {})
        self._release()
        return failures

    def _interrupt_all(self, workers: Sequence[_Worker]) -> None:
        arena = self._arena
        if arena is None:
            return
        for w in workers:
            env_id = int(arena.running[w.index])
            if env_id >= 0:
                self.interrupt(w.index, env_id, int(arena.seq[env_id]))

    def _still_there(self, workers: list[_Worker], timeout: float) -> list[_Worker]:
        """Sleeps until something of these workers changes; those that are left."""
        poll = select.poll()
        nursery = self._nursery
        if nursery is not None and not self._nursery_gone:
            poll.register(nursery.fileno(), select.POLLIN)
        for w in workers:
            if w.channel is not None and not w.channel.dead:
                poll.register(
                    w.channel.fileno(), select.POLLIN | (select.POLLOUT if w.channel.wants_to_send else 0)
                )
        poll.poll(max(1.0, timeout * 1000))
        exited = set()
        if nursery is not None and not self._nursery_gone:
            records, alive = nursery.read()
            for record in records:
                w = self._workers[record.worker]
                if record.generation != w.generation:
                    if record.fd >= 0:
                        os.close(record.fd)
                elif record.what == STARTED:
                    w.pid, w.pidfd = record.pid, record.fd
                elif record.what in (EXITED, REFUSED):
                    exited.add(record.worker)
            if not alive:
                self._nursery_ended()
        for w in workers:
            self._pump(w)
            if w.orphan and (w.channel is None or w.channel.dead):
                exited.add(w.index)
        return [w for w in workers if w.index not in exited]

    def _release(self) -> None:
        for w in self._workers:
            w.gone = True
            w.let_go()
        if self._nursery is not None:
            self._nursery.close()
        for bell in (self._bell, self._alarm, self._nudge):
            if bell is not None:
                bell.close()
        if self._epoll is not None:
            self._epoll.close()
        self._arena = None

    def forked(self) -> None:
        """In a child that somebody forked: lets go of every descriptor, touches no process."""
        self._closing = True
        for w in self._workers:
            w.let_go()
        if self._nursery is not None:
            self._nursery.forget()
        for bell in (self._bell, self._alarm, self._nudge):
            if bell is not None:
                bell.close()
        if self._epoll is not None:
            self._epoll.close()


def _is_readable(fd: int) -> bool:
    poll = select.poll()  # select.select knows no descriptor above 1023
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


class _PollEpoll:
    """``select.poll`` with the face of ``select.epoll``, where there is no epoll."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register
        self.unregister = self._poll.unregister
        self.modify = self._poll.modify

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        return self._poll.poll(None if timeout < 0 else timeout * 1000)

    def close(self) -> None:
        """There is nothing to close."""


def raise_fd_limit(wanted: int) -> None:
    """Raises the soft limit on open files towards the hard one, when so many workers need it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = wanted + 256
    if soft != resource.RLIM_INFINITY and soft < need:
        limit = need if hard == resource.RLIM_INFINITY else min(hard, max(need, soft))
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def check_fds(wanted: int, workers: int) -> None:
    """Says before anything is started that descriptors will run out.

    Raises:
        EnvInitError: With how many are needed and left, and what to do.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):  # not on Linux
            return
        used = soft  # there is not even one for the look
    if soft != resource.RLIM_INFINITY and soft - used < wanted:
        raise EnvInitError(
            f"{workers} workers need {wanted} file descriptors, and this process has "
            f"{max(0, soft - used)} left of {soft}. {_MORE_FDS}"
        )


_MORE_FDS = "Raise the limit (ulimit -n), close files, or use fewer workers (num_workers=...)"


def _lacking(what: str, error: OSError) -> str:
    return f"the system refused what {what} would need: {error.strerror or error}. {_MORE_FDS}"
