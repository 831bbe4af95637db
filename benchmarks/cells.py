"""Measuring: each cell in fresh processes, contenders in turn.

On a shared machine the speed of everything drifts by minutes. So within a cell (a scenario and a count
of envs) the contenders take turns, A B C A B C, and are compared round by round; what is reported is the
median over the rounds, with the least and the most.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import limit
from roster import Contender

HERE = Path(__file__).resolve().parent
GRACE = 10.0
"""Seconds that a contender is given to end by itself, after its own limit."""


class Result(NamedTuple):
    """What came of a contender in a cell: one value per round, None where it failed; and why it did."""

    contender: str
    scenario: str
    envs: int
    values: list[float | None]
    rounds: list[dict[str, Any]]
    error: str | None

    @property
    def good(self) -> list[float]:
        """The values there are."""
        return [value for value in self.values if value is not None]

    @property
    def median(self) -> float | None:
        """Their median."""
        return statistics.median(self.good) if self.good else None

    @property
    def memory(self) -> list[int]:
        """Per round, the most that a worker had for itself alone (USS, bytes), where the system says it."""
        return [max(one["worker_uss"]) for one in self.rounds if one.get("worker_uss")]

    @property
    def beyond(self) -> list[float]:
        """Per round, seconds that coming up took beyond the time of the slowest worker, where it is known."""
        return [r["start_seconds"] - r["slowest_seconds"] for r in self.rounds if r.get("slowest_seconds")]

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it, without what each process said in each round."""
        good = self.good
        kept = {key: value for key, value in self._asdict().items() if key != "rounds"}
        return {
            **kept,
            "memory": self.memory,
            "beyond": self.beyond,
            "median": self.median,
            "min": min(good, default=None),
            "max": max(good, default=None),
        }


def measure(
    contenders: Sequence[Contender],
    scenario: str,
    envs: int | Sequence[int],
    *,
    seconds: float,
    repeats: int,
    value: str = "steps_per_second",
    decimals: int = 0,
    say: Callable[[str], None] = print,
) -> Iterator[Result]:
    """Measures one cell, or several counts of envs in turn with each other.

    Args:
        contenders: Who takes part, in this order in each round. One that fails is left out of later rounds.
        scenario: Name of the scenario.
        envs: Count of envs; several are compared with each other, so each round goes through all of them.
        seconds: Seconds of measuring, per contender and round.
        repeats: Rounds.
        value: Which of a contender's numbers counts.
        decimals: Of that number, where it is said.
        say: Is told how it goes.

    Yields:
        A result per contender that can do the scenario and count of envs, in the order given.
    """
    sizes = [envs] if isinstance(envs, int) else list(envs)
    taking_part = [(c, n) for n in sizes for c in contenders if c.does(scenario, n)]
    rounds: dict[tuple[str, int], list[dict[str, Any]]] = {(c.name, n): [] for c, n in taking_part}
    errors: dict[tuple[str, int], str] = {}
    for k in range(repeats):
        for contender, n in taking_part:
            key = contender.name, n
            if key in errors:
                continue
            found = run_once(contender, scenario, n, seconds)
            if isinstance(found, str):
                errors[key] = found
                say(f"{scenario} {n}, round {k + 1}: {contender.name} failed: {found.splitlines()[-1]}")
            else:
                rounds[key].append(found)
                say(f"{scenario} {n}, round {k + 1}: {contender.name}: {found[value]:,.{decimals}f}")
    for contender, n in taking_part:
        key = contender.name, n
        values = [float(one[value]) for one in rounds[key]]
        padded = [*values, *[None] * (repeats - len(values))]
        yield Result(contender.name, scenario, n, padded, rounds[key], errors.get(key))


def run_once(contender: Contender, scenario: str, envs: int, seconds: float) -> dict[str, Any] | str:
    """Runs a contender once: its numbers, or why there are none."""
    path = os.pathsep.join((str(HERE), str(HERE.parent)))
    with subprocess.Popen(
        contender.command(scenario, envs, seconds),
        env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        patience = limit(envs, seconds) + GRACE
        try:
            out, err = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            return f"not done after {patience:.0f} s"
        finally:
            # Its session is its own: whatever it left behind goes with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if process.returncode != 0 or not lines:
        return (err or out).strip() or f"exit code {process.returncode}, and no word"
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def ratios(result: Result, reference: Result) -> list[float]:
    """How many times the reference a result is, round by round."""
    pairs = zip(result.values, reference.values, strict=False)
    return [mine / its for mine, its in pairs if mine is not None and its]
