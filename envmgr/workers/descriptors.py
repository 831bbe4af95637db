"""File descriptors: how many a pool needs, whether there are so many, what to say when there are not.

And the one wait over many of them, where the system has no epoll.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from typing import Any

from envmgr.errors import EnvInitError

PER_WORKER = 4  # that the parent holds: socket, bell, pidfd, stack
_BESIDE = 16  # bells, nursery, rows, and what is needed for a moment
_ADVICE = "Raise the limit (ulimit -n), close files, or use fewer workers (num_workers=...)"


def raise_limit(wanted: int) -> None:
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


def check(workers: int) -> None:
    """Says before anything is started that descriptors will run out.

    Raises:
        EnvInitError: With how many are needed and left, and what to do.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    wanted = PER_WORKER * workers + _BESIDE
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
            f"{max(0, soft - used)} left of {soft}. {_ADVICE}"
        )


def lacking(what: str, error: OSError) -> str:
    """What to tell when the system has refused something that ``what`` would need."""
    return f"the system refused what {what} would need: {error.strerror or error}. {_ADVICE}"


def is_readable(fd: int) -> bool:
    """Whether a descriptor is readable now."""
    poll = select.poll()  # select.select knows no descriptor above 1023
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def epoll() -> Any:
    """An epoll, or what has its face."""
    return select.epoll() if hasattr(select, "epoll") else _PollEpoll()


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
