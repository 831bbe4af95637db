"""Whose an exception is: of the code that was called, or of a signal that hit it there.

A Ctrl-C, and whatever the program's own handler of a signal raises, comes out of whatever runs at the moment:
an env's step, or the unpickling of what it returned. It is neither's, so nobody there may take it for theirs.
"""

from __future__ import annotations

import dis
import functools
import signal
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, TracebackType
from typing import Any, TypeVar

from envmgr.workers.interrupt import Interrupter

T = TypeVar("T")
_TRACEBACK: Any = vars(BaseException)["__traceback__"]  # a user's class may have its own of that name


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of an exception, whatever its class."""
    tb: TracebackType | None = _TRACEBACK.__get__(error)
    return tb


def is_pressed(error: BaseException) -> bool:
    """Whether a KeyboardInterrupt came from the keyboard, and not from a ``raise`` in an env's code.

    Python's own signal handler is no frame, so the innermost frame tells: it stands at a ``raise``, or it was
    interrupted somewhere else.
    """
    tb = traceback_of(error)
    if not issubclass(type(error), KeyboardInterrupt) or tb is None:
        return False
    while tb.tb_next is not None:
        tb = tb.tb_next
    return dis.opname[tb.tb_frame.f_code.co_code[tb.tb_lasti]] not in ("RAISE_VARARGS", "RERAISE")


def from_a_signal(error: BaseException) -> bool:
    """Whether an exception is a Ctrl-C, or came out of a function that is the handler of a signal now.

    An env that handles a signal itself (an alarm that breaks off its own step, say) and leaves its handler in
    place is taken for the program here: in the caller's process nothing tells the two apart.
    """
    if is_pressed(error):
        return True
    tb = traceback_of(error)
    if tb is None:
        return False
    codes = list(_handlers())
    while tb is not None:
        if any(tb.tb_frame.f_code is code for code in codes):
            return True
        tb = tb.tb_next
    return False


def quietly(ask: Callable[[], T], otherwise: T) -> T:
    """What ``ask`` gives, or ``otherwise`` whatever it raises: for questions that a user's object answers."""
    try:
        return ask()
    except BaseException as error:  # SystemExit too: a worker does not end of a question
        if from_a_signal(error):
            raise
        return otherwise


def _handlers() -> Iterator[CodeType]:
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            code = _code_of(handler)
            if code is not None:
                yield code


def _code_of(handler: Any) -> CodeType | None:
    """The code that runs when a handler is called; None where that is not Python's, or is envmgr's own."""
    while not isinstance(handler, FunctionType):
        if isinstance(handler, functools.partial):
            handler = handler.func
        elif isinstance(handler, MethodType):
            if isinstance(handler.__self__, Interrupter):  # it breaks off what takes too long
                return None
            handler = handler.__func__
        else:
            calls = (vars(cls).get("__call__") for cls in type(handler).__mro__)
            handler = next(filter(None, calls), None)
            if not isinstance(handler, FunctionType):
                return None
    return handler.__code__
