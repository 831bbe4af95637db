"""How a test and an env in another process tell each other things, under every start method.

Two means, both of which pickle by path: a ``Signal`` is a counting semaphore on a named pipe (waiting
on it blocks in ``select``, no polling), a ``Log`` is a file of lines that several processes append to.
``wait_until`` is for what offers no event: it polls a condition and fails loudly at its deadline.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

DEADLINE = 20.0
"""Seconds that a test waits for something that must happen; reached only by a failing test."""


class Signal:
    """A counting semaphore that lives in a named pipe.

    Both sides open it for reading and writing, so that neither opening nor a missing peer blocks.
    """

    def __init__(self, path: str) -> None:
        self.path = str(path)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self.path)
        self._fd: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_fd": None}

    @property
    def fd(self) -> int:
        """The pipe's descriptor in this process."""
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDWR)
        return self._fd

    def post(self, n: int = 1) -> None:
        """Lets ``n`` waits through."""
        os.write(self.fd, b"x" * n)

    def wait(self, n: int = 1, deadline: float = DEADLINE) -> None:
        """Waits until it was posted ``n`` times more than it was waited for."""
        end = time.monotonic() + deadline
        for k in range(n):
            left = max(0.0, end - time.monotonic())
            if not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"{os.path.basename(self.path)}: {k} of {n} posts in {deadline} s")
            os.read(self.fd, 1)

    def pass_through(self) -> None:
        """Waits as an env does: without a deadline, in one blocking read that a signal can end."""
        os.read(self.fd, 1)

    def close(self) -> None:
        """Closes this process's descriptor."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Log:
    """Lines that any process appends and the test reads; each append is one atomic write."""

    def __init__(self, path: str) -> None:
        self.path = str(path)

    def add(self, *words: Any) -> None:
        """Appends one line: the words, with spaces between."""
        line = " ".join(str(w) for w in words) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def lines(self, first_word: str | None = None) -> list[list[str]]:
        """The lines so far as lists of words; only those that start with ``first_word`` if it is given."""
        if not os.path.exists(self.path):
            return []
        with open(self.path) as file:
            lines = [line.split() for line in file]
        return [words for words in lines if first_word is None or words[:1] == [first_word]]

    def wait(self, first_word: str, n: int = 1, deadline: float = DEADLINE) -> list[list[str]]:
        """Waits for ``n`` lines that start with ``first_word``, and gives them."""
        wait_until(lambda: len(self.lines(first_word)) >= n, f"{n} lines {first_word!r}", deadline)
        return self.lines(first_word)


def wait_until(condition: Callable[[], Any], what: str, deadline: float = DEADLINE) -> Any:
    """Waits until ``condition()`` is true and gives its value; fails after ``deadline`` seconds."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline} s for {what}")
        time.sleep(0.002)


def shared_memory() -> set[str]:
    """The names in ``/dev/shm`` now, of whoever they are."""
    return set(os.listdir("/dev/shm"))


def wait_no_more_shared_memory(than: set[str], deadline: float = DEADLINE) -> None:
    """Waits until what is new in ``/dev/shm`` by now is gone again.

    Other programs, tests beside this one among them, make locks there that live for a moment.
    """
    new = shared_memory() - than
    wait_until(lambda: not new & shared_memory(), f"{sorted(new)} to go from /dev/shm", deadline)


def wait_for_file(path: Any, deadline: float = DEADLINE) -> None:
    """Waits until ``path`` exists."""
    wait_until(lambda: os.path.exists(path), f"{path} to appear", deadline)


def first_time(path: str) -> bool:
    """Whether nobody asked this question with this path before, in any process."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


class Background:
    """One call in a thread of its own; ``result()`` joins it and gives its value or raises its error."""

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function, args, kwargs), daemon=True)
        self._thread.start()

    def _run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        try:
            self._value = function(*args, **kwargs)
        except BaseException as error:  # handed to whoever asks for the result
            self._error = error

    @property
    def ident(self) -> int | None:
        """The thread's id."""
        return self._thread.ident

    @property
    def running(self) -> bool:
        """Whether the call has not come back."""
        return self._thread.is_alive()

    def result(self, deadline: float = DEADLINE) -> Any:
        """The call's value, waited for at most ``deadline`` seconds."""
        self._thread.join(deadline)
        assert not self._thread.is_alive(), f"the call did not come back in {deadline} s"
        if self._error is not None:
            raise self._error
        return self._value


def within(seconds: float, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls ``function`` in a thread and fails if it is not back after ``seconds``."""
    return Background(function, *args, **kwargs).result(seconds)
