"""How long it takes until the first observations are there, and how much memory a worker then has for itself.

    python benchmarks/startup.py
    python benchmarks/startup.py --sizes 8 64 256 --repeats 3

Writes startup.json, .md and .png into benchmarks/results/. The time counts from before the manager is made;
imports of envmgr that happen on the way are in it, the interpreter's own start is not.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
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
    parser.add_argument("--out", type=Path, default=HERE / "results")
    given = parser.parse_args()

    results: list[Result] = []
    for envs in given.sizes:
        results += measure(
            STARTS, "null", envs, seconds=0.2, repeats=given.repeats, value="start_seconds", decimals=2
        )
    seconds, heavy = import_time()
    how = {
        "repeats": given.repeats,
        "import envmgr": f"{seconds:.3f} s, loads {', '.join(heavy) or 'nothing heavy'}",
    }
    title = "Seconds until the first observations"
    paths = write(
        results, given.out, "startup", reference=REFERENCE, title=title, how=how, decimals=2, unit="seconds"
    )
    text = paths[1].read_text(encoding="utf-8") + memory_table(results)
    paths[1].write_text(text, encoding="utf-8")
    print()
    print(text)
    for path in paths:
        print(path)


def import_time(repeats: int = 7) -> tuple[float, list[str]]:
    """Seconds that ``import envmgr`` takes in a fresh interpreter (median), and what heavy it loads."""
    code = (
        "import sys, time; begin = time.perf_counter(); import envmgr; end = time.perf_counter(); "
        f"print(end - begin, *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    found = []
    for _ in range(repeats):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    return statistics.median(float(words[0]) for words in found), found[0][1:]


def memory_table(results: list[Result]) -> str:
    """Megabytes that a worker has for itself alone (USS): median over workers, then over rounds."""
    lines = [
        "",
        "Megabytes of a worker's own (USS), median:",
        "",
        "| | " + "envs | MB |",
        "| --- | ---: | ---: |",
    ]
    for result in results:
        of = [statistics.median(one["worker_uss"]) for one in result.rounds if one["worker_uss"]]
        if of:
            lines.append(f"| {result.contender} | {result.envs} | {statistics.median(of) / 1e6:.1f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
