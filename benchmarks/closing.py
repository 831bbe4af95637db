"""How long ``close`` takes, for idle workers in each start method (CASES F06: 16 workers, under 2 s).

    python benchmarks/closing.py
    python benchmarks/closing.py --workers 64 --repeats 3

Prints a table; the start methods are taken in turn, in every round.
"""

from __future__ import annotations

import argparse
import statistics
import time

from envmgr import create_env_manager
from envmgr.envs.toy import CounterEnv

METHODS = ("fork", "spawn", "forkserver")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=16, help="workers, one env each (16)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    given = parser.parse_args()
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    for _ in range(given.repeats):
        for method in METHODS:
            found[method].append(seconds_to_close(method, given.workers))
    print(f"| start method | seconds to close {given.workers} workers | least to most |")
    print("| --- | ---: | ---: |")
    for method, seconds in found.items():
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        print(f"| {method} | {statistics.median(seconds):.2f} | {spread} |")


def seconds_to_close(method: str, workers: int) -> float:
    """Of one manager that has stepped once and has nothing to do."""
    manager = create_env_manager({"type": "subprocess", "context": method}, [CounterEnv] * workers)
    manager.launch()
    manager.step(dict.fromkeys(manager.ready_obs, 0))
    begin = time.perf_counter()
    manager.close()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
