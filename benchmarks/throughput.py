"""One table of speeds: envmgr, its peers, a plain loop, and the floor, in one run on this machine.

    python benchmarks/throughput.py                          # some minutes
    python benchmarks/throughput.py --scenarios null --sizes 8 --seconds 0.3 --repeats 1
    python benchmarks/throughput.py --only envmgr floor --sizes 8 64
    python benchmarks/throughput.py --peers                  # with those that peers.py has installed
    python benchmarks/throughput.py --preset growth          # another table of plan.py

Writes <name>.json, .md and .png into benchmarks/results/trial/. ``bench.py`` takes all tables.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from cells import Result, measure  # noqa: E402
from plan import TABLES, Table  # noqa: E402
from roster import CONTENDERS, Contender  # noqa: E402
from scenarios import SCENARIOS  # noqa: E402
from table import write  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", choices=sorted(TABLES), default="throughput", help="(throughput)")
    parser.add_argument("--scenarios", nargs="+", choices=sorted(SCENARIOS), help="instead of the preset's")
    parser.add_argument("--sizes", nargs="+", type=int, help="counts of envs, instead of the preset's")
    parser.add_argument("--seconds", type=float, default=0.7, help="measuring, per contender and round (0.7)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument("--only", nargs="+", help="contenders whose name begins with one of these")
    parser.add_argument("--peers", action="store_true", help="with the peers that are installed")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "trial")
    parser.add_argument("--name", help="of the files; the preset's by default")
    given = parser.parse_args()

    table = TABLES[given.preset]
    sizes = tuple(given.sizes or ())
    scenarios = given.scenarios or list(table.cells)
    table = table._replace(
        cells={name: sizes or table.cells.get(name, (8, 64)) for name in scenarios},
        only=table.only if given.only is None else tuple(given.only),
    )
    if not chosen(table.only, peers=given.peers):
        parser.error(f"nobody by that name; there are: {', '.join(CONTENDERS)}")
    name = given.name or given.preset
    paths = take(table, given.out, name, seconds=given.seconds, repeats=given.repeats, peers=given.peers)
    print()
    print(paths[1].read_text(encoding="utf-8"))
    for path in paths:
        print(path)


def take(table: Table, out: Path, name: str, *, seconds: float, repeats: int, peers: bool) -> list[Path]:
    """Measures a table and writes it: JSON, Markdown, picture."""
    repeats = min(repeats, table.rounds or repeats)
    results: list[Result] = []
    for scenario, sizes in table.cells.items():
        for envs in [sizes] if table.together else sizes:
            contenders = chosen(
                table.taking_part(scenario, sizes[0] if table.together else envs), peers=peers
            )
            results += measure(contenders, scenario, envs, seconds=seconds, repeats=repeats)
    how = {"seconds": seconds, "repeats": repeats}
    return write(results, out, name, reference=table.reference, title=table.title, how=how)


def chosen(only: tuple[str, ...], *, peers: bool) -> list[Contender]:
    """The contenders to run, in the order of the roster."""
    found = [c for c in CONTENDERS.values() if c.installed and (peers or c.peer is None)]
    return [c for c in found if not only or c.name.startswith(only)]


if __name__ == "__main__":
    main()
