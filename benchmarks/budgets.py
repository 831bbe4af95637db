"""What envmgr promises about speed, held against results: ratios within one run, never absolute numbers.

    python benchmarks/budgets.py benchmarks/results/throughput.json [...]

A budget whose cells were not measured is left out.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ONE_PER_ENV = (
    "gymnasium AsyncVectorEnv",
    "stable-baselines3 SubprocVecEnv",
    "tianshou SubprocVectorEnv",
    "tianshou ShmemVectorEnv",
    "tianshou ShmemVectorEnv, half in flight",
    "torchrl ParallelEnv",
    "DI-engine subprocess",
    "DI-engine async_subprocess, half in flight",
)
GYMNASIUM = ONE_PER_ENV[:1]
PUFFER = ("PufferLib, 1 worker", "PufferLib, 2 workers")
PLAIN = ("plain loop",)
SLEEPS = 1000.0
"""Steps per second that one env of the sleepy scenario can do: it sleeps 1 ms on average."""


class Budget(NamedTuple):
    """``contender`` in a cell is at least ``at_least`` times the best of ``than`` in the same cell."""

    scenario: str
    envs: int
    contender: str
    at_least: float
    than: tuple[str, ...]


BUDGETS = [
    Budget("null", 8, "envmgr subprocess, arrays", 5.0, ONE_PER_ENV),
    Budget("null", 8, "envmgr subprocess, dict", 4.0, ONE_PER_ENV),
    Budget("null", 64, "envmgr, 2 workers, arrays", 40.0, GYMNASIUM),
    Budget("null", 64, "envmgr, 2 workers, arrays", 8.0, PUFFER),
    Budget("cartpole", 64, "envmgr async, 2 workers, half in flight", 1.5, PLAIN),
    Budget("pix", 32, "envmgr, 2 workers, arrays", 10.0, GYMNASIUM),
    Budget("null", 64, "envmgr, 2 workers, arrays", 0.8, ("floor, 2 workers",)),
    Budget("null", 8, "envmgr subprocess, arrays", 0.8, ("floor",)),
    Budget("cartpole", 64, "envmgr, 2 workers, arrays", 0.9, ("floor, 2 workers",)),
    Budget("pix", 64, "envmgr, 2 workers, arrays", 0.9, ("floor, 2 workers",)),
    Budget("pix", 32, "envmgr, 2 workers, arrays", 0.9, ("floor, 2 workers",)),
    Budget("sleepy", 8, "envmgr async, half in flight", 0.85, ("8 sleeping envs",)),
    Budget("sleepy", 32, "envmgr async, half in flight", 0.85, ("32 sleeping envs",)),
]

Values = Mapping[tuple[str, str, int], Sequence[float | None]]


def checked(values: Values) -> list[str]:
    """A line per budget whose cells were measured: what was asked, what was found, and against whom.

    Args:
        values: ``(contender, scenario, envs)`` to one value per round.
    """
    lines = []
    for budget in BUDGETS:
        mine = values.get((budget.contender, budget.scenario, budget.envs))
        found = [(name, _ratios(mine, _of(values, name, budget))) for name in budget.than] if mine else []
        known = [(statistics.median(ratios), name, ratios) for name, ratios in found if ratios]
        if not known:
            continue
        median, name, ratios = min(known)  # the best of the others leaves the least
        lines.append(
            f"{'held  ' if median >= budget.at_least else 'MISSED'} {budget.scenario} {budget.envs}: "
            f"{budget.contender} is {median:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) times {name}; "
            f"at least {budget.at_least:g} is asked"
        )
    return lines


def _of(values: Values, name: str, budget: Budget) -> Sequence[float | None]:
    if name.endswith("sleeping envs"):
        return [budget.envs * SLEEPS] * 100
    return values.get((name, budget.scenario, budget.envs), ())


def _ratios(mine: Sequence[float | None] | None, its: Sequence[float | None]) -> list[float]:
    return [a / b for a, b in zip(mine or (), its, strict=False) if a is not None and b]


def main() -> None:
    values: dict[tuple[str, str, int], Any] = {}
    for path in sys.argv[1:] or [str(Path(__file__).parent / "results" / "throughput.json")]:
        for result in json.loads(Path(path).read_text(encoding="utf-8"))["results"]:
            values[result["contender"], result["scenario"], result["envs"]] = result["values"]
    print("\n".join(checked(values)) or "no budget's cells are in there")


if __name__ == "__main__":
    main()
