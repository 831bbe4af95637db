"""Messages over a socket: frames of pickles that never block the parent.

The parent's end is non-blocking: what does not fit goes to an outbox and leaves when the worker
reads, so that two sides that both send more than a socket holds cannot wait for each other. The
worker's end blocks: a worker has nothing better to do.

A frame is taken out of the stream whether it can be read or not: one that cannot is a message of its own
kind, so that what comes behind it arrives.

Descriptors travel beside the frame that they belong to (``SCM_RIGHTS``).
"""

from __future__ import annotations

import collections
import pickle
import select
import socket
import struct
import time
from typing import Any

from envmgr.workers import pickling

_HEAD = struct.Struct("<Q")
_CHUNK = 1 << 18
_MAX_FDS = 8

UNREADABLE = "unreadable"
"""(UNREADABLE, why): in the place of a message that did not unpickle."""


class ChannelClosedError(Exception):
    """The other side is gone. Internal: who meets it makes a WorkerDied or ends itself."""


def pack(message: Any) -> bytes:
    """Pickles a message: by plain pickle where that works, by value (classes of ``__main__``) where not."""
    try:
        return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # pickling a user's object may raise anything
        return pickling.dumps(message)


class _Frames:
    """Bytes in, messages out."""

    __slots__ = ("_buffer", "messages")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.messages: collections.deque[Any] = collections.deque()

    def feed(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _HEAD.size:
            (size,) = _HEAD.unpack_from(buffer)
            end = _HEAD.size + size
            if len(buffer) < end:
                return
            with memoryview(buffer) as whole, whole[_HEAD.size : end] as frame:
                try:
                    message = pickle.loads(frame)
                except Exception as error:  # what is pickled decides what it raises
                    message = (UNREADABLE, f"{type(error).__name__}: {error}")
            del buffer[:end]
            self.messages.append(message)


class ParentChannel:
    """The parent's end. Not locked: its owner (the pool, under the engine's lock) is alone with it.

    Attributes:
        dead: Whether the other side has closed.
        messages: What has arrived and nobody has taken.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._frames = _Frames()
        self._outbox: collections.deque[memoryview] = collections.deque()
        self.dead = False

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._sock.fileno()

    @property
    def messages(self) -> collections.deque[Any]:
        """What has arrived and nobody has taken."""
        return self._frames.messages

    @property
    def wants_to_send(self) -> bool:
        """Whether something waits for room in the socket."""
        return bool(self._outbox) and not self.dead

    def send(self, message: Any) -> None:
        """Sends, or keeps for later what does not fit. What pickling raises is raised before."""
        self.send_bytes(pack(message))

    def send_bytes(self, data: bytes) -> None:
        """Sends a message that is pickled already."""
        self._outbox.append(memoryview(_HEAD.pack(len(data)) + data))
        self.flush()

    def send_with_fds(self, message: Any, fds: list[int]) -> None:
        """Sends a message with descriptors beside it; only while the outbox is empty."""
        data = pack(message)
        frame = memoryview(_HEAD.pack(len(data)) + data)
        try:
            sent = socket.send_fds(self._sock, [frame], fds)
        except OSError:
            self.dead = True
            return
        if sent < len(frame):
            self._outbox.append(frame[sent:])

    def flush(self) -> bool:
        """Sends what the socket takes now; whether nothing is left to send."""
        outbox = self._outbox
        while outbox and not self.dead:
            try:
                sent = self._sock.send(outbox[0])
            except BlockingIOError:
                return False
            except OSError:  # the other side is gone; what it had said is still to be read
                outbox.clear()
                return True
            if sent == len(outbox[0]):
                outbox.popleft()
            else:
                outbox[0] = outbox[0][sent:]
        return True

    def pump(self) -> None:
        """Takes in what is there and sends what can go, without blocking."""
        self.flush()
        while not self.dead:
            try:
                data = self._sock.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError:
                self.dead = True
                return
            if not data:
                self.dead = True
                return
            self._frames.feed(data)
            if len(data) < _CHUNK:
                return

    def close(self) -> None:
        """Lets go of the socket."""
        self.dead = True
        self._sock.close()


class ChildChannel:
    """The worker's end: blocking."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._frames = _Frames()
        self.fds: collections.deque[int] = collections.deque()

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._sock.fileno()

    def send(self, message: Any) -> None:
        """Sends a message; what pickling raises is raised before anything is sent."""
        self.send_bytes(pack(message))

    def send_bytes(self, data: bytes) -> None:
        """Sends a message that is pickled already."""
        try:
            self._sock.sendall(_HEAD.pack(len(data)) + data)
        except OSError as error:
            raise ChannelClosedError from error

    def recv(self) -> Any:
        """The next message. Raises ChannelClosedError when the parent is gone."""
        messages = self._frames.messages
        while not messages:
            self._read()
        return messages.popleft()

    def poll(self) -> Any | None:
        """The next message if it (or a part of it) is here already, else None."""
        messages = self._frames.messages
        if not messages and self._poll.poll(0):
            return self.recv()
        return messages.popleft() if messages else None

    def _read(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, _CHUNK, _MAX_FDS)
        except OSError as error:
            raise ChannelClosedError from error
        self.fds.extend(fds)
        if not data:
            raise ChannelClosedError
        self._frames.feed(data)

    def close(self) -> None:
        """Lets go of the socket."""
        self._sock.close()


def remaining(deadline: float | None) -> float | None:
    """Seconds until ``deadline`` (of ``time.monotonic``), never negative; None for none."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
