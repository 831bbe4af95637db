"""Which layout of workers is the fastest for an env, given how long a step takes in each: pure.

Fewer processes win where it makes little difference: they cost memory and start-up, and in-process is the
simplest to debug.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from envmgr.cli.checking.finding import seconds

_SIMPLER = 0.95
"""A layout with fewer processes is taken if it reaches this share of the best."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """A way to run an env, and how fast it was.

    Attributes:
        name: For people, such as ``'2 workers, sync'``.
        config: The manager's config.
        workers: How many processes; 0 for in-process.
        per_step: Seconds per step of one env: the time in which all together make one.
        spread: The lowest and the highest steps/s that were seen; None for an estimate.
    """

    name: str
    config: Mapping[str, Any]
    workers: int
    per_step: float
    spread: tuple[float, float] | None = None

    @property
    def speed(self) -> float:
        """Steps per second, all envs together."""
        return 1 / self.per_step


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a step costs beside the env's own work, in seconds: measured with an env that does nothing.

    Attributes:
        base: In-process.
        few: With as many workers as there are cores, several envs in each.
        each: With a process for each env.
        envs: How many envs there were.
        cores: How many cores may be used.
    """

    base: float
    few: float
    each: float
    envs: int
    cores: int


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The answer.

    Attributes:
        best: The layout to take.
        in_process: Whether that is the calling process itself.
        text: The answer in words.
    """

    best: Layout
    in_process: bool
    text: str


def candidates(envs: int, cores: int) -> list[tuple[str, dict[str, Any], int]]:
    """The layouts that are worth a measurement: name, config, and how many processes.

    In-process; 1, 2, 4, ... workers up to one per core, with several envs each; a process per env; and for as
    many workers as there are cores, and for a process per env, async with half of the envs in flight.

    Args:
        envs: How many envs there are.
        cores: How many cores may be used.
    """
    most = min(cores, envs)
    counts = sorted({1 << k for k in range(most.bit_length()) if 1 << k <= most} | {most, envs})
    in_flight = {"wait_num": max(1, envs // 2), "step_wait_timeout": 0}
    found: list[tuple[str, dict[str, Any], int]] = [("in-process", {"type": "base"}, 0)]
    for kind, more, among in (
        ("subprocess", {}, counts),
        ("async_subprocess", in_flight, sorted({most, envs})),
    ):
        for workers in among:
            each = {} if workers == envs else {"num_workers": workers}
            found.append((_named(workers, envs, kind), {"type": kind, **each, **more}, workers))
    return found


def _named(workers: int, envs: int, kind: str) -> str:
    how = "async" if kind.startswith("async") else "sync"
    if workers == envs:
        return f"a process per env, {how}"
    return f"{workers} worker{'s' if workers > 1 else ''}, {how}"


def choose(layouts: Sequence[Layout]) -> Verdict:
    """The layout to take.

    Args:
        layouts: At least one in-process and one with workers.
    """
    fastest = max(layout.speed for layout in layouts)
    best = min(
        (layout for layout in layouts if layout.speed >= _SIMPLER * fastest),
        key=lambda layout: (layout.workers, -layout.speed),
    )
    others = [layout for layout in layouts if (layout.workers == 0) != (best.workers == 0)]
    other = max(others, key=lambda layout: layout.speed)
    one, two = seconds(best.per_step), seconds(other.per_step)
    if best.workers == 0:
        as_fast = "faster" if best.speed >= other.speed else "as fast, and simpler"
        text = f"in-process is {as_fast}: {one} per step, with workers at best {two} ({other.name})"
    else:
        text = (
            f"processes are faster: {one} per step with {best.name}, in-process {two} "
            f"({best.speed / other.speed:.2g} times)"
        )
    return Verdict(best, best.workers == 0, text)


def estimate(step: float, cost: Cost) -> list[Layout]:
    """What each layout would reach for an env, from the measured cost of a step.

    Args:
        step: Seconds that one step of the env takes.
        cost: What a step costs beside that.
    """
    cores = max(1, min(cost.cores, cost.envs))
    return [
        Layout("base", {"type": "base"}, 0, cost.base + step),
        Layout(
            f"{cores} workers, sync",
            {"type": "subprocess", "num_workers": cores},
            cores,
            cost.few + step / cores,
        ),
        Layout("a process per env, sync", {"type": "subprocess"}, cost.envs, cost.each + step / cores),
    ]


def says(step: float, cost: Cost, verdict: Verdict) -> str:
    """Whether subprocesses pay, as a sentence with the numbers that decide it."""
    through = f"a step takes {seconds(step)}, one through a worker costs {seconds(cost.few)} beside that"
    more = f"{seconds(cost.each)} with a process per env; {cost.envs} envs, {cost.cores} cores"
    head = verdict.text.partition(":")[0]
    return f"{head}: {through} ({more})"


def config_line(config: Mapping[str, Any]) -> str:
    """A manager's config, to paste: ``dict(type='subprocess', num_workers=2)``."""
    return f"dict({', '.join(f'{key}={value!r}' for key, value in config.items())})"
