"""What the parent holds of one worker: its socket, the writing end of its bell, its pidfd, its stack.

A link is made anew with every worker that takes a place over, so nothing that was under way from the one
before can end up with the next.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from typing import Any

from envmgr.log import log as _log
from envmgr.workers import contract as c
from envmgr.workers import descriptors
from envmgr.workers.channel import UNREADABLE, ParentChannel
from envmgr.workers.sealing import open_answer, open_extra

_MESSAGE = bytes([c.Bell.MESSAGE])


@dataclasses.dataclass(slots=True)
class Link:
    """The parent's end of one worker.

    Attributes:
        index: The worker.
        bells: Of all workers: the descriptors as ``ring`` reads them.
        sending: See ``contract.Pool``.
        generation: How many workers had this place, with this one.
        channel: The socket; None when it is closed.
        gone: Whether there is no such process, or none any more.
        gone_since: When its end was seen, before anybody could say how it ended.
        orphan: Whether the nursery that started it is gone, so that its end is seen on its socket alone.
        mail: The row that tells workers which poll of messages; None before there are rows.
        watched: Whether the keeper waits for room in its socket.
        pidfd: Becomes readable when it ends.
        is_pidfd: Whether that is one, by which it can be sent signals; elsewhere it is the end of a pipe.
        stack: Where it writes its stack when it is asked to.
        extras: (env_id, seq) -> what belongs to a reply, still pickled.
        answers: Number of a call -> whether it went well, and its answer, still pickled.
        unwanted: Calls whose answer is dropped when it comes.
        closed: What it said last: the failures of its envs' ``close``.
    """

    index: int
    bells: list[int]
    sending: set[int]
    generation: int = 0
    channel: ParentChannel | None = None
    bell: int = -1
    mail: memoryview | None = None
    watched: bool = False
    pidfd: int = -1
    is_pidfd: bool = False
    stack: int = -1
    pid: int | None = None
    gone: bool = True
    gone_since: float | None = None
    orphan: bool = False
    extras: dict[tuple[int, int], bytes] = dataclasses.field(default_factory=dict)
    answers: dict[int, tuple[bool, bytes]] = dataclasses.field(default_factory=dict)
    unwanted: set[int] = dataclasses.field(default_factory=set)
    closed: dict[int, c.Failure] | None = None

    def has_started(self, pid: int, fd: int, is_pidfd: bool) -> None:
        """The process is there; ``fd`` tells of its end."""
        self.pid, self.pidfd, self.is_pidfd = pid, fd, is_pidfd

    def open_bell(self) -> int:
        """Makes the bell; the worker's end of it, which is the caller's."""
        bell_fd, self.bell = os.pipe()
        os.set_blocking(self.bell, False)
        self.bells[self.index] = self.bell
        return bell_fd

    def open_stack(self) -> int:
        """Makes the pipe of the stack; the worker's end of it, which is the caller's."""
        self.stack, stack_fd = os.pipe()
        os.set_blocking(self.stack, False)
        return stack_fd

    def let_go(self) -> None:
        """Closes what is open; a bell that closes ends its worker."""
        self.hang_up()
        fd, self.pidfd = self.pidfd, -1
        if fd >= 0:
            os.close(fd)

    def hang_up(self) -> None:
        """Closes all but what tells of its end."""
        if self.bell >= 0:
            self.bells[self.index] = -1
        self.sending.discard(self.index)
        channel, fds, self.mail = self.channel, (self.bell, self.stack), None
        # Before the numbers are free for others: the caller may be at it in another thread.
        self.channel, self.bell, self.stack = None, -1, -1
        if channel is not None:
            channel.close()
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    # -- messages -------------------------------------------------------------------------------------

    def send(self, packed: bytes) -> None:
        """Sends a message and rings for it."""
        if self.channel is None:
            return
        self.channel.send_bytes(packed)
        if self.channel.wants_to_send:
            self.sending.add(self.index)
        self._ring()

    def _ring(self) -> None:
        if self.bell >= 0:
            with contextlib.suppress(OSError):  # gone, or the pipe is full of rings
                os.write(self.bell, _MESSAGE)
            if self.mail is not None:
                self.mail[self.index] = 1

    def pump(self) -> None:
        """Takes in what is there and sorts it; what is neither extra, answer nor a last word stays."""
        channel = self.channel
        if channel is None or channel.dead:
            self.sending.discard(self.index)
            return
        waited = channel.wants_to_send
        channel.pump()
        if waited:  # some of it has gone; the worker may have heard its ring when nothing was there
            self._ring()
        kept = []
        while channel.messages:
            message = channel.messages.popleft()
            if message[0] == c.EXTRA:
                _, env_id, seq, extra = message
                self.extras[env_id, seq] = extra
            elif message[0] == c.ANSWER and message[1] in self.unwanted:
                self.unwanted.discard(message[1])
            elif message[0] == c.ANSWER:
                self.answers[message[1]] = (message[2], message[3])
            elif message[0] == c.CLOSED:
                self.closed = message[1]
            elif message[0] == UNREADABLE:
                _log.warning("a message of worker %d could not be read (%s)", self.index, message[1])
            else:
                kept.append(message)
        channel.messages.extend(kept)
        if not channel.wants_to_send and not self.unwanted:
            self.sending.discard(self.index)

    def listen(self) -> None:
        """``pump`` for the caller, who must not take the first word of a worker: the keeper waits for it."""
        if self.mail is not None:
            self.pump()

    def extra(self, env_id: int, seq: int) -> c.Extra | None:
        """The message of a reply, or None while it is under way."""
        key = env_id, seq
        if key not in self.extras:
            self.listen()
        data = self.extras.get(key)
        if data is None:
            return None
        extra = open_extra(data)
        del self.extras[key]  # not before: a Ctrl-C while it is read must not lose it
        return extra

    def answer(self, call_id: int) -> tuple[bool, Any] | None:
        """The answer to a call, or None while it is under way."""
        if call_id not in self.answers:
            self.listen()
        found = self.answers.get(call_id)
        if found is None:
            return None
        answer = open_answer(*found)
        del self.answers[call_id]
        return answer

    def drop_answer(self, call_id: int) -> None:
        """Nobody waits for this answer any more."""
        if self.answers.pop(call_id, None) is None and self.channel is not None:
            self.unwanted.add(call_id)
            self.sending.add(self.index)  # a long one would block its worker for as long as nobody reads it

    def forget(self, env_id: int) -> None:
        """Drops messages of an env's replies that nobody waits for."""
        for key in [k for k in self.extras if k[0] == env_id]:
            del self.extras[key]

    # -- force ----------------------------------------------------------------------------------------

    def signal(self, number: int) -> bool:
        """Sends a signal to this process; whether it was sent.

        Nobody else that has got its number is hit, or, where there are no pidfds, hardly ever.
        """
        if self.gone or self.pid is None or self.gone_since is not None:
            return False
        try:
            self._send_signal(self.pid, number)
        except OSError:
            return False
        return True

    def _send_signal(self, pid: int, number: int) -> None:
        if self.is_pidfd:
            signal.pidfd_send_signal(self.pidfd, number)  # type: ignore[attr-defined,unused-ignore]
        elif self.pidfd < 0 or not descriptors.is_readable(self.pidfd):
            os.kill(pid, number)

    def kill(self) -> None:
        """Ends this process whatever is known of it, if it is still the one that was started."""
        if self.pid is not None and self.pidfd >= 0:
            with contextlib.suppress(OSError):
                self._send_signal(self.pid, signal.SIGKILL)

    def take_stack(self) -> str:
        """What it has written of its stack since; the pipe is this worker's own."""
        text = b""
        with contextlib.suppress(BlockingIOError):
            while self.stack >= 0 and (part := os.read(self.stack, 65536)):
                text += part
        return text.decode(errors="replace")
