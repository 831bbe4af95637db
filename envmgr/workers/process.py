"""Workers that are processes: the pool as the engine sees it.

Per worker the parent holds a ``Link``. All workers share one bell back, and one alarm for what must not wait
for the caller. Two waits exist: ``wait``, where the caller waits for results, and ``poll``, where the
keeper sleeps for everything that is not a result (see ``family``).
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
from collections.abc import Callable, Sequence
from typing import Any

from envmgr.errors import EnvInitError
from envmgr.memory.arena import Arena, ArenaPlan, fence
from envmgr.workers import contract as c
from envmgr.workers import descriptors
from envmgr.workers.bells import Bell
from envmgr.workers.channel import pack
from envmgr.workers.child import STACK_SIGNAL
from envmgr.workers.closing import see_off
from envmgr.workers.family import Family
from envmgr.workers.hygiene import INTERRUPT_SIGNAL, parent_ends
from envmgr.workers.links import Link
from envmgr.workers.rest import Rest
from envmgr.workers.sealing import seal_request


class ProcessPool:
    """See ``contract.Pool``.

    Args:
        env_fns: One callable per env.
        envs_of: The envs of each worker, neighbours.
        method: ``'fork'``, ``'spawn'`` or ``'forkserver'``.
        options: What a stepper is told: ``each``, ``info_errors``, ``isolate_rng``.
        cpus_of: Where each worker may run; None for anywhere.
        spin: Seconds that caller and workers poll at the most before they sleep.
    """

    background = True

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        envs_of: Sequence[range],
        method: str,
        options: dict[str, Any],
        cpus_of: Sequence[Sequence[int] | None] | None = None,
        spin: float = 0.0,
    ) -> None:
        self._spin = spin
        self.envs_of = list(envs_of)
        self.env_num = len(env_fns)
        self.worker_num = len(self.envs_of)
        self.worker_of = [w for w, envs in enumerate(self.envs_of) for _ in envs]
        self._options = options
        cpus = list(cpus_of) if cpus_of is not None else [None] * self.worker_num
        self._family = Family(list(env_fns), self.envs_of, method, cpus)
        self._bells = self._family.bells
        self.sending = self._family.sending
        self._bell: Bell | None = None
        self._arena: Arena | None = None
        self._rest: Rest | None = None
        self._awake: memoryview = memoryview(b"")
        self._mail: memoryview = memoryview(b"")
        self._all_awake = b"\x01" * self.worker_num
        self._opened = False
        self.news = False

    # -- coming up ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Starts the nursery and asks it for every worker.

        Raises:
            EnvInitError: No process, or too few file descriptors; nothing is left open after ``close``.
        """
        descriptors.raise_limit(descriptors.PER_WORKER * self.worker_num + 64)
        descriptors.check(self.worker_num)
        try:
            self._opened = True
            self._family.start_nursery()
            parent_ends.add(self)
            self._bell = Bell()
            self._family.open()
        except OSError as error:
            raise EnvInitError(descriptors.lacking("the workers", error)) from error

    def renew(self, worker: int) -> None:
        """Starts a new worker in the place of one that is gone; PoolBroken follows where that fails."""
        self._family.renew(worker)

    def make_arena(self, plan: ArenaPlan) -> Arena:
        """Makes the rows in shared memory; ShmError when there is too little."""
        arena = self._arena = Arena.shared(plan)
        if self._bell is not None:
            self._rest = Rest(arena, self._bell, self._spin)
        self._awake, self._mail = arena.bytes_of("awake"), arena.bytes_of("mail")
        return arena

    def attach(self, worker: int) -> None:
        """Hands the rows and the bells to a worker."""
        link, arena, bell, alarm = self._link(worker), self._arena, self._bell, self._family.alarm
        if link.channel is None or arena is None or bell is None or alarm is None or arena.block is None:
            return
        try:
            bell_fd = link.open_bell()
            link.mail = self._mail
        except OSError as error:
            self._family.break_down(descriptors.lacking(f"worker {worker}", error))
            return
        arena.running[worker] = -1
        arena.stop_env[worker] = -1
        arena.awake[worker] = arena.mail[worker] = 0
        try:
            link.channel.send_with_fds(
                (c.SETUP, arena.plan, self._options, self._spin),
                [arena.block.fd, bell_fd, bell.write_fd, alarm.write_fd],
            )
        finally:
            os.close(bell_fd)

    def _link(self, worker: int) -> Link:
        return self._family.links[worker]

    # -- what must not wait for the caller ------------------------------------------------------------

    def nudge(self) -> None:
        """Ends ``poll``, from any thread."""
        self._family.nudge()

    def poll(self, timeout: float | None) -> list[Any]:
        """Sleeps for deaths, hellos and alarms."""
        return self._family.poll(timeout)

    def handle(self, ready: list[Any]) -> list[c.PoolEvent]:
        """Turns what ``poll`` saw into events."""
        return self._family.handle(ready)

    # -- requests and replies -------------------------------------------------------------------------

    def ring(self, workers: Sequence[int]) -> None:
        """One byte each: there is work in the rows. Who is awake sees it without."""
        awake, bells, write = self._awake, self._bells, os.write
        fence()
        if awake.tobytes() == self._all_awake:
            return
        for index in workers:
            if not awake[index]:
                try:
                    write(bells[index], b"\x01")
                except OSError:  # gone (its WorkerLost is under way), or the pipe is full of rings
                    continue

    def pack(self, message: Any) -> bytes:
        """Pickles a message; what does not pickle by reference goes by value."""
        return seal_request(message)

    def send_packed(self, worker: int, packed: bytes) -> None:
        """Sends a message and rings for it; what does not fit goes out when there is room."""
        link = self._link(worker)
        link.send(packed)
        if worker in self.sending and not link.watched:
            self._family.watch(link)

    def extra(self, worker: int, env_id: int, seq: int) -> c.Extra | None:
        """The message of a reply, or None while it is under way."""
        return self._link(worker).extra(env_id, seq)

    def answer(self, worker: int, call_id: int) -> tuple[bool, Any] | None:
        """The answer to a call, or None while it is under way."""
        return self._link(worker).answer(call_id)

    def drop_answer(self, worker: int, call_id: int) -> None:
        """Nobody waits for this answer any more."""
        self._link(worker).drop_answer(call_id)

    def forget(self, worker: int, env_id: int) -> None:
        """Drops messages of replies that nobody waits for."""
        self._link(worker).forget(env_id)

    def wait(self, need: int, timeout: float | None, talking: Sequence[int] = ()) -> None:
        """The caller's sleep: one wait for all bells. Deaths come as a ring of the keeper."""
        rest = self._rest
        if rest is None:
            return
        if not talking:
            rest.until(need, timeout)
        else:
            rest.until(need, timeout, functools.partial(self._listen_all, talking))

    def _listen_all(self, talking: Sequence[int], timeout: float) -> None:
        bell = self._bell
        if bell is None:
            return
        poll = select.poll()
        poll.register(bell.read_fd, select.POLLIN)
        for index in talking:
            link = self._link(index)
            channel = link.channel
            if channel is not None and not channel.dead and link.mail is not None:
                with contextlib.suppress(OSError, ValueError):  # let go of just now: its end is news enough
                    poll.register(
                        channel.fileno(), select.POLLIN | (select.POLLOUT if channel.wants_to_send else 0)
                    )
        poll.poll(timeout * 1000)
        bell.drain()

    def exchange(self) -> None:
        """Sends and takes in what is under way to and from the workers in ``sending``."""
        for index in list(self.sending):
            self._link(index).listen()

    def wake(self) -> None:
        """Ends ``wait``, from any thread."""
        if self._bell is not None:
            self._bell.ring()

    # -- force ----------------------------------------------------------------------------------------

    def interrupt(self, worker: int, env_id: int, seq: int) -> None:
        """Breaks a call off inside its worker, if that call is still the one that runs there."""
        if self._arena is None or INTERRUPT_SIGNAL is None:
            return
        self._arena.stop_env[worker] = env_id
        self._arena.stop_seq[worker] = seq
        fence()
        self._link(worker).signal(INTERRUPT_SIGNAL)

    def interrupt_build(self, worker: int) -> None:
        """Breaks an env_fn off."""
        if INTERRUPT_SIGNAL is not None:
            self._link(worker).signal(INTERRUPT_SIGNAL)

    def ask_stack(self, worker: int) -> bool:
        """Asks a stuck worker for its Python stack; whether it could be asked."""
        return STACK_SIGNAL is not None and self._link(worker).signal(STACK_SIGNAL)

    def take_stack(self, worker: int) -> str:
        """What it has written of it since."""
        return self._link(worker).take_stack()

    def retire(self, worker: int) -> None:
        """Asks a worker to close its envs and go."""
        self.send_packed(worker, pack((c.CLOSE,)))

    def last_words(self, worker: int) -> dict[int, c.Failure] | None:
        """What the envs of a worker raised in ``close``, where it was asked to go and could still tell."""
        return self._link(worker).closed

    def kill(self, worker: int) -> None:
        """Kills a worker for good."""
        self._family.kill(worker)

    def pid(self, worker: int) -> int | None:
        """The process id of a worker."""
        return self._link(worker).pid

    # -- going ----------------------------------------------------------------------------------------

    def close(self, grace: float) -> dict[int, c.Failure]:
        """Asks, waits, interrupts, waits, kills; bounded by ``grace`` and a little."""
        if self._family.closing or not self._opened:
            return {}
        self._family.closing = True
        self.nudge()
        self.wake()
        try:
            return see_off(self._family, grace, self._interrupt_all)
        finally:  # a Ctrl-C while it waits: who is left goes with its bell
            try:
                self._family.release()
            finally:
                if self._bell is not None:
                    self._bell.close()
            self._arena = self._rest = None
            self._awake = self._mail = memoryview(bytes(self.worker_num))  # the rows go when nobody has them

    def _interrupt_all(self, links: Sequence[Link]) -> None:
        arena = self._arena
        for link in links:
            if arena is None or link.mail is None:
                self.interrupt_build(link.index)
                continue
            env_id = int(arena.running[link.index])
            if env_id >= 0:
                self.interrupt(link.index, env_id, int(arena.seq[env_id]))

    def forked(self) -> None:
        """In a child that somebody forked: lets go of every descriptor, touches no process."""
        self._family.forked()
        if self._bell is not None:
            self._bell.close()
