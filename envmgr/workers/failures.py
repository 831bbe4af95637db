"""Exceptions told across a process border: caught in a worker, told again in the parent.

The user's own line must be in the message, so the traceback travels as text, with envmgr's frames
cut off its front; the exception itself travels too where it pickles, and becomes ``__cause__``.
"""

from __future__ import annotations

import dis
import importlib
import os
import traceback
from types import TracebackType
from typing import Any

from envmgr.errors import SpaceMismatchError
from envmgr.workers.contract import Failure
from envmgr.workers.interrupt import Interrupted

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TOYS = os.path.join(_OURS, "envs", "toy"), os.path.join(_OURS, "testing")


def _skip_ours(tb: TracebackType | None) -> TracebackType | None:
    """The first frame that is not envmgr's own (the whole traceback when all are)."""
    at = tb
    while at is not None:
        name = os.path.abspath(at.tb_frame.f_code.co_filename)
        if not name.startswith(_OURS) or name.startswith(_TOYS):
            return at
        at = at.tb_next
    return tb


def is_pressed(error: BaseException) -> bool:
    """Whether a KeyboardInterrupt came from the keyboard, and not from a ``raise`` in an env's code.

    Python's own signal handler is no frame, so the innermost frame tells: it stands at a ``raise``, or it was
    interrupted somewhere else.
    """
    tb = error.__traceback__
    if not isinstance(error, KeyboardInterrupt) or tb is None:
        return False
    while tb.tb_next is not None:
        tb = tb.tb_next
    return dis.opname[tb.tb_frame.f_code.co_code[tb.tb_lasti]] not in ("RAISE_VARARGS", "RERAISE")


def capture(error: BaseException, op: str, *, in_process: bool = False) -> Failure:
    """Makes a Failure of an exception that was just caught.

    Args:
        error: What was caught.
        op: What was called: ``'step'``, ``'reset'``, ``'env_fn'``, ``'seed'``, ...
        in_process: Whether the failure stays in this process; the exception itself goes along then.
    """
    from envmgr.envs.adapt import explain

    text = "".join(traceback.format_exception(type(error), error, _skip_ours(error.__traceback__)))
    interrupted = isinstance(error, Interrupted)
    advice = ""
    try:
        advice = explain(error) or ""
    except Exception:  # the advice is a courtesy: a strange exception object must not break the report
        advice = ""
    try:
        message = str(error)
    except Exception:  # a user's __str__ may raise anything
        message = "(its message could not be had: __str__ raised)"
    return Failure(
        op=op,
        kind=type(error).__name__,
        text=message,
        traceback=text,
        pickled=None if in_process or interrupted else _pickled(error),
        error=error if in_process and not interrupted else None,
        interrupted=interrupted,
        mismatch=isinstance(error, SpaceMismatchError),
        advice=advice,
    )


def _pickled(error: BaseException) -> bytes | None:
    try:
        import cloudpickle

        data = cloudpickle.dumps(error)
    except Exception:  # an exception may hold anything; its text is told in any case
        return None
    return bytes(data) if len(data) < 1_000_000 else None


def rebuild(failure: Failure) -> BaseException | None:
    """The user's exception, where it can be had again."""
    if failure.error is not None:
        return failure.error
    if failure.pickled is None:
        return None
    try:
        error: Any = importlib.import_module("pickle").loads(failure.pickled)
    except Exception:  # its class may not exist here, or its constructor may ask for more
        return None
    return error if isinstance(error, BaseException) else None


def sentence(failure: Failure) -> str:
    """One line: what raised what."""
    head = f"{failure.kind}: {failure.text}" if failure.text else failure.kind
    return f"{head}\n{failure.advice}" if failure.advice else head
