"""A failed call in words: what, and at which line of the user's own."""

from __future__ import annotations

import inspect
import re
import traceback
from typing import Any

from envmgr.cli.checking.blackbox import is_ours, is_users
from envmgr.cli.checking.facts import Trouble
from envmgr.envs.chain import chain
from envmgr.workers.failures import capture, sentence

_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+),? in (\S+)', re.MULTILINE)


def trouble_of(error: BaseException, op: str, count: int, env: Any) -> Trouble:
    """What a call has raised.

    Args:
        error: What was caught.
        op: The call.
        count: The how manieth of its kind.
        env: The adapted env, or None while there is none. Its source is named where nothing else is known.
    """
    failure = capture(error, op, in_process=True)
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_qualname)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno or 0, "<module>"))
    place = users_place(frames) or _home(env, op)
    return Trouble("raised", op, count, sentence(failure), place, failure.traceback)


def place_in(stack: str, innermost_first: bool = False) -> str:
    """The user's own line in a traceback, or in a stack as faulthandler writes it, which is innermost first.

    Args:
        stack: The text. Of several threads, the user's first line counts.
        innermost_first: Whether the innermost frame is on top.
    """
    frames = [(file, int(line), name) for file, line, name in _FRAME.findall(stack)]
    return users_place(frames[::-1] if innermost_first else frames)


def users_place(frames: list[tuple[str, int, str]]) -> str:
    """The innermost line of the user's own, such as ``/home/me/env.py:12 in Env.step``.

    Where there is none, the innermost of a package; an empty text where there is none either.

    Args:
        frames: File, line and function; innermost last.
    """
    for file, line, name in reversed(frames):
        if is_users(file):
            return f"{file}:{line} in {name}"
    for file, line, name in reversed(frames):
        if not is_ours(file):
            return f"{file}:{line} in {name}"
    return ""


def _home(env: Any, op: str) -> str:
    """Where the innermost env's method of that name is written."""
    if env is None:
        return ""
    method = getattr(type(list(chain(env.env))[-1]), op, None)
    code = None if method is None else getattr(inspect.unwrap(method), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_qualname}" if code is not None else ""
