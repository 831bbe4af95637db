"""A process that an env has forked is no worker: where it comes out of the env's code, it ends.

An env may fork helpers. One that ends in an exception or by ``sys.exit``, rather than by ``os._exit``, comes
up through the env's call into the worker's own code, which would catch that and go on: as a second worker
on the same rows. One that simply returns from a step or a reset, which are too hot to ask about, finds no
rows at all (see ``SharedBlock``).
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

_stray = False
_watching = False


def watch() -> None:
    """From now on this process is a worker, and what it forks is not; unless that comes here, too.

    An env may have a manager of its own, whose workers are forks of forks of this one.
    """
    global _stray, _watching
    _stray = False
    if hasattr(os, "register_at_fork") and not _watching:
        os.register_at_fork(after_in_child=_mark)
        _watching = True


def _mark() -> None:
    global _stray
    _stray = True


def end_if_stray(error: BaseException | None = None) -> None:
    """Ends a fork of a worker as Python ends a program, with the exit code that ``error`` asks for.

    Args:
        error: What came out of the env's code; None where that has returned.
    """
    if not _stray:
        return
    code = 1
    try:
        if error is None:
            print("envmgr: a process that an env has forked must not return from its code", file=sys.stderr)
        elif not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif error.code is None or isinstance(error.code, int):
            code = error.code or 0
        else:
            print(error.code, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a closed stream is not worth a word at the very end
                stream.flush()
    finally:
        os._exit(code & 0xFF)
