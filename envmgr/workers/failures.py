"""Exceptions told across a process border: caught in a worker, told again in the parent.

The user's own line must be in the message, so the traceback travels as text, with envmgr's frames
cut off its front; the exception itself travels too where it pickles, and becomes ``__cause__``.
"""

from __future__ import annotations

import importlib
import os
import traceback
from types import TracebackType
from typing import Any

from envmgr.errors import SpaceMismatchError
from envmgr.workers import pickling
from envmgr.workers.contract import Failure
from envmgr.workers.interrupt import Interrupted
from envmgr.workers.outside import quietly, traceback_of

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


def capture(error: BaseException, op: str, *, in_process: bool = False) -> Failure:
    """Makes a Failure of an exception that was just caught.

    The exception is a user's object: whatever it raises when it is asked, it is told as far as it answers.

    Args:
        error: What was caught.
        op: What was called: ``'step'``, ``'reset'``, ``'env_fn'``, ``'seed'``, ...
        in_process: Whether the failure stays in this process; the exception itself goes along then.
    """
    from envmgr.envs.adapt import explain

    interrupted = issubclass(type(error), Interrupted)
    return Failure(
        op=op,
        kind=kind_of(error),
        text=text_of(error),
        traceback=formatted(error),
        pickled=None if in_process or interrupted else _pickled(error),
        error=error if in_process and not interrupted else None,
        interrupted=interrupted,
        mismatch=issubclass(type(error), SpaceMismatchError),
        advice=quietly(lambda: explain(error) or "", ""),  # a courtesy: it must not break the report
    )


def kind_of(error: BaseException) -> str:
    """The name of an exception's class."""
    return quietly(lambda: str.__str__(type(error).__name__), "an exception without a name")


def text_of(error: BaseException) -> str:
    """The message of an exception, as a plain str: one of a user's class may not pickle."""
    return quietly(lambda: str.__str__(str(error)), "(its message could not be had: __str__ raised)")


def told(error: BaseException) -> str:
    """An exception for the middle of a sentence: its class, and its message where it has one."""
    text = text_of(error)
    return f"{kind_of(error)}: {text}" if text else kind_of(error)


def bare(error: BaseException) -> BaseException:
    """The same exception without its traceback, whose frames would keep alive what is theirs."""
    return BaseException.with_traceback(error, None)


def formatted(error: BaseException) -> str:
    """The traceback of an exception as text, without envmgr's frames before the user's."""
    tb = _skip_ours(traceback_of(error))
    whole = quietly(lambda: "".join(traceback.format_exception(type(error), error, tb)), "")
    # Python asks the exception for more than its message: its notes, its cause, that one's traceback.
    return whole or f"Traceback (most recent call last):\n{''.join(traceback.format_tb(tb))}{told(error)}\n"


def _pickled(error: BaseException) -> bytes | None:
    def pickled() -> bytes:
        return pickling.dumps(error)

    data = quietly(pickled, None)  # it may hold anything; its text is told in any case
    return data if data is not None and len(data) < 1_000_000 else None


def rebuild(failure: Failure) -> BaseException | None:
    """The user's exception, where it can be had again."""
    if failure.error is not None:
        return failure.error
    data = failure.pickled
    if data is None:
        return None
    # Its class may not exist here, or its constructor may ask for more, or do anything.
    error: Any = quietly(lambda: importlib.import_module("pickle").loads(data), None)
    return error if issubclass(type(error), BaseException) else None


def sentence(failure: Failure) -> str:
    """One line: what raised what."""
    head = f"{failure.kind}: {failure.text}" if failure.text else failure.kind
    return f"{head}\n{failure.advice}" if failure.advice else head
