"""How long it takes until the first observations are there, and how much memory a worker then has for itself.

    python benchmarks/startup.py
    python benchmarks/startup.py --sizes 8 64 256 --repeats 3

Writes startup.json, .md and .png into benchmarks/results/trial/. The time counts from before the manager is
made; imports of envmgr that happen on the way are in it, the interpreter's own start is not. In
``slow_start`` every env takes a second to build, and says how long after its process began it was up: what
the slowest worker took, against what all took together, says whether they come up side by side.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from cells import Result, measure  # noqa: E402
from roster import REFERENCE, STARTS  # noqa: E402
from table import write  # noqa: E402

HEAVY = ("torch", "gym", "gymnasium", "ray", "matplotlib")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=[8, 64], help="counts of envs (8 64)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "trial")
    given = parser.parse_args()
    paths = take(given.out, given.sizes, repeats=given.repeats)
    print()
    print(paths[1].read_text(encoding="utf-8"))
    for path in paths:
        print(path)


def take(out: Path, sizes: Sequence[int], *, repeats: int) -> list[Path]:
    """Measures and writes: JSON, Markdown, picture."""
    results: list[Result] = []
    for scenario, counts in (("null", sizes), ("slow_start", (8,))):
        results += measure(
            [c for c in STARTS if scenario == "null" or c.name == "envmgr, spawn"],
            scenario,
            counts,
            seconds=0.2,
            repeats=repeats,
            value="start_seconds",
            decimals=2,
        )
    seconds, heavy = import_time()
    how = {
        "repeats": repeats,
        "import envmgr": f"{statistics.median(seconds):.3f} s, loads {', '.join(heavy) or 'nothing heavy'}",
    }
    paths = write(
        results,
        out,
        "startup",
        reference=REFERENCE,
        title="Seconds until the first observations",
        how=how,
        decimals=2,
        unit="seconds",
        more={"import_seconds": seconds, "import_loads": heavy},
    )
    with open(paths[1], "a", encoding="utf-8") as file:
        file.write(memory_table(results))
    return paths


def import_time(repeats: int = 7) -> tuple[list[float], list[str]]:
    """Seconds that ``import envmgr`` takes in a fresh interpreter, each time; and what heavy it loads."""
    code = (
        "import sys, time; begin = time.perf_counter(); import envmgr; end = time.perf_counter(); "
        f"print(end - begin, *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    found = []
    for _ in range(repeats):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    return [float(words[0]) for words in found], found[0][1:]


def memory_table(results: Sequence[Result]) -> str:
    """Megabytes that a worker has for itself alone (USS): the largest of the workers, median over rounds."""
    lines = ["", "Megabytes of a worker's own (USS), the largest one's, median over the rounds:", ""]
    lines += ["| | envs | MB |", "| --- | ---: | ---: |"]
    lines += [
        f"| {r.contender} | {r.envs} | {statistics.median(r.memory) / 1e6:.1f} |"
        for r in results
        if r.memory and r.scenario == "null"
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
