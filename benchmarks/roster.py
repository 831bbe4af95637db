"""Who takes part: each contender's file, its options, and the Python that has its library.

A new one is a file in ``contenders/`` and an entry here. A peer's library lives in an environment of its
own (``peers.py`` makes them), so that nobody's pins hold back anybody else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
VENVS = HERE.parent / ".venvs"


class Contender(NamedTuple):
    """One row of a table.

    Attributes:
        name: What it is called.
        file: The file in ``contenders/``.
        options: Arguments of that file besides scenario, envs and seconds; may depend on the count of envs.
        peer: The environment of ``peers.py`` that it needs, or None for ours.
        processes: How many processes step envs, in words.
        scenarios: Those that it can do; None for all.
        most: How many envs it can do; None for any.
    """

    name: str
    file: str
    options: Callable[[int], list[str]] = lambda envs: []
    peer: str | None = None
    processes: str = "one per env"
    scenarios: frozenset[str] | None = None
    most: int | None = None

    def does(self, scenario: str, envs: int) -> bool:
        """Whether it can take part."""
        return (self.scenarios is None or scenario in self.scenarios) and envs <= (self.most or envs)

    @property
    def python(self) -> Path:
        """The Python that it is run by."""
        return Path(sys.executable) if self.peer is None else VENVS / self.peer / "bin" / "python"

    @property
    def installed(self) -> bool:
        """Whether that Python is there, with all that it needs."""
        return self.peer is None or (VENVS / self.peer / "installed").exists()

    def command(self, scenario: str, envs: int, seconds: float) -> list[str]:
        """What to run."""
        return [
            str(self.python),
            str(HERE / "contenders" / f"{self.file}.py"),
            *("--scenario", scenario, "--envs", str(envs), "--seconds", str(seconds)),
            *self.options(envs),
        ]


def _given(*options: str) -> Callable[[int], list[str]]:
    return lambda envs: list(options)


REFERENCE = "gymnasium AsyncVectorEnv"
"""What speeds are given as multiples of."""

SIZED = ("16b", "1kb", "32kb", "1mb")
"""Scenarios that differ in the bytes of an observation alone."""

_CONTEXTS = {"fork": None, "forkserver": None, "spawn": 8}
"""How workers are started, and how many at the most: 64 interpreters say nothing that 8 do not."""

_BARE = frozenset({"pix", *SIZED})
"""Scenarios that are bytes and nothing else."""

OURS_AND_PLAIN = [
    Contender(
        "plain loop",
        "plain_loop",
        processes="none but the caller",
        # Of an env that does nothing it would only say how fast Python calls a function.
        scenarios=frozenset({"cartpole", "infos", "sleepy"}),
    ),
    Contender(REFERENCE, "gymnasium_async", most=256),
    Contender("envmgr subprocess, dict", "envmgr_dict"),
    Contender("envmgr subprocess, arrays", "envmgr_arrays"),
    Contender("envmgr, 2 workers, arrays", "envmgr_arrays", _given("--workers", "2"), processes="2"),
    Contender(
        "envmgr async, 2 workers, half in flight",
        "envmgr_arrays",
        _given("--workers", "2", "--option", "half"),
        processes="2",
    ),
    Contender("envmgr async, half in flight", "envmgr_arrays", _given("--option", "half")),
    Contender("floor", "floor"),
    Contender("floor, 2 workers", "floor", _given("--workers", "2"), processes="2"),
    Contender("floor of bells", "floor", _given("--option", "bells")),
    Contender(
        "floor of bells, 2 workers", "floor", _given("--option", "bells", "--workers", "2"), processes="2"
    ),
    Contender("memcpy", "memcpy", processes="none", scenarios=_BARE),
    Contender("memcpy, cold", "memcpy", _given("--option", "cold"), processes="none", scenarios=_BARE),
]

STARTS = [
    *(
        Contender(f"envmgr, {how}", "envmgr_arrays", _given("--option", how), most=most)
        for how, most in _CONTEXTS.items()
    ),
    Contender("envmgr, fork, 2 workers", "envmgr_arrays", _given("--workers", "2"), processes="2"),
    Contender(REFERENCE, "gymnasium_async"),
    Contender("floor", "floor"),
]
"""Who is compared in how long it takes to come up, and how much memory it takes then."""

# What torchrl and DI-engine cannot carry: a Dict with a Discrete in it.
_NO_DICT = frozenset({"null", "cartpole", "pix", "infos", "sleepy"})

PEERS = [
    Contender("stable-baselines3 SubprocVecEnv", "sb3_subproc", peer="sb3"),
    Contender("tianshou SubprocVectorEnv", "tianshou_venv", peer="tianshou"),
    Contender("tianshou ShmemVectorEnv", "tianshou_venv", _given("--option", "shmem"), peer="tianshou"),
    Contender(
        "tianshou ShmemVectorEnv, half in flight",
        "tianshou_venv",
        _given("--option", "shmem", "--option", "half"),
        peer="tianshou",
    ),
    Contender("torchrl ParallelEnv", "torchrl_parallel", peer="torchrl", scenarios=_NO_DICT),
    Contender("DI-engine subprocess", "ding_subprocess", peer="ding", scenarios=_NO_DICT),
    Contender(
        "DI-engine async_subprocess, half in flight",
        "ding_subprocess",
        _given("--option", "async"),
        peer="ding",
        scenarios=_NO_DICT,
    ),
    Contender("PufferLib, 1 worker", "puffer_multi", peer="puffer", processes="1, polling"),
    Contender(
        "PufferLib, 2 workers",
        "puffer_multi",
        _given("--workers", "2"),
        peer="puffer",
        processes="2, polling",
    ),
    Contender(
        "EnvPool, 2 threads",
        "envpool_cpp",
        _given("--workers", "2"),
        peer="envpool",
        processes="2 threads, envs in C++",
        scenarios=frozenset({"cartpole"}),
    ),
]

CONTENDERS = {c.name: c for c in (*OURS_AND_PLAIN, *PEERS)}
