"""Calls on envs besides step and reset: attributes and methods, through the side channel.

An env that steps finishes first; the call waits for its turn in the worker. Every call has a number
of its own, so an answer can only end up at the call that asked.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from envmgr.engine.blame import error_for
from envmgr.engine.engine import Engine
from envmgr.errors import EnvManagerError, EnvTimeoutError, ManagerClosedError
from envmgr.workers import contract as c
from envmgr.workers.failures import rebuild, sentence

_numbers = itertools.count(1)


class Call(NamedTuple):
    """One call on one env: ``op`` is ``'get'``, ``'set'``, ``'has'`` or ``'call'``."""

    env_id: int
    op: str
    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never written to


def call_envs(engine: Engine, calls: Sequence[Call]) -> list[Any]:
    """Makes calls, side by side where envs live in different workers; the values in the order of the calls.

    Raises:
        AttributeError: An env has no such attribute.
        EnvManagerError: The env raised, the value cannot be sent, or the worker is gone.
    """
    asked: list[tuple[Call, int, int, int]] = []
    with engine.lock:
        if engine.closing:
            raise ManagerClosedError("the manager is closed; launch() makes it usable again")
        numbered = [(call, next(_numbers)) for call in calls]
        packed = [_pack(engine, call, number) for call, number in numbered]
        for call in calls:  # all are looked at before one is sent
            if not engine.machine.worker_up[engine.pool.worker_of[call.env_id]]:
                raise EnvManagerError(
                    f"env {call.env_id} cannot be asked for {call.name!r}: its worker is being renewed; "
                    "ask again when ready_obs has it",
                    env_id=call.env_id,
                )
        for (call, number), message in zip(numbered, packed, strict=True):
            worker = engine.pool.worker_of[call.env_id]
            asked.append((call, worker, number, engine.machine.counts(call.env_id)[1]))
            engine.pool.send_packed(worker, message)
    limit = _limit(engine)
    deadline = None if limit is None else time.monotonic() + limit
    answers: list[Any] = []
    try:
        for call, worker, number, renewals in asked:
            answers.append(_wait_for(engine, call, worker, number, renewals, deadline, limit))
    finally:
        if len(answers) < len(asked):
            with engine.lock:
                for call, worker, number, renewals in asked[len(answers) :]:
                    # The worker of another that was asked owes nothing; from its successor it would be
                    # waited for as long as that one lives.
                    if _is_the_same(engine, call.env_id, worker, renewals):
                        engine.pool.drop_answer(worker, number)
    out = []
    for (call, *_), (ok, value) in zip(asked, answers, strict=True):
        if not ok:
            raise _error(call, value)
        out.append(value)
    return out


def _is_the_same(engine: Engine, env_id: int, worker: int, renewals: int) -> bool:
    """Whether the worker that was asked is still there."""
    return engine.machine.counts(env_id)[1] == renewals and engine.machine.worker_up[worker]


def _pack(engine: Engine, call: Call, number: int) -> Any:
    try:
        return engine.pool.pack((c.CALL, number, *call))
    except Exception as error:  # what arguments hold may raise anything when they are pickled
        raise EnvManagerError(
            f"the arguments of {call.name!r} cannot be sent to the worker of env {call.env_id}: {error}",
            env_id=call.env_id,
        ) from error


def _limit(engine: Engine) -> float | None:
    """A call may have to wait for a step or a reset, and may take as long as a step itself."""
    step, reset = engine.settings.step_timeout, engine.settings.reset_timeout
    return None if step is None or reset is None else 2 * step + reset


def _wait_for(
    engine: Engine,
    call: Call,
    worker: int,
    number: int,
    renewals: int,
    deadline: float | None,
    limit: float | None,
) -> tuple[bool, Any]:
    while True:
        with engine.lock:
            if engine.pool.sending:
                engine.pool.exchange()
            answer: tuple[bool, Any] | None = engine.pool.answer(worker, number)
            if answer is not None:
                return answer
            if engine.closing:
                raise ManagerClosedError(f"the manager was closed while env {call.env_id} was asked")
            if not _is_the_same(engine, call.env_id, worker, renewals):
                raise error_for(call.env_id, engine.last_death(worker), f"in a call of {call.name!r}")
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise EnvTimeoutError(
                f"env {call.env_id} did not answer for {call.name!r} within {limit:g} s, the time of two "
                "steps and a reset (2 * step_timeout + reset_timeout); raise these if it is only slow",
                env_id=call.env_id,
            )
        engine.pool.wait(engine.env_num + 1, left, (worker,))


def _error(call: Call, failure: c.Failure) -> BaseException:
    if failure.kind == "AttributeError" and call.op in ("get", "call", "has"):
        error = AttributeError(f"env {call.env_id}: {failure.text}")
        error.__cause__ = rebuild(failure)
        return error
    told = EnvManagerError(
        f"env {call.env_id} raised in {call.name!r}: {sentence(failure)}"
        if failure.traceback
        else f"env {call.env_id}: {failure.text}",
        env_id=call.env_id,
        child_traceback=failure.traceback or None,
    )
    if failure.error is not None:  # it was raised right here
        told.child_heading = "in the env"
    told.__cause__ = rebuild(failure)
    return told
