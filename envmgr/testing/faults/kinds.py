"""The ways to fail, by name.

Those that ``strike`` do something before the env is called, so that the env itself is left as it was; those
that ``spoil`` change what it gave back. Nothing here knows when: that is a ``Fault``'s business.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np

EXIT_CODE = 7
"""The exit code of the kind ``exit``."""

_kept: list[Any] = []
"""What leaks: held until the process ends."""


class FaultError(RuntimeError):
    """What the kind ``raise`` raises."""


class Kind(NamedTuple):
    """One way to fail.

    Attributes:
        doc: What it does, for a table.
        strike: Called before the env is, with the amount; None for a kind that spoils.
        spoil: Turns a result of ``step`` or ``reset`` into a bad one; None for a kind that strikes.
        amount: How much of it by default, None where there is no more or less.
        unit: Of the amount.
        harmless: Whether the call goes on after it and succeeds.
    """

    doc: str
    strike: Callable[[float], None] | None = None
    spoil: Callable[[Any], Any] | None = None
    amount: float | None = None
    unit: str = ""
    harmless: bool = False


def _raise(_: float) -> NoReturn:
    raise FaultError("raised on purpose by envmgr.testing.faults")


def _system_exit(_: float) -> NoReturn:
    raise SystemExit(EXIT_CODE)


def _keyboard_interrupt(_: float) -> NoReturn:
    raise KeyboardInterrupt


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _hang(_: float) -> NoReturn:
    with contextlib.suppress(ValueError):  # only a main thread can; elsewhere there is nobody to ignore
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        with contextlib.suppress(BaseException):  # to ignore everything is what this one is for
            while True:
                time.sleep(600)


def _hang_in_c(_: float) -> None:
    # The GIL is held meanwhile, so no Python code runs, in no thread and no signal handler; and unlike a
    # sleep, a lock is no call that a signal ends.
    libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)  # zeros: an initialised mutex
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def _exit(_: float) -> NoReturn:
    os._exit(EXIT_CODE)


def _segfault(_: float) -> None:
    import faulthandler

    faulthandler.disable()  # where a caller has it on, its report would look like a finding
    ctypes.string_at(0)


def _kill(_: float) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_: float) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _leak_memory(megabytes: float) -> None:
    _kept.append(b"\x01" * int(megabytes * 2**20))


def _leak_fds(count: float) -> None:
    _kept.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(int(count)))


def _print(megabytes: float) -> None:
    line = "x" * 1023 + "\n"
    for _ in range(int(megabytes * 1024)):
        sys.stdout.write(line)
    sys.stdout.flush()


def _rubbish(_: Any) -> Any:
    return None


def _misfit(result: Any) -> Any:
    return _with_obs(result, np.zeros((13, 1, 7)))


def _abnormal(result: Any) -> Any:
    info = getattr(result, "info", None) if hasattr(result, "info") else result[-1]
    told = {**(info or {}), "abnormal": True}
    if hasattr(result, "_replace"):
        return result._replace(info=told)
    return (*result[:-1], told)


def _with_obs(result: Any, obs: Any) -> Any:
    """A result with another observation: of a step in any form, or of a reset with or without an info."""
    if hasattr(result, "_replace") and hasattr(result, "obs"):
        return result._replace(obs=obs)
    if isinstance(result, tuple) and (len(result) > 2 or (len(result) == 2 and isinstance(result[1], dict))):
        return (obs, *result[1:])
    return obs


KINDS: dict[str, Kind] = {
    "raise": Kind("raises FaultError", _raise),
    "system_exit": Kind("raises SystemExit", _system_exit),
    "keyboard_interrupt": Kind("raises KeyboardInterrupt", _keyboard_interrupt),
    "slow": Kind("sleeps, then goes on as if nothing had been", _sleep, None, 0.2, "seconds", True),
    "sleep": Kind("sleeps in Python, which an interrupt ends", _sleep, None, 600.0, "seconds"),
    "hang": Kind("loops in Python, ignoring interrupts and SIGTERM", _hang),
    "hang_in_c": Kind("waits in a C function that never comes back", _hang_in_c),
    "exit": Kind(f"ends its process with exit code {EXIT_CODE}", _exit),
    "segfault": Kind("reads address 0: ended by SIGSEGV", _segfault),
    "kill": Kind("ended by SIGKILL, as by the system when memory runs out", _kill),
    "stop": Kind("stops its process with SIGSTOP", _stop),
    "leak_memory": Kind("keeps memory, then goes on", _leak_memory, None, 8.0, "megabytes", True),
    "leak_fds": Kind("keeps file descriptors open, then goes on", _leak_fds, None, 8.0, "descriptors", True),
    "print": Kind("prints on stdout, then goes on", _print, None, 2.0, "megabytes", True),
    "rubbish": Kind("returns None", None, _rubbish),
    "misfit": Kind("returns an observation of a wrong shape", None, _misfit),
    "abnormal": Kind("returns info['abnormal'] = True (in step only)", None, _abnormal),
}
"""Every kind by its name."""
