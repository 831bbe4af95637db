"""Turns what the engine knows of a failure into the error that the caller sees.

Every message says which env, what it did, what happened, and what to do.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from envmgr.engine.events import Fail
from envmgr.errors import (
    EnvInitError,
    EnvInitTimeoutError,
    EnvManagerError,
    EnvResetError,
    EnvStepError,
    EnvTimeoutError,
    SpaceMismatchError,
    WorkerDied,
)
from envmgr.workers.contract import ExitReport, Failure
from envmgr.workers.failures import rebuild, sentence


@dataclasses.dataclass(slots=True)
class Overrun:
    """A call that took longer than it may."""

    op: str
    limit: float
    stack: str = ""
    pid: int | None = None
    worker_killed: bool = False


@dataclasses.dataclass(slots=True)
class Death:
    """A worker that is gone, and the envs that it hosted."""

    report: ExitReport
    env_ids: tuple[int, ...]
    stack: str = ""
    why: str = ""


Cause = Failure | Overrun | Death | str


def error_for(env_id: int, cause: Any, op: str, action: Any = None) -> EnvManagerError:
    """The error of one failed call.

    Args:
        env_id: The env.
        cause: What is known: a Failure, an Overrun, a Death, or a text.
        op: ``'step'``, ``'reset'`` or ``'init'``; of a Death also what else it was in, in words.
        action: The action of the step, for the message.
    """
    doing = {"step": "in step", "reset": "in reset", "init": "while it was built"}.get(op, op)
    if isinstance(cause, Overrun):
        text = (
            f"env {env_id}: {cause.op} took longer than {cause.op}_timeout={cause.limit:g} s"
            if cause.op in ("step", "reset")
            else f"env {env_id}: its worker did not come up within connect_timeout={cause.limit:g} s"
        )
        if cause.worker_killed:
            text += f"; it did not react to an interrupt, so its worker (process {cause.pid}) was killed"
        text += (
            f". Raise {cause.op if cause.op in ('step', 'reset') else 'connect'}_timeout if it is only slow"
        )
        cls = EnvTimeoutError if cause.op in ("step", "reset") else EnvInitTimeoutError
        return cls(text, env_id=env_id, limit=cause.limit, child_traceback=cause.stack or None)
    if isinstance(cause, Death):
        report = cause.report
        others = [i for i in cause.env_ids if i != env_id]
        text = f"env {env_id}: its worker died {doing}: {report}"
        if others:
            text += f"; the same worker hosted env {', '.join(map(str, others))}"
        if cause.why:
            text = f"env {env_id}: its worker (process {report.pid}) was ended {doing} by envmgr: {cause.why}"
        elif report.signal_name == "SIGKILL":
            text += ". Look at the memory of your envs (use fewer workers, or smaller envs)"
        elif report.signal_name in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL"):
            text += ". A native library of the env crashed; run it with python -X faulthandler to see where"
        return WorkerDied(
            text,
            env_id=env_id,
            pid=report.pid,
            exitcode=report.exitcode,
            signal_name=report.signal_name,
            env_ids=cause.env_ids,
            child_traceback=cause.stack or None,
        )
    if isinstance(cause, Failure):
        return _from_failure(env_id, cause, op, action)
    return {"step": EnvStepError, "reset": EnvResetError, "init": EnvInitError}[op](
        f"env {env_id} failed {doing}: {cause}", env_id=env_id
    )


def _from_failure(env_id: int, failure: Failure, op: str, action: Any) -> EnvManagerError:
    if failure.mismatch:
        cause = rebuild(failure)
        mismatch = SpaceMismatchError(
            f"env {env_id}, {failure.op}: {failure.text}", env_id=env_id, child_traceback=None
        )
        mismatch.__cause__ = cause
        return mismatch
    if op == "init":
        error: EnvManagerError = EnvInitError(
            f"env {env_id} could not be built: {sentence(failure)}",
            env_id=env_id,
            child_traceback=failure.traceback,
        )
    elif op == "reset":
        error = EnvResetError(
            f"env {env_id} raised in {failure.op}: {sentence(failure)}",
            env_id=env_id,
            child_traceback=failure.traceback,
        )
    else:
        given = "" if action is None else f" with action {_short(action)}"
        error = EnvStepError(
            f"env {env_id} raised in step{given}: {sentence(failure)}",
            env_id=env_id,
            child_traceback=failure.traceback,
        )
    if failure.error is not None:  # it was raised right here
        error.child_heading = "in the env"
    error.__cause__ = rebuild(failure)
    return error


def error_of(order: Fail, action: Any = None) -> EnvManagerError:
    """The error that an instruction ``Fail`` asks for."""
    op = {"init": "init", "reset": "reset"}.get(order.what, "step")
    error = error_for(order.env_id, order.cause, op, action)
    if order.what == "reset" and not isinstance(error, EnvResetError | SpaceMismatchError):
        # A reset that ran out of attempts is one error, whatever the first cause was.
        reset = EnvResetError(
            f"env {order.env_id} could not be reset: {error.message}",
            env_id=order.env_id,
            child_traceback=error.child_traceback,
        )
        reset.child_heading = error.child_heading
        reset.__cause__ = error
        error = reset
    notes = {
        "step": f" (the first cause, after {order.count} attempts; retry_step=True, max_retry={order.count})",
        "reset": f" (the first cause, after {order.count} attempts; max_retry={order.count})",
        "streak": f" (the first cause; {order.count} failures in a row without one good step between)",
        "budget": f" (its worker had to be renewed {order.count} times; see max_renewals, renewal_window)",
    }
    if order.count > 1 and order.what in notes:
        error.message += notes[order.what]
        error.args = (error.message,)
    return error


def _short(value: Any) -> str:
    text = _written(value)
    return text if len(text) < 100 else text[:97] + "..."


def _written(value: Any) -> str:
    """As one would write it: numpy's scalars as plain numbers."""
    if isinstance(value, np.number | np.bool_):
        return str(value)
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {_written(part)}" for key, part in value.items()) + "}"
    if type(value) is list:
        return f"[{', '.join(map(_written, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(_written, value))}{',' if len(value) == 1 else ''})"
    return repr(value)
