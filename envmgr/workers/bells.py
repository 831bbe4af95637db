"""Doorbells: pipes that say that something is to be done, and carry nothing else.

A pipe rather than an eventfd, because a pipe's reader sees end-of-file when its last writer dies,
on every Unix. A ring never blocks: a pipe that is full rings as loudly as it can already.
"""

from __future__ import annotations

import contextlib
import os
import select


class Bell:
    """One pipe. The side that made it hears; the writing end goes to whoever rings."""

    __slots__ = ("_poll", "read_fd", "write_fd")

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        os.set_blocking(self.write_fd, False)
        self._poll = select.poll()
        self._poll.register(self.read_fd, select.POLLIN)

    def ring(self) -> None:
        """Rings, from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self.write_fd, b"\x00")

    def listen(self, timeout: float | None) -> bool:
        """Sleeps until somebody rings or the time (seconds) is over; whether somebody rang."""
        if not self._poll.poll(None if timeout is None else timeout * 1000):
            return False
        try:
            return bool(os.read(self.read_fd, 65536))
        except OSError:  # empty already, or closed by another thread
            return True

    def drain(self) -> None:
        """Takes all rings that are in the pipe."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.read(self.read_fd, 65536)

    def close(self) -> None:
        """Closes both ends; again does nothing."""
        for fd in (self.read_fd, self.write_fd):
            if fd >= 0:
                os.close(fd)
        self.read_fd = self.write_fd = -1
