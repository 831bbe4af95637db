"""What each contender is run by: its arguments, the clock, the JSON line.

A contender is a file that is run in a process of its own, by whatever Python has its library::

    python benchmarks/contenders/plain_loop.py --scenario null --envs 8 --seconds 1

It builds its envs, steps them for a while unmeasured, steps them for ``--seconds``, and prints one line of
JSON. Only numpy, gymnasium and the standard library are needed here, and nothing newer than Python 3.10.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, NamedTuple

import gymnasium  # noqa: F401 - as in a user's script, which a forked worker inherits
import numpy as np
from scenarios import SCENARIOS

BANK = 64
"""Rows of actions, drawn beforehand and taken in turn: choosing them is no part of what is measured."""


def limit(envs: int, seconds: float) -> float:
    """Seconds that a contender may take in all: many envs take long to come up on a busy machine."""
    return 60.0 + envs / 50 + 2 * seconds


class Setup(NamedTuple):
    """What a contender is asked for."""

    scenario: str
    envs: int
    seconds: float
    workers: int | None
    options: list[str]

    def make_fns(self) -> list[Callable[[], Any]]:
        """One function per env, picklable."""
        make = SCENARIOS[self.scenario].make
        return [functools.partial(make, i) for i in range(self.envs)]

    def actions(self) -> Any:
        """The bank: (BANK, envs) zeros and ones, int64."""
        return np.random.default_rng(0).integers(0, 2, (BANK, self.envs))

    def action_rows(self) -> Iterator[Any]:
        """The rows of the bank, for ever."""
        return itertools.cycle(list(self.actions()))


class Running(NamedTuple):
    """A contender that is up: ``step`` does a call and says how many steps of single envs it was."""

    step: Callable[[], int]
    close: Callable[[], object]
    slowest: float | None = None
    """Seconds from the start of a worker process until its envs were built, of the one that took longest."""


def main(build: Callable[[Setup], Running], *packages: str) -> None:
    """Runs a contender.

    Args:
        build: Brings the envs up, first observations included.
        packages: Whose versions belong into the result.
    """
    setup = _arguments()
    # One that hangs says where, and ends: its parent waits a little longer than this.
    faulthandler.dump_traceback_later(limit(setup.envs, setup.seconds), exit=True)
    begin = time.perf_counter()
    running = build(setup)
    ready = time.perf_counter()
    warm_up(running.step, min(0.5, setup.seconds / 2))
    steps, seconds = timed(running.step, setup.seconds)
    memory = worker_memory()
    running.close()
    result = {
        "steps_per_second": steps / seconds,
        "steps": steps,
        "seconds": seconds,
        "start_seconds": ready - begin,
        "worker_uss": memory,
        "slowest_seconds": running.slowest,
        "versions": {"python": platform.python_version(), **{p: metadata.version(p) for p in packages}},
    }
    print(json.dumps(result), flush=True)
    # Some libraries leave threads or processes that would keep the interpreter from ending.
    sys.stdout.flush()
    os._exit(0)


def warm_up(step: Callable[[], int], seconds: float) -> None:
    """Steps for a while: caches, and the clock of the cores, are as they will be."""
    timed(step, seconds)


def timed(step: Callable[[], int], seconds: float) -> tuple[int, float]:
    """Calls ``step`` for so long, and gives the steps and the seconds that it was."""
    clock = time.perf_counter
    steps = 0
    begin = now = clock()
    end = begin + seconds
    while now < end:
        steps += step()
        now = clock()
    return steps, now - begin


def worker_memory() -> list[int]:
    """Bytes that each child process has for itself alone (USS); empty where the system does not say."""
    found = []
    for pid in _descendants(os.getpid()):
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                lines = [line.split() for line in file]
        except OSError:
            continue
        found.append(sum(int(words[1]) * 1024 for words in lines if words[0].startswith("Private_")))
    return found


def _descendants(pid: int) -> list[int]:
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                for child in map(int, file.read().split()):
                    found += [child, *_descendants(child)]
    except OSError:
        pass
    return found


def _arguments() -> Setup:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenario", required=True, choices=sorted(SCENARIOS))
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--workers", type=int, help="processes; as many as envs by default")
    parser.add_argument("--option", action="append", default=[], help="whatever else a contender knows")
    given = parser.parse_args()
    return Setup(given.scenario, given.envs, given.seconds, given.workers, given.option)
