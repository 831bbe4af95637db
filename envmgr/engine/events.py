"""What can happen to an env, and what the machine can order: the words of ``machine``.

Plain data. A ``cause`` is whatever the engine knows of a failure; the machine hands it back and
never looks inside.
"""

from __future__ import annotations

import dataclasses
from typing import Any

# -- events ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Opened:
    """Every worker was asked to come up."""


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerCameUp:
    """A worker has built its envs."""

    worker: int


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerFailedToBuild:
    """An env_fn failed, or its worker was too slow; the worker is or will be gone."""

    worker: int
    env_id: int
    cause: Any


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerEnded:
    """A worker is gone. ``running``: the env whose call ran in it then, where that is known."""

    worker: int
    cause: Any
    running: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ResetAsked:
    """The caller wants an env reset."""

    env_id: int


@dataclasses.dataclass(frozen=True, slots=True)
class ResetDone:
    """A reset came back with an observation."""

    env_id: int


@dataclasses.dataclass(frozen=True, slots=True)
class ResetFailed:
    """A reset raised or was broken off. ``final``: trying again is useless."""

    env_id: int
    cause: Any
    final: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class StepFailed:
    """A step raised or was broken off. ``final``: never step again, not even with ``retry_step``."""

    env_id: int
    cause: Any
    final: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeEnded:
    """A done timestep was handed over. ``abnormal``: the manager made it, because the step failed."""

    env_id: int
    abnormal: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SaidAbnormal:
    """The env itself said that its timestep is abnormal."""

    env_id: int


@dataclasses.dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The call that an env is in has taken longer than it may (or than its grace)."""

    env_id: int
    cause: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: whatever is due is done."""


@dataclasses.dataclass(frozen=True, slots=True)
class Closed:
    """The manager is closed."""


Event = (
    Opened
    | WorkerCameUp
    | WorkerFailedToBuild
    | WorkerEnded
    | ResetAsked
    | ResetDone
    | ResetFailed
    | StepFailed
    | EpisodeEnded
    | SaidAbnormal
    | DeadlinePassed
    | Tick
    | Closed
)


# -- instructions ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class SendReset:
    """Send the env's reset to its worker, which is up."""

    env_id: int


@dataclasses.dataclass(frozen=True, slots=True)
class SendStepAgain:
    """Send the same action once more."""

    env_id: int


@dataclasses.dataclass(frozen=True, slots=True)
class Renew:
    """Start a new worker in place of the one that is gone."""

    worker: int


@dataclasses.dataclass(frozen=True, slots=True)
class Kill:
    """Kill a worker; WorkerEnded will follow.

    Args:
        worker: Which one.
        env_id: The env that it is killed for.
        renewal: Whether it is for a renewal after a failed reset; otherwise that env did not come back
            after it was interrupted.
    """

    worker: int
    env_id: int
    renewal: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Retire:
    """Have a worker close its envs and go, nothing being wrong with it; WorkerEnded will follow."""

    worker: int


@dataclasses.dataclass(frozen=True, slots=True)
class Interrupt:
    """Break off what an env does, inside its worker, and look again after the grace."""

    env_id: int


@dataclasses.dataclass(frozen=True, slots=True)
class GiveAbnormal:
    """Hand the caller an abnormal timestep of this env in place of its step's result."""

    env_id: int
    cause: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Fail:
    """Raise in the caller's next call.

    Attributes:
        what: ``'init'``; ``'step'``; ``'reset'``, when its attempts are used up; ``'streak'``, too many
            failed steps in a row; ``'budget'``, when its worker would have to be renewed once too often.
        cause: The first cause.
        count: How many attempts there were; of a budget, the how many-th renewal it would be.
        close: Whether the manager is closed with it.
        at: What the env was at when the first cause came: ``'step'``, ``'reset'``, ``'init'`` (it was being
            built) or ``'idle'``; empty where ``what`` says it.
    """

    what: str
    env_id: int
    cause: Any
    count: int = 1
    close: bool = True
    at: str = ""


Instruction = SendReset | SendStepAgain | Renew | Kill | Retire | Interrupt | GiveAbnormal | Fail
