"""What is measured, in one go, and what envmgr promises held against it: ``make bench``.

    make bench                               # what the budgets name, with the peers that are installed
    make bench-all                           # every table of plan.py: an hour and more
    make bench-peers                         # once, before: an environment for each peer
    make bench-quick                         # a minute: does it all work, and where about is one
    make bench BENCH_ARGS="--parts growth startup --seconds 0.3"

Parts are the tables of ``plan.py``, ``startup`` and ``flat``. Each leaves its JSON, Markdown and picture in
``results/`` (``results/all/``, ``results/quick/``, and ``results/trial/`` when only some parts are taken);
README.md there has the verdicts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
sys.path.insert(0, str(HERE))

import budgets  # noqa: E402
import flat  # noqa: E402
import peers  # noqa: E402
import startup  # noqa: E402
import throughput  # noqa: E402
from plan import BUDGETED, QUICK, TABLES  # noqa: E402
from table import facts_of  # noqa: E402

PARTS = (*TABLES, "startup", "flat")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="some of it, once, without peers")
    parser.add_argument("--all", action="store_true", help="every table that there is")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="some of it")
    parser.add_argument("--seconds", type=float, help="measuring, per contender and round (0.7)")
    parser.add_argument("--repeats", type=int, help="rounds (5)")
    parser.add_argument("--calls", type=int, help="of step in flat, for each face (100000)")
    parser.add_argument("--no-peers", action="store_true", help="without the peers that are installed")
    parser.add_argument("--out", type=Path, help="directory (benchmarks/results and below)")
    given = parser.parse_args()
    out = given.out or RESULTS / (
        "quick" if given.quick else "trial" if given.parts else "all" if given.all else ""
    )
    tables = QUICK if given.quick else TABLES if given.all or given.parts else BUDGETED
    seconds = given.seconds or (0.2 if given.quick else 0.7)
    repeats = given.repeats or (1 if given.quick else 5)
    with_peers = not (given.quick or given.no_peers)

    took: dict[str, float] = {}
    for part in given.parts or [*tables, "startup", "flat"]:
        begin = time.monotonic()
        if part == "flat":
            flat.take(out, given.calls or (5_000 if given.quick else 100_000))
        elif part == "startup":
            startup.take(out, (8,) if given.quick else (8, 64), repeats=repeats)
        elif part in tables:
            throughput.take(tables[part], out, part, seconds=seconds, repeats=repeats, peers=with_peers)
        took[part] = time.monotonic() - begin
    text = summary(out, took, peers_of(with_peers))
    (out / "README.md").write_text(text, encoding="utf-8")
    print(f"\n{text}")
    print(out / "README.md")


def summary(out: Path, took: dict[str, float], who: str) -> str:
    """Facts, verdicts, and where the tables are."""
    verdicts = budgets.judged(budgets.load([out]))
    missed = sum(verdict.held is False for verdict in verdicts)
    unknown = sum(verdict.held is None for verdict in verdicts)
    facts = facts_of(
        "The last run of the benchmarks",
        {
            "minutes": f"{sum(took.values()) / 60:.0f}",
            "peers": who,
            "budgets": f"{len(verdicts) - missed - unknown} held, {missed} missed, {unknown} not measured",
        },
    )
    lines = [f"# {facts.pop('title')}", "", *(f"{key}: {value}  " for key, value in facts.items()), ""]
    lines += [f"- {verdict}" for verdict in verdicts]
    lines += ["", "| table | | minutes |", "| --- | --- | ---: |"]
    for part, seconds in took.items():
        pictures = f"[picture]({part}.png)" if (out / f"{part}.png").exists() else ""
        lines.append(f"| [{part}]({part}.md) | {pictures} | {seconds / 60:.1f} |")
    return "\n".join(lines) + "\n"


def peers_of(with_peers: bool) -> str:
    """Which peers take part, and which could not be installed."""
    if not with_peers:
        return "left out"
    state: Callable[[str], str] = lambda name: peers.state(peers.PEERS[name])  # noqa: E731
    there = [name for name in peers.PEERS if state(name).startswith("installed")]
    missing = [name for name in peers.PEERS if name not in there]
    text = ", ".join(there) or "none is installed: make bench-peers"
    return text + (f"; missing: {', '.join(missing)}" if there and missing else "")


if __name__ == "__main__":
    main()
