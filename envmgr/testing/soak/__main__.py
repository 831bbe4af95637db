"""``python -m envmgr.testing.soak``: the soak from the command line. Exit code 1 if anything is wrong."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from envmgr.testing.soak.phase import Phase, Usage, run_phase
from envmgr.testing.soak.report import Report

PHASES = [(kind, context) for context in ("fork", "spawn") for kind in ("subprocess", "async_subprocess")]


def main(argv: list[str] | None = None) -> int:
    """Runs it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m envmgr.testing.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="under faults, all phases together")
    parser.add_argument("--envs", type=int, default=32)
    parser.add_argument("--envs-per-worker", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.002, help="faults per step, all kinds together")
    parser.add_argument("--only", help="one phase, such as subprocess-fork", default="")
    args = parser.parse_args(argv)
    chosen = [(k, c) for k, c in PHASES if args.only in ("", f"{k}-{c}")]
    if not chosen:
        parser.error(f"--only is one of {', '.join(f'{k}-{c}' for k, c in PHASES)}")
    phases = [
        Phase(
            kind,
            context,
            envs=args.envs,
            seconds=args.seconds / len(chosen),
            seed=args.seed + n,
            rate=args.rate,
            envs_per_worker=args.envs_per_worker,
        )
        for n, (kind, context) in enumerate(chosen)
    ]
    report = soak(phases)
    print(report)
    return 0 if report.ok else 1


def soak(phases: list[Phase]) -> Report:
    """Runs all phases, after a short one of each start method that makes what stays for good."""
    for context in sorted({phase.context for phase in phases}):
        run_phase(
            dataclasses.replace(phases[0], context=context, seconds=1.0, envs=2, rate=0.05, envs_per_worker=1)
        )
    begin = Usage.now()
    results = []
    for phase in phases:
        print(f"{phase.name}, {phase.seconds:g} s ...", file=sys.stderr, flush=True)
        results.append(run_phase(phase))
    return Report(results, begin, Usage.now())


if __name__ == "__main__":
    sys.exit(main())
