"""Values of the user's own on their way between processes: each is pickled on its own, inside a message.

A message whose value neither pickles nor unpickles is read all the same: whose it is, and to which request
it belongs. So a value that cannot travel is the failure of one env, told with what to do, and neither the
end of a worker nor of a channel.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from envmgr.errors import SpaceMismatchError
from envmgr.workers import contract as c
from envmgr.workers.channel import pack
from envmgr.workers.failures import bare, told
from envmgr.workers.outside import from_a_signal

_ADVICE = "its class must be importable in both processes, and its __reduce__ must give what rebuilds it"


def seal_request(message: Any) -> bytes:
    """Pickles a request, its value on its own. Raises what pickling raises."""
    if type(message) is tuple and message and isinstance(message[0], str):
        if message[0] == c.ARGUMENT:
            return pack((*message[:3], pack(message[3])))
        if message[0] == c.CALL:
            return pack((*message[:5], pack(message[5:])))
    return pack(message)


def open_argument(data: bytes) -> Any:
    """The argument of a command, or the Unreadable that stands for it."""
    try:
        return pickle.loads(data)
    except BaseException as error:  # the user's code runs in it; a worker does not end of that
        refused = SpaceMismatchError(
            f"what was sent to it does not unpickle in its worker ({told(error)}): {_ADVICE}"
        )
        refused.__cause__ = bare(error)
        return c.Unreadable(refused)


def open_call(data: bytes) -> tuple[Any, Any] | c.Failure:
    """(args, kwargs) of a call, or what is answered in its place."""
    try:
        args, kwargs = pickle.loads(data)
    except BaseException as error:  # the user's code runs in it; a worker does not end of that
        text = f"the arguments of the call do not unpickle in its worker ({told(error)}): {_ADVICE}"
        return c.Failure(op="call", kind="UnpicklingError", text=text)
    return args, kwargs


def seal_extra(extra: c.Extra, leaves: Sequence[str]) -> bytes:
    """Pickles what belongs to a reply; where that fails, a failure goes in its place.

    Args:
        extra: What belongs to it.
        leaves: The names of the leaves that go by the side channel.
    """
    try:
        return pack(extra)
    except BaseException as error:  # the user's code runs in it
        text = (
            f"{_culprit(extra, leaves)} does not pickle ({told(error)}), so it cannot be sent to the "
            "caller's process; leave out what holds locks, files or connections, or use the type 'base'"
        )
        return pack(_lost(text))


def open_extra(data: bytes) -> c.Extra:
    """What belongs to a reply, or a failure that stands in its place."""
    try:
        extra: c.Extra = pickle.loads(data)
    except BaseException as error:  # the user's code runs in it; Ctrl-C is the caller's own
        if from_a_signal(error):
            raise
        text = f"what it returned does not unpickle in the caller's process ({told(error)}): {_ADVICE}"
        return _lost(text, bare(error))
    return extra


def open_answer(ok: bool, data: bytes) -> tuple[bool, Any]:
    """The answer to a call; one that does not unpickle is a failed call."""
    try:
        return ok, pickle.loads(data)
    except BaseException as error:  # the user's code runs in it; Ctrl-C is the caller's own
        if from_a_signal(error):
            raise
        text = f"its answer does not unpickle in the caller's process ({told(error)}): {_ADVICE}"
        return False, c.Failure(op="call", kind="UnpicklingError", text=text, error=bare(error))


def _lost(text: str, error: BaseException | None = None) -> c.Extra:
    failure = c.Failure(op="result", kind="PickleError", text=text, error=error, mismatch=True)
    return c.Extra(failure=failure, lost=True)


def _culprit(extra: c.Extra, leaves: Sequence[str]) -> str:
    for what, values in (("observation", extra.side), ("last observation", extra.final_side)):
        for leaf, value in zip(leaves, values or (), strict=False):
            try:
                pack(value)
            except BaseException:  # asking is the only way to know
                return f"the {what}{leaf}"
    return "what it returned"
