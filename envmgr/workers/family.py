"""How workers come and go: the nursery that starts them, and the keeper's wait for all that is not a result.

A worker's death is seen by the nursery's word, the pidfd or end-of-file on its socket, whichever comes
first. The nursery knows the exit code, so an end that was seen otherwise waits a moment for its word.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from envmgr.errors import EnvInitError
from envmgr.workers import contract as c
from envmgr.workers import descriptors
from envmgr.workers.bells import Bell
from envmgr.workers.channel import ParentChannel
from envmgr.workers.links import Link
from envmgr.workers.nursery_client import EXITED, GUARD_ADVICE, REFUSED, STARTED, NurseryClient, Record

_LOST_AFTER = 1.0  # seconds that an exit code may come later than the death itself


class Family:
    """All workers of one pool.

    Args:
        env_fns: One callable per env.
        envs_of: The envs of each worker.
        method: ``'fork'``, ``'spawn'`` or ``'forkserver'``.
        cpus_of: Where each worker may run.

    Attributes:
        bells: The descriptor on which each worker is rung for, -1 for none.
        sending: See ``contract.Pool``.
        links: What is held of each worker.
        alarm: Workers ring it for what must not wait for the caller.
        closing: Nothing is news any more.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        envs_of: Sequence[range],
        method: str,
        cpus_of: Sequence[Sequence[int] | None],
    ) -> None:
        self._env_fns = env_fns
        self._envs_of = envs_of
        self._method = method
        self._cpus_of = cpus_of
        self.bells = [-1] * len(envs_of)
        self.sending: set[int] = set()
        self.links = [Link(w, self.bells, self.sending) for w in range(len(envs_of))]
        self.nursery: NurseryClient | None = None
        self.nursery_gone = False
        self.alarm: Bell | None = None
        self._nudge: Bell | None = None
        self._epoll: Any = None
        self._broken: list[c.PoolEvent] = []
        self._leaving: dict[int, Link] = {}
        self.closing = False

    # -- coming ---------------------------------------------------------------------------------------

    def start_nursery(self) -> None:
        """Starts the process that starts the workers."""
        self.nursery = NurseryClient(self._env_fns, self._envs_of, self._method, self._cpus_of)

    def open(self) -> None:
        """Asks the nursery for every worker."""
        if self.nursery is None:
            return
        self.alarm = Bell()
        self._nudge = Bell()
        self._epoll = descriptors.epoll()
        for fd in (self.nursery.fileno(), self.alarm.read_fd, self._nudge.read_fd):
            self._epoll.register(fd, select.POLLIN)
        for link in self.links:
            self._start(link)

    def renew(self, worker: int) -> None:
        """Starts a new worker in the place of one that is gone; PoolBroken follows where that fails."""
        try:
            self._start(self.links[worker])
        except OSError as error:
            self.break_down(descriptors.lacking(f"a new worker {worker}", error))
        except EnvInitError as error:
            self.break_down(str(error))

    def break_down(self, text: str) -> None:
        """Has ``handle`` tell that no worker can be started."""
        self._broken.append(c.PoolBroken(text))
        self.nudge()

    def _start(self, old: Link) -> None:
        self._see_off(old)
        ours, theirs = socket.socketpair()
        channel = ParentChannel(ours)
        fresh = Link(old.index, self.bells, self.sending, old.generation + 1, channel, gone=False)
        self.links[old.index] = fresh
        try:
            with theirs:
                stack = fresh.open_stack()
                try:
                    if not self._ask(fresh, theirs, stack):
                        self._new_nursery()
                        fresh.orphan = False
                        self._ask(fresh, theirs, stack)
                finally:
                    os.close(stack)
        except BaseException:  # nobody will come up, so nobody is waited for
            fresh.gone = True
            fresh.let_go()
            raise
        self._epoll.register(ours.fileno(), select.POLLIN)

    def _see_off(self, old: Link) -> None:
        """One whose env_fn failed still closes its other envs; if a thread keeps it alive, it ends here."""
        lingering = self._leaving.get(old.index)
        if lingering is not None:
            lingering.kill()
            self._has_left(lingering)
        old.hang_up()
        if old.gone or old.pidfd < 0:
            old.let_go()
        else:
            self._leaving[old.index] = old
            with contextlib.suppress(OSError):  # it is registered already
                self._epoll.register(old.pidfd, select.POLLIN)

    def _has_left(self, old: Link) -> None:
        del self._leaving[old.index]
        with contextlib.suppress(OSError, KeyError):
            self._epoll.unregister(old.pidfd)
        old.let_go()

    def kill(self, worker: int) -> None:
        """Kills a worker for good; where none has started yet, what should have started it is stuck."""
        link = self.links[worker]
        if link.pid is None and not link.gone and self.nursery is not None and not self.nursery_gone:
            self.nursery.kill()
        else:
            link.signal(signal.SIGKILL)

    def _ask(self, link: Link, theirs: socket.socket, stack: int) -> bool:
        nursery = self.nursery
        return nursery is not None and nursery.start_worker(link.index, link.generation, theirs, stack)

    def _new_nursery(self) -> None:
        """The nursery itself was killed: a fresh one, never a fork, because by now there are threads."""
        if self.nursery is not None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                self._epoll.unregister(self.nursery.fileno())
            self.nursery.close(0.5)
        self.nursery_ended()
        self.nursery = NurseryClient(self._env_fns, self._envs_of, self._method, self._cpus_of, fresh=True)
        self.nursery_gone = False
        self._epoll.register(self.nursery.fileno(), select.POLLIN)

    def nursery_ended(self) -> None:
        """Nobody will tell how the workers of this nursery end."""
        self.nursery_gone = True
        for link in self.links:
            link.orphan = True

    # -- hearing --------------------------------------------------------------------------------------

    def nudge(self) -> None:
        """Ends ``poll``, from any thread."""
        if self._nudge is not None:
            self._nudge.ring()

    def poll(self, timeout: float | None) -> list[Any]:
        """Sleeps for deaths, hellos and alarms."""
        late = [w.gone_since for w in self.links if w.gone_since is not None and not w.gone]
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
        fds = {fd for fd, _ in ready}
        nursery, alarm, nudge = self.nursery, self.alarm, self._nudge
        if self.closing or nursery is None or alarm is None or nudge is None:
            return []
        self._broken, events = [], self._broken
        if nudge.read_fd in fds:
            nudge.drain()
        if nursery.fileno() in fds:
            self._hear_nursery(nursery, events)
        for link in list(self.links):
            if link.gone:
                continue
            if link.channel is not None and link.channel.fileno() in fds:
                self._hear(link, events)
                if link.watched:
                    self.watch(link)
            # What was seen may be older than this worker: its predecessor's descriptor had the same number.
            if link.pidfd >= 0 and link.pidfd in fds and descriptors.is_readable(link.pidfd):
                self._mark_gone(link)
            if link.gone_since is not None and time.monotonic() - link.gone_since >= _LOST_AFTER:
                self._lost(link, None, events)
        for old in list(self._leaving.values()):
            if old.pidfd in fds and descriptors.is_readable(old.pidfd):
                self._has_left(old)
        if alarm.read_fd in fds:
            alarm.drain()
            events.append(c.Alarm())
        return events

    def watch(self, link: Link) -> None:
        """Has ``handle`` go on with what waits for room in a link's socket, and no longer than it does."""
        channel = link.channel
        if channel is None or channel.dead:
            return
        link.watched = channel.wants_to_send
        room = select.POLLOUT if link.watched else 0  # epoll has the same number for it
        with contextlib.suppress(OSError, KeyError, ValueError):  # closed by another thread, or forgotten
            self._epoll.modify(channel.fileno(), getattr(select, "EPOLLRDHUP", 0) | room)

    def _hear_nursery(self, nursery: NurseryClient, events: list[c.PoolEvent]) -> None:
        records, alive = nursery.read()
        for record in records:
            link = self.links[record.worker]
            if record.generation != link.generation or link.gone:
                if record.fd >= 0:
                    os.close(record.fd)
            elif record.what == STARTED:
                link.has_started(record.pid, record.fd, bool(record.code))
                if link.pidfd >= 0:
                    self._epoll.register(link.pidfd, select.POLLIN)
            elif record.what == EXITED:
                self._lost(link, None if record.code == -1000 else record.code, events)
            elif record.what == REFUSED:
                self._refused(link, record, events)
        if not alive:
            self._epoll.unregister(nursery.fileno())
            self.nursery_ended()
            self._never_started(nursery.exitcode(), events)

    def _never_started(self, code: int | None, events: list[c.PoolEvent]) -> None:
        """The workers that an ended nursery was asked for: without them no launch, but another renewal."""
        text = f"the process that starts the workers ended (exit code {code})"
        for link in [link for link in self.links if not link.gone and link.pid is None]:
            if link.generation == 1:
                advice = GUARD_ADVICE if code is None or code >= 0 else "Something has killed it"
                events.append(c.PoolBroken(f"{text}. {advice}"))
                return
            self._forget_socket(link)
            link.gone = True
            link.let_go()
            events.append(c.WorkerLost(link.index, c.ExitReport(None, None, text)))

    def _refused(self, link: Link, record: Record, events: list[c.PoolEvent]) -> None:
        self._forget_socket(link)
        link.gone = True  # it never was there, so nobody waits for its end
        link.let_go()
        why = os.strerror(record.code) if record.code else "for an unknown reason"
        events.append(
            c.PoolBroken(
                f"the system gave no process for worker {link.index}: {why}. Use fewer workers "
                "(num_workers=...), or raise the limit on processes or memory"
            )
        )

    def _hear(self, link: Link, events: list[c.PoolEvent]) -> None:
        channel = link.channel
        if channel is None:
            return
        link.pump()
        while channel.messages:
            message = channel.messages.popleft()
            if message[0] == c.HELLO:
                events.append(c.WorkerUp(link.index, message[1]))
                # From here on its messages are read by whoever waits for one; only its end is news.
                self._epoll.modify(channel.fileno(), getattr(select, "EPOLLRDHUP", 0))
            elif message[0] == c.INIT_FAILED:
                events.append(c.WorkerFailed(link.index, message[1], message[2]))
        if channel.dead:
            self._forget_socket(link)
            self._mark_gone(link)

    def _mark_gone(self, link: Link) -> None:
        """It is gone; its exit code may come a moment later."""
        if link.gone_since is None:
            link.gone_since = time.monotonic()
        if link.pidfd >= 0:
            with contextlib.suppress(OSError, KeyError):
                self._epoll.unregister(link.pidfd)

    def _forget_socket(self, link: Link) -> None:
        if link.channel is not None:
            with contextlib.suppress(OSError, KeyError, ValueError):
                self._epoll.unregister(link.channel.fileno())

    def _lost(self, link: Link, code: int | None, events: list[c.PoolEvent]) -> None:
        link.pump()
        if code is None:  # nobody saw it end: where it lives, its successor would share its rows with it
            link.kill()
        link.gone = True
        if link.channel is not None:
            while link.channel.messages:  # what it had still said before it went
                message = link.channel.messages.popleft()
                if message[0] == c.INIT_FAILED:
                    events.append(c.WorkerFailed(link.index, message[1], message[2]))
        self._forget_socket(link)
        self._mark_gone(link)
        link.let_go()
        events.append(c.WorkerLost(link.index, c.ExitReport(link.pid, code)))

    # -- going ----------------------------------------------------------------------------------------

    def release(self) -> None:
        """Lets go of everything; who is still there is ended."""
        everybody_went = all(link.gone for link in self.links)
        for link in (*self.links, *self._leaving.values()):
            link.gone = True
            link.let_go()
        self._leaving.clear()  # the nursery kills who is still there
        try:
            if self.nursery is not None:
                self.nursery.close(1.0 if everybody_went else 5.0)
        finally:
            self._close_waits()

    def forked(self) -> None:
        """In a child that somebody forked: lets go of every descriptor, touches no process."""
        self.closing = True
        for link in (*self.links, *self._leaving.values()):
            link.let_go()
        if self.nursery is not None:
            self.nursery.forget()
        self._close_waits()

    def _close_waits(self) -> None:
        for bell in (self.alarm, self._nudge):
            if bell is not None:
                bell.close()
        if self._epoll is not None:
            self._epoll.close()
