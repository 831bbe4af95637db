"""Results as Markdown, as JSON and as a picture."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from budgets import Found, judged
from cells import Result, ratios


def write(
    results: Sequence[Result],
    directory: Path,
    name: str,
    *,
    reference: str,
    title: str,
    how: dict[str, Any],
    decimals: int = 0,
    unit: str = "steps of single envs per second",
    more: dict[str, Any] | None = None,
) -> list[Path]:
    """Writes ``<name>.json``, ``<name>.md`` and ``<name>.png``.

    Args:
        results: All that was measured.
        directory: Where to.
        name: Of the files.
        reference: The contender that speeds are given as multiples of.
        title: What was measured, in a line.
        how: Seconds, repeats and the like.
        decimals: Of the values.
        unit: Of the values.
        more: What else belongs into the JSON.
    """
    directory.mkdir(parents=True, exist_ok=True)
    facts = facts_of(title, {**how, "versions": versions(results)})
    paths = [directory / f"{name}.{suffix}" for suffix in ("json", "md", "png")]
    everything = {
        **facts,
        **(more or {}),
        "reference": reference,
        "results": [result.as_dict() for result in results],
    }
    paths[0].write_text(compact(everything), encoding="utf-8")
    paths[1].write_text(
        markdown(results, name, reference=reference, facts=facts, decimals=decimals), encoding="utf-8"
    )
    draw(results, paths[2], title=title, unit=unit)
    return paths


def facts_of(title: str, how: dict[str, Any]) -> dict[str, Any]:
    """What belongs above every table: when and where it was taken, and how busy the machine was."""
    load = {"load": f"{os.getloadavg()[0]:.1f} when it was written"} if hasattr(os, "getloadavg") else {}
    return {
        "title": title,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        **load,
        **how,
    }


def compact(everything: dict[str, Any]) -> str:
    """JSON with a line per result, that one can read and compare."""
    results = everything.pop("results", [])
    head = json.dumps(everything, indent=1)[:-2]
    rows = ",\n".join(f"  {json.dumps(rounded(result))}" for result in results)
    return f'{head},\n "results": [\n{rows}\n ]\n}}\n'


def rounded(value: Any) -> Any:
    """Floats with five digits: more is noise."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def machine() -> str:
    """The machine in a line."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = f", {line.partition(':')[2].strip()}"
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores{model}, {platform.system()}, Python {platform.python_version()}"


def markdown(
    results: Sequence[Result], name: str, *, reference: str, facts: dict[str, Any], decimals: int = 0
) -> str:
    """Two tables: medians with least and most; and multiples of the reference."""
    cells = _cells(results)
    by_key = {(r.contender, r.scenario, r.envs): r for r in results}
    lines = [f"# {facts['title']}", ""]
    lines += [f"{key}: {value}  " for key, value in facts.items() if key != "title"]
    lines += ["", "Median (least to most) over the rounds.", ""]
    lines += _table(cells, _names(results), lambda n, c: _value(by_key.get((n, *c)), decimals))
    if reference in _names(results):
        lines += ["", f"As multiples of {reference}, round by round: median (least to most).", ""]
        lines += _table(
            cells, _names(results), lambda n, c: _multiple(by_key.get((n, *c)), by_key.get((reference, *c)))
        )
    values = {key: result.values for key, result in by_key.items()}
    kept = judged(Found({name: values}), unmeasured=False) if not decimals else []
    if kept:
        lines += ["", "Budgets:", "", *(f"- {line}" for line in kept)]
    failed = [r for r in results if r.error]
    if failed:
        lines += ["", "Failed:", ""]
        lines += [
            f"- {r.contender}, {r.scenario} {r.envs}: {r.error.splitlines()[-1]}" for r in failed if r.error
        ]
    return "\n".join(lines) + "\n"


def versions(results: Sequence[Result]) -> str:
    """All versions that the contenders ran with."""
    found: dict[str, set[str]] = {}
    for result in results:
        for one in result.rounds:
            for package, version in one.get("versions", {}).items():
                found.setdefault(package, set()).add(version)
    return ", ".join(f"{package} {'/'.join(sorted(of))}" for package, of in sorted(found.items()))


def draw(results: Sequence[Result], path: Path, *, title: str, unit: str) -> None:
    """A panel per scenario, a group of bars per count of envs; whiskers from the least to the most."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    scenarios = list(dict.fromkeys(r.scenario for r in results))
    names = _names(results)
    figure = Figure(figsize=(5.2 * len(scenarios), 5.0 + 0.16 * len(names)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(scenarios), squeeze=False)[0]
    colors = _colors(names)
    for axes, scenario in zip(panels, scenarios, strict=True):
        of = [r for r in results if r.scenario == scenario and r.median]
        sizes = sorted({r.envs for r in of})
        width = 0.85 / max(1, len(names))
        for r in of:
            at = sizes.index(r.envs) + (names.index(r.contender) - (len(names) - 1) / 2) * width
            axes.bar(at, r.median, width, color=colors[r.contender])
            axes.vlines(at, min(r.good), max(r.good), color="black", linewidth=0.8)
        axes.set_yscale("log")
        axes.set_title(scenario, loc="left", fontsize=11)
        axes.set_xticks(range(len(sizes)), [f"{n} envs" for n in sizes])
        axes.grid(axis="y", which="major", alpha=0.3)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"{unit} (log)")
    handles = [panels[0].bar(0, 0, color=colors[name], label=name) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.savefig(path)


def _colors(names: Sequence[str]) -> dict[str, Any]:
    """Ours in blues, the floor in greys, all others in warm colours."""
    from matplotlib import colormaps

    found: dict[str, Any] = {}
    kinds = {
        "Blues": [n for n in names if n.startswith("envmgr")],
        "Greys": [n for n in names if n.startswith("floor") or n == "plain loop"],
        "YlOrRd": [n for n in names if not n.startswith(("envmgr", "floor")) and n != "plain loop"],
    }
    for colormap, members in kinds.items():
        for k, name in enumerate(members):
            found[name] = colormaps[colormap](0.4 + 0.5 * (k + 1) / len(members))
    return found


def _names(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(r.contender for r in results))


def _cells(results: Sequence[Result]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((r.scenario, r.envs) for r in results))


def _table(cells: Sequence[tuple[str, int]], names: Sequence[str], text: Any) -> list[str]:
    head = " | ".join(f"{scenario} {envs}" for scenario, envs in cells)
    rows = [f"| {name} | {' | '.join(text(name, cell) for cell in cells)} |" for name in names]
    return [f"| | {head} |", f"| --- |{' ---: |' * len(cells)}", *rows]


def _value(result: Result | None, decimals: int) -> str:
    if result is None or result.median is None:
        return "-"
    median, least, most = (f"{v:,.{decimals}f}" for v in (result.median, min(result.good), max(result.good)))
    return f"{median} ({least} to {most})"


def _multiple(result: Result | None, reference: Result | None) -> str:
    found = ratios(result, reference) if result is not None and reference is not None else []
    if not found:
        return "-"
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
