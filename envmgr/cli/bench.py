"""``envmgr bench``: which layout of workers is the fastest for *this* env on *this* machine.

Every layout is launched, measured through the array face, and closed again, in turn with the others and
several times over, so that what else the machine does meets all of them. A layout's number is its median.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from envmgr.cli.checking.cost import speeds_of
from envmgr.cli.checking.finding import seconds as in_words
from envmgr.cli.checking.layouts import Layout, Verdict, candidates, choose, config_line
from envmgr.cli.checking.target import TargetError, callable_of, factory_of
from envmgr.observe.run_report import versions
from envmgr.workers.cores import usable_cores

_SEEDED = "Not seeded: a seeded base keeps Python's random apart for each env, some 50 us a step."


@dataclasses.dataclass(frozen=True)
class Bench:
    """How to measure.

    Attributes:
        envs: How many envs step together.
        seconds: Of each measurement.
        repeats: Measurements of each layout.
        timeout: Seconds that a step or a reset of an env may take.
    """

    envs: int = 8
    seconds: float = 0.5
    repeats: int = 3
    timeout: float = 60.0


def bench(
    target: str, console: Console, how: Bench, *, json_file: Path | None = None, png: Path | None = None
) -> Verdict:
    """Measures an env in every layout and says which one to take.

    In-process, its envs are built in this very process; that comes last in each round, so that an env that
    does not work is met in a worker first.

    Args:
        target: Which env; see ``factory_of``.
        console: Where to write to.
        how: How many, how long, how often.
        json_file: Where to write the numbers; None for nowhere.
        png: Where to draw them; None for nowhere.

    Raises:
        TargetError: There is no such env.
        EnvManagerError: It cannot be built, stepped or reset.
    """
    factory = factory_of(target)
    try:
        callable_of(factory)
    except TargetError:
        raise
    except Exception:  # what the user's module raises, a worker tells with its lines
        pass
    cores = usable_cores()
    console.print(
        f"{target}: {how.envs} envs, {cores} cores, {how.repeats} rounds", markup=False, highlight=False
    )

    def told(number: int, name: str) -> None:
        if console.is_terminal:
            console.print(f"round {number + 1}: {name}", style="dim", highlight=False)

    layouts = measure(factory, how, cores, told)
    verdict = choose(layouts)
    _show(layouts, verdict, console)
    if json_file is not None:
        data = as_dict(target, how, cores, layouts, verdict)
        json_file.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    if png is not None:
        from envmgr.cli.bench_picture import draw

        draw(target, layouts, verdict, png)
    for path in (json_file, png):
        if path is not None:
            print(path, file=console.file)
    return verdict


def measure(
    factory: Callable[[], Any], how: Bench, cores: int, told: Callable[[int, str], None] = lambda *_: None
) -> list[Layout]:
    """Every layout with its median speed.

    Args:
        factory: What builds an env.
        how: How many, how long, how often.
        cores: How many cores may be used.
        told: Called before each measurement with the number of the round and the layout's name.
    """
    limits = {"step_timeout": how.timeout, "reset_timeout": how.timeout}
    tried = candidates(how.envs, cores)
    speeds: dict[str, list[float]] = {name: [] for name, _, _ in tried}
    for number in range(how.repeats):
        for name, config, _ in reversed(tried):
            told(number, name)
            # In-process a limit would be paid for at each step.
            limited = {**config, **limits} if config["type"] != "base" else config
            speeds[name] += speeds_of(limited, [factory] * how.envs, span=how.seconds)
    return [
        Layout(name, config, workers, 1 / statistics.median(seen), (min(seen), max(seen)))
        for (name, config, workers), seen in zip(tried, speeds.values(), strict=True)
    ]


def as_dict(target: str, how: Bench, cores: int, layouts: list[Layout], verdict: Verdict) -> dict[str, Any]:
    """The numbers as JSON can hold them."""
    return {
        "env": target,
        **dataclasses.asdict(how),
        "cores": cores,
        "machine": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "versions": versions(("numpy", "gymnasium")),
        "layouts": [
            {
                "name": layout.name,
                "config": dict(layout.config),
                "workers": layout.workers,
                "steps_per_second": layout.speed,
                "lowest": None if layout.spread is None else layout.spread[0],
                "highest": None if layout.spread is None else layout.spread[1],
            }
            for layout in layouts
        ],
        "best": verdict.best.name,
        "in_process_is_faster": verdict.in_process,
        "verdict": verdict.text,
        "config": dict(verdict.best.config),
    }


def _show(layouts: list[Layout], verdict: Verdict, console: Console) -> None:
    base = layouts[0]
    table = Table(box=None, pad_edge=False)
    table.add_column("layout", no_wrap=True)
    for name in ("steps/s", "lowest", "highest", "per step", "to in-process"):
        table.add_column(name, justify="right", no_wrap=True)
    for layout in layouts:
        low, high = layout.spread or (layout.speed, layout.speed)
        table.add_row(
            layout.name,
            *(f"{speed:,.0f}" for speed in (layout.speed, low, high)),
            in_words(layout.per_step),
            f"{layout.speed / base.speed:.2f}",
            style="bold green" if layout is verdict.best else None,
        )
    console.print(table)
    console.print()
    console.print(verdict.text, style="bold", markup=False, highlight=False, soft_wrap=True)
    if verdict.in_process:
        console.print(_SEEDED, style="dim", markup=False, highlight=False, soft_wrap=True)
    line = f"manager={config_line(verdict.best.config)}"
    console.print(line, markup=False, highlight=False, soft_wrap=True)
