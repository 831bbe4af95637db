"""Turns what the engine knows of a failure into the error that the caller sees.

Every message says which env, what it did, what happened, and what to do.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from envmgr.engine.events import Fail, Kill
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


_DOING = {
    "step": "in step",
    "reset": "in reset",
    "init": "while it was built",
    "idle": "while it did nothing",
}

Cause = Failure | Overrun | Death | str


def error_for(env_id: int, cause: Any, op: str, action: Any = None) -> EnvManagerError:
    """The error of one failed call.

    Args:
        env_id: The env.
        cause: What is known: a Failure, an Overrun, a Death, or a text.
        op: ``'step'``, ``'reset'`` or ``'init'``; of a Death also ``'idle'``, or in words what else.
        action: The action of the step, for the message.
    """
    doing = _DOING.get(op, op)
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
    at = order.at or {"init": "init", "reset": "reset"}.get(order.what, "step")
    resets = order.what == "reset" or (order.what == "budget" and at == "reset")
    # Of a reset that had to build first, only a Failure says so itself.
    op = "reset" if resets and isinstance(order.cause, Failure) else at
    error = error_for(order.env_id, order.cause, op, action)
    if resets and not isinstance(error, EnvResetError | SpaceMismatchError):
        # A reset that ran out of attempts is one error, whatever the first cause was.
        reset = EnvResetError(
            f"env {order.env_id} could not be reset: {error.message}",
            env_id=order.env_id,
            child_traceback=error.child_traceback,
        )
        reset.child_heading = error.child_heading
        reset.__cause__ = error
        error = reset
    note = _note(order)
    if note:
        error.message += f" ({note})"
        error.args = (error.message,)
    return error


def why_killed(order: Kill, siblings: bool) -> str:
    """Why envmgr kills a worker, for the log and for those that lose an episode by it.

    Args:
        order: The instruction.
        siblings: Whether the worker hosts more envs than the one that it is killed for.
    """
    if not order.renewal:
        return f"env {order.env_id} did not come back after it was interrupted"
    why = f"env {order.env_id} is renewed, because its reset failed"
    if not siblings:
        return why
    return (
        f"{why} (the log says how), and with retry_type='renew' all envs of its worker are. Give each "
        "env a worker of its own (leave out num_workers and envs_per_worker), or set retry_type='reset'"
    )


def _note(order: Fail) -> str:
    """The count, and the key that bounds it."""
    n = order.count
    if order.what == "budget":
        first = "the first cause; " if n > 1 else ""
        return f"{first}it would be the {_ordinal(n)} renewal within renewal_window; max_renewals={n - 1}"
    if n == 1:
        return ""
    return {
        "step": f"the first cause, after {n} attempts; retry_step=True, max_retry={n}",
        "reset": f"the first cause, after {n} attempts; max_retry={n}",
        "streak": f"the first cause; {n} failures in a row without one good step between; max_retry={n - 1}",
    }.get(order.what, "")


def _ordinal(n: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(n % 10 if n % 100 not in (11, 12, 13) else 0, "th")
    return f"{n}{ending}"


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
