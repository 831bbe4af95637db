"""What is told of a step that returned what is no step: other values, other many, no truth value as its end.

The loops unpack and test without a look, because a look would cost every step. So it is the exception that is
looked at: where in our own code it was raised says whether the env had raised it, or had returned what we
stumbled over. Nothing is written to any row here.
"""

from __future__ import annotations

import dis
from types import TracebackType

from envmgr.envs.flags import FIVE, FOUR
from envmgr.workers.outside import traceback_of


def was_given(error: BaseException) -> bool:
    """Whether an exception that a loop caught is of its own question whether values are true.

    An array of several items has no truth value, and neither has a frame of pandas. The env returned it, and
    did not raise it. A loop cannot pay for asking differently; so it is told by where the loop stood: a call
    of the env is another instruction than a test.
    """
    tb = traceback_of(error)
    if tb is None or not issubclass(type(error), Exception):
        return False
    inner = tb.tb_next
    if inner is not None and inner.tb_frame.f_code.co_name not in ("__bool__", "__nonzero__", "__len__"):
        return False  # raised in a call, or by the handler of a signal
    return _is_test(_instruction(tb))


def misreturned(error: BaseException) -> Exception | None:
    """The error to be told of a step that returned another number of values; None for every other error."""
    tb = traceback_of(error)
    if tb is None or not issubclass(type(error), TypeError | ValueError | RuntimeError):
        return None
    while tb.tb_next is not None:
        tb = tb.tb_next
    module = tb.tb_frame.f_globals.get("__name__")
    if module not in ("envmgr.workers.loop", "envmgr.workers.solo", "envmgr.envs.forms"):
        return None
    if _instruction(tb) != "UNPACK_SEQUENCE":
        return None
    four = tb.tb_frame.f_code.co_name == "step_four"
    values = f"{FOUR}, as it did at first," if four else FIVE
    # No space says how many values there are: an error of the env like others (EnvStepError).
    text = f"what step returned has another number of values ({error})"
    told = TypeError(f"{text}; the env's step must return {values} every time")
    told.__cause__ = error
    return told


def _instruction(tb: TracebackType) -> str:
    return dis.opname[tb.tb_frame.f_code.co_code[tb.tb_lasti]]


def _is_test(instruction: str) -> bool:
    return "JUMP" in instruction or instruction in ("TO_BOOL", "UNARY_NOT")
