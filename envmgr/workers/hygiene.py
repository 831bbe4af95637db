"""What a fresh worker process sets right before it touches an env.

Signals, the global random generators, BLAS threads, and the descriptors that a fork copies from
the parent. Everything here is about the process, nothing about envs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

INTERRUPT_SIGNAL = getattr(signal, "SIGRTMIN", 0) + 5 if hasattr(signal, "SIGRTMIN") else None
"""The signal that breaks a call off inside a worker. A real-time signal: SIGALRM, SIGUSR1 and their
like belong to the user's env."""

_BLAS_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_OWN_WORD = ("VECLIB_MAXIMUM_THREADS",)
"""Those whose library does not go by OMP_NUM_THREADS."""


def one_blas_thread() -> dict[str, str]:
    """Sets one BLAS thread for libraries that load from now on, where the user has said nothing.

    A user's OMP_NUM_THREADS is for all libraries that go by it where their own variable is missing, so those
    are left missing.

    Returns:
        The variables that were set.
    """
    names = _OWN_WORD if "OMP_NUM_THREADS" in os.environ else _BLAS_VARIABLES
    made = {name: "1" for name in names if name not in os.environ}
    os.environ.update(made)
    return made


def limit_loaded_blas() -> None:
    """One thread for a BLAS that is loaded already (a forked worker inherits the parent's numpy)."""
    if any(os.environ.get(name, "1") != "1" for name in _BLAS_VARIABLES):
        return
    if "numpy" not in sys.modules:
        return
    with contextlib.suppress(Exception):  # a convenience: whatever goes wrong here must not stop an env
        import threadpoolctl

        threadpoolctl.threadpool_limits(1, user_api="blas")


def fresh_signals() -> None:
    """Ends what the parent had installed: Ctrl-C is the parent's business, SIGTERM ends at once.

    A no-op handler rather than SIG_IGN, because an ignored signal stays ignored in programs that
    the env starts. Where SIGCHLD is ignored, nobody learns how a child ended. What the parent's thread had
    blocked (for ``sigwait``, say) would keep a worker from being interrupted and asked where it is.
    """
    signal.signal(signal.SIGINT, lambda *_: None)
    for name in ("SIGTERM", "SIGCHLD"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    for name in ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM"):
        number = getattr(signal, name, None)
        if number is not None and callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


@contextlib.contextmanager
def masked_interrupts(tracked: bool = False) -> Iterator[None]:
    """Starts a process with SIGINT blocked, so that a Ctrl-C cannot hit it before ``fresh_signals``.

    ``tracked``: the start makes sure of multiprocessing's resource tracker, which unblocks SIGINT when it
    has to start it; so it is started before.
    """
    if tracked:
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # A mask is one thread's, and another one (of BLAS, say) may take the signal in its place, after which
    # Python's handler runs here all the same. So the handler is put off too.
    handler = signal.getsignal(signal.SIGINT)
    here = threading.current_thread() is threading.main_thread() and handler is not None
    caught: list[tuple[int, Any]] = []
    if here:
        signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if here:
            signal.signal(signal.SIGINT, handler)
            if caught and callable(handler):
                handler(*caught[0])


def derive(*parts: int) -> int:
    """A 64-bit number from some integers, the same everywhere, with no visible pattern."""
    text = ",".join(str(p) for p in parts).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def seed_globals(seed: int) -> None:
    """Seeds ``random``, ``numpy.random`` and torch, the last two only if they are loaded."""
    random.seed(seed)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        with contextlib.suppress(AttributeError):  # half imported, or a stand-in
            torch.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)


def fresh_globals() -> None:
    """Gives a forked worker streams of its own, where nobody has seeded."""
    seed_globals(int.from_bytes(os.urandom(8), "little"))


class _ParentEnds:
    """The descriptors that must never live on in a forked child.

    While a child holds a copy of a bell's writing end, the parent's death cannot be seen on that
    bell. Whoever forks (we, the user, a data loader) leaves them closed in the child.
    """

    def __init__(self) -> None:
        self._owners: weakref.WeakSet[Any] = weakref.WeakSet()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._close_all)

    def add(self, owner: Any) -> None:
        """``owner.forked()`` is called in every child that this process forks."""
        self._owners.add(owner)

    def _close_all(self) -> None:
        for owner in list(self._owners):
            owner.forked()
        self._owners.clear()


parent_ends = _ParentEnds()
