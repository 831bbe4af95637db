"""Coming up: start the workers, hear their specs, refuse envs that do not fit together.

Everything here happens once per launch, in the caller's thread, before there is a keeper.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from envmgr.engine.blame import Death, Overrun, error_for
from envmgr.errors import EnvInitError, EnvManagerError, SpaceMismatchError
from envmgr.memory.arena import ArenaPlan
from envmgr.workers import contract as c
from envmgr.workers.hygiene import INTERRUPT_SIGNAL

STACK_WAIT = 0.3  # seconds that a worker has to begin writing its stack, before it is killed
STACK_LOOK = 0.05  # seconds between two looks at what it has written; nothing new between them is the end


def come_up(
    pool: Any, limit: float | None, grace: float, check_wanted: Callable[[], None]
) -> dict[int, c.EnvSpec]:
    """Waits until every worker has said hello.

    Args:
        pool: An opened pool.
        limit: Seconds for each worker (they come up side by side), None for no end.
        grace: Seconds that those have who are interrupted then.
        check_wanted: Raises when nobody wants them any more. Who closes sets what it looks at and then nudges
            the pool, so the wait here ends and it is asked again.

    Returns:
        The spec of every env.

    Raises:
        EnvInitError: An env_fn raised, or no worker could be started.
        WorkerDied: A worker died.
        EnvTimeoutError: A worker was too slow.
        ManagerClosedError: By ``check_wanted``.
    """
    deadline = None if limit is None else time.monotonic() + limit
    specs: dict[int, c.EnvSpec] = {}
    up: set[int] = set()
    late: Overrun | None = None
    while True:
        check_wanted()
        if len(up) == pool.worker_num:
            return specs
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            missing = [w for w in range(pool.worker_num) if w not in up]
            if late is not None:
                late.pid, late.stack = pool.pid(missing[0]), _stack_of(pool, missing[0])
                raise error_for(pool.envs_of[missing[0]][0], late, "init")
            late, deadline = Overrun("connect", limit or 0.0), time.monotonic() + grace
            for worker in missing:
                pool.interrupt_build(worker)
            continue
        for event in pool.handle(pool.poll(left)):
            if isinstance(event, c.WorkerUp):
                up.add(event.worker)
                specs.update(event.specs)
            else:
                error = startup_error(event, pool, late if _worker_of(event) not in up else None)
                if error is not None:
                    raise error


def _worker_of(event: c.PoolEvent) -> int | None:
    return getattr(event, "worker", None)


def ended_by_interrupt(report: c.ExitReport) -> bool:
    """Whether an interrupt ended a worker: one that had not come as far as to take it."""
    return INTERRUPT_SIGNAL is not None and report.exitcode == -INTERRUPT_SIGNAL


def _stack_of(pool: Any, worker: int) -> str:
    """The Python stack of a worker that is stuck, if it can still write it."""
    text, end = "", time.monotonic() + STACK_WAIT
    if not pool.ask_stack(worker):
        return text
    while time.monotonic() < end:
        pool.handle(pool.poll(STACK_LOOK))  # a pause that a worker's end would end, too
        part = pool.take_stack(worker)
        if text and not part:
            break
        text += part
    return text


def startup_error(event: c.PoolEvent, pool: Any, late: Overrun | None = None) -> EnvManagerError | None:
    """The error that an event means while the workers come up.

    Args:
        event: What the pool told.
        pool: Of the workers.
        late: What it is when the worker was interrupted, and tells so or has ended of it.
    """
    if isinstance(event, c.WorkerFailed):
        if late is not None and event.failure.interrupted:
            late.pid, late.stack = pool.pid(event.worker), event.failure.traceback
            return error_for(event.env_id, late, "init")
        return error_for(event.env_id, event.failure, "init")
    if isinstance(event, c.WorkerLost):
        envs = tuple(pool.envs_of[event.worker])
        if late is not None and ended_by_interrupt(event.report):
            return error_for(envs[0], late, "init")
        return error_for(envs[0], Death(event.report, envs), "init")
    if isinstance(event, c.PoolBroken):
        return EnvInitError(event.text)
    return None


def check_specs(specs: dict[int, c.EnvSpec]) -> None:
    """Refuses envs whose structure differs from env 0's, saying which and how."""
    first = specs[0]
    for env_id in sorted(specs):
        spec = specs[env_id]
        for what, a, b in (
            ("observation_space", first.obs, spec.obs),
            ("action_space", first.action, spec.action),
        ):
            difference = a.difference(b)
            if difference is not None:
                raise SpaceMismatchError(
                    f"env {env_id} has another {what} than env 0: {difference}. All envs of one manager "
                    "share one structure; use one manager per kind of env",
                    env_id=env_id,
                )
        if (first.reward_shape, first.reward_dtype) != (spec.reward_shape, spec.reward_dtype):
            raise SpaceMismatchError(
                f"env {env_id} has rewards of shape {spec.reward_shape} and dtype {spec.reward_dtype}, "
                f"env 0 of shape {first.reward_shape} and dtype {first.reward_dtype}",
                env_id=env_id,
            )


def plan_of(spec: c.EnvSpec, env_num: int, worker_num: int, shared_memory: bool) -> ArenaPlan:
    """The plan of the rows; without shared memory every observation goes by the side channel, into rows."""
    return ArenaPlan(
        env_num=env_num,
        worker_num=worker_num,
        obs=dataclasses.replace(spec.obs, shared=shared_memory),
        action=spec.action,
        reward_dtype=spec.reward_dtype,
        reward_shape=spec.reward_shape,
    )
