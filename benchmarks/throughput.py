"""Steps per second: envmgr, its peers, a plain loop, and the floor, in one run on this machine.

    python benchmarks/throughput.py                          # some minutes
    python benchmarks/throughput.py --scenarios null --sizes 8 --seconds 0.3 --repeats 1
    python benchmarks/throughput.py --only envmgr floor --sizes 8 64
    python benchmarks/throughput.py --peers                  # with those that peers.py has installed
    python benchmarks/throughput.py --preset growth          # more and more envs on two workers

Writes throughput.json, .md and .png into benchmarks/results/.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from cells import Result, measure  # noqa: E402
from roster import CONTENDERS, REFERENCE, Contender  # noqa: E402
from scenarios import SCENARIOS  # noqa: E402
from table import write  # noqa: E402

PRESETS = {
    "growth": {
        "scenarios": ["null"],
        "sizes": [8, 32, 128, 512, 1024],
        "only": ["envmgr, 2 workers, arrays", "floor, 2 workers", REFERENCE],
        "name": "growth",
    },
    "sleepy": {
        "scenarios": ["sleepy"],
        "sizes": [8, 32],
        "only": ["plain", REFERENCE, "envmgr subprocess, arrays", "envmgr async, half"],
        "name": "sleepy",
    },
    "infos": {"scenarios": ["infos"], "name": "infos"},
    "big": {"scenarios": ["mega"], "only": ["envmgr", "floor", REFERENCE], "sizes": [8], "name": "big"},
}
"""Options for a question of its own; what is given besides wins."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scenarios", nargs="+", choices=sorted(SCENARIOS), default=["null", "cartpole", "pix", "dict"]
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=[8, 64], help="counts of envs (8 64)")
    parser.add_argument("--seconds", type=float, default=0.7, help="measuring, per contender and round (0.7)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument(
        "--only", nargs="+", default=[], help="contenders whose name begins with one of these"
    )
    parser.add_argument("--peers", action="store_true", help="with the peers that are installed")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--name", default="throughput", help="of the files (throughput)")
    parser.add_argument("--preset", choices=sorted(PRESETS), help="options for one question")
    preset = parser.parse_known_args()[0].preset
    parser.set_defaults(**PRESETS.get(preset, {}))
    given = parser.parse_args()

    contenders = chosen(given.only, peers=given.peers)
    if not contenders:
        parser.error(f"nobody by that name; there are: {', '.join(CONTENDERS)}")
    results: list[Result] = []
    for scenario in given.scenarios:
        for envs in given.sizes:
            results += measure(contenders, scenario, envs, seconds=given.seconds, repeats=given.repeats)
    how = {"seconds": given.seconds, "repeats": given.repeats}
    title = "Steps of single envs per second"
    paths = write(results, given.out, given.name, reference=REFERENCE, title=title, how=how)
    print()
    print(paths[1].read_text(encoding="utf-8"))
    for path in paths:
        print(path)


def chosen(only: list[str], *, peers: bool) -> list[Contender]:
    """The contenders to run, in the order of the roster."""
    found = [c for c in CONTENDERS.values() if c.installed and (peers or c.peer is None)]
    return [c for c in found if not only or c.name.startswith(tuple(only))]


if __name__ == "__main__":
    main()
