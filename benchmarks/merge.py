"""Several runs of ``make bench`` as one: tables and pictures of all their rounds, and the verdicts.

    python benchmarks/merge.py run1/ run2/ run3/ run4/ run5/

Into ``results/``. The rounds stand side by side, so a ratio is still one of values from the same round. Parts
that are no tables of speeds (``startup``, ``flat``) are those of the last run; the verdicts go by all.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import budgets  # noqa: E402
from cells import Result  # noqa: E402
from plan import BUDGETED  # noqa: E402
from table import facts_of, write  # noqa: E402

OTHERS = ("startup", "flat")


def merge(runs: Sequence[Path], out: Path) -> str:
    """Writes the tables into ``out``; gives the text of its README, with a verdict for each budget."""
    parts = [name for name in BUDGETED if all((run / f"{name}.json").exists() for run in runs)]
    for name in parts:
        loaded = [json.loads((run / f"{name}.json").read_text(encoding="utf-8")) for run in runs]
        how = {"runs": len(runs), "seconds": loaded[0]["seconds"], "rounds in each": loaded[0]["repeats"]}
        table = BUDGETED[name]
        write(together(loaded), out, name, reference=table.reference, title=table.title, how=how)
    for name in OTHERS:
        for file in runs[-1].glob(f"{name}.*"):
            shutil.copy(file, out)
    verdicts = budgets.judged(budgets.load(runs))
    missed = sum(verdict.held is False for verdict in verdicts)
    unknown = sum(verdict.held is None for verdict in verdicts)
    counts = f"{len(verdicts) - missed - unknown} held, {missed} missed, {unknown} not measured"
    facts = facts_of(f"{len(runs)} runs of the benchmarks", {"budgets": counts})
    lines = [f"# {facts.pop('title')}", "", *(f"{key}: {value}  " for key, value in facts.items()), ""]
    lines += [f"- {verdict}" for verdict in verdicts]
    tables = [f"[{name}]({name}.md)" for name in (*parts, *OTHERS) if (out / f"{name}.md").exists()]
    return "\n".join([*lines, "", f"Tables: {', '.join(tables)}.", ""])


def together(loaded: Sequence[dict[str, Any]]) -> list[Result]:
    """The results of several runs, with the values of one behind those of the other."""
    values: dict[tuple[str, str, int], list[float | None]] = {}
    for run in loaded:
        for result in run["results"]:
            key = result["contender"], result["scenario"], result["envs"]
            values.setdefault(key, []).extend(result["values"])
    return [Result(*key, found, [], None) for key, found in values.items()]


def main() -> None:
    out = HERE / "results"
    text = merge([Path(word) for word in sys.argv[1:]], out)
    (out / "README.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
