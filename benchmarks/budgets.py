"""What envmgr promises about speed, held against results: a line per promise, held or missed.

    python benchmarks/budgets.py                              # the last full run, in benchmarks/results/
    python benchmarks/budgets.py run1/ run2/ run3/            # several runs: all their rounds together

Speeds are ratios within one run, taken round by round; start-up and memory are what they are. What was not
measured is said too.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

ONE_PER_ENV = (
    "gymnasium AsyncVectorEnv",
    "stable-baselines3 SubprocVecEnv",
    "tianshou SubprocVectorEnv",
    "tianshou ShmemVectorEnv",
    "tianshou ShmemVectorEnv, half in flight",
    "torchrl ParallelEnv",
    "DI-engine subprocess",
    "DI-engine async_subprocess, half in flight",
)
GYMNASIUM = ONE_PER_ENV[:1]
PUFFER = ("PufferLib, 1 worker", "PufferLib, 2 workers")
PLAIN = ("plain loop",)
SLEEPING = "N / mean sleep"
SLEEPS = 1000.0
"""Steps per second that one env of the sleepy scenario can do: it sleeps 1 ms on average."""
FLAT = 2 << 20
"""Bytes that a process may gain after the first tenth of its steps: what an allocator keeps at hand."""

Values = Mapping[tuple[str, str, int], Sequence[float | None]]


class Found(NamedTuple):
    """All that was measured.

    Attributes:
        speeds: Per table, (contender, scenario, envs) to steps per second, one per round.
        starts: (contender, scenario, envs) to seconds until the first observations.
        memory: The same to bytes of the largest worker's own.
        beyond: (contender, envs) to seconds that workers took to come up beyond the time of the slowest one.
        imports: Seconds that ``import envmgr`` took.
        loads: What heavy it loaded.
        faces: What ``flat.py`` found, per face.
    """

    speeds: Mapping[str, Values] = MappingProxyType({})
    starts: Values = MappingProxyType({})
    memory: Values = MappingProxyType({})
    beyond: Mapping[tuple[str, int], Sequence[float]] = MappingProxyType({})
    imports: Sequence[float] = ()
    loads: Sequence[str] = ()
    faces: Mapping[str, Any] = MappingProxyType({})


class Verdict(NamedTuple):
    """What became of a promise: ``held`` is None where it was not measured."""

    held: bool | None
    text: str

    def __str__(self) -> str:
        word = {True: "held", False: "MISSED", None: "not measured"}[self.held]
        return f"{word} {self.text}"


class Ratio(NamedTuple):
    """``contender`` in a cell is at least ``at_least`` times the best of ``than`` in the same cell."""

    scenario: str
    envs: int
    contender: str
    at_least: float
    than: tuple[str, ...]

    def judge(self, found: Found) -> Verdict:
        """Goes by the median of the ratios of each round."""
        # Only what was taken in turn may be compared: a table by itself, the first that has both.
        known = next(filter(None, map(self._known, found.speeds.values())), [])
        what = f"{self.scenario} {self.envs}: {self.contender}"
        if not known:
            return Verdict(None, f"{what} against {self.than[0]}: at least {self.at_least:g} times is asked")
        median, name, ratios = min(known)  # the best of the others leaves the least
        among = f", the best of {len(known)}" if len(self.than) > 1 else ""
        return Verdict(
            median >= self.at_least,
            f"{what} is {median:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) times {name}{among}; "
            f"at least {self.at_least:g} is asked",
        )

    def _known(self, speeds: Values) -> list[tuple[float, str, list[float]]]:
        mine = speeds.get((self.contender, self.scenario, self.envs), ())
        found = [(name, _ratios(mine, self._of(speeds, name))) for name in self.than]
        return [(statistics.median(ratios), name, ratios) for name, ratios in found if ratios]

    def _of(self, speeds: Values, name: str) -> Sequence[float | None]:
        if name == SLEEPING:
            return [self.envs * SLEEPS] * 1000
        return speeds.get((name, self.scenario, self.envs), ())


class Growth(NamedTuple):
    """With more envs, a step of one takes no longer than with the fewest."""

    contender: str
    scenario: str
    sizes: tuple[int, ...]

    def judge(self, found: Found) -> Verdict:
        """Goes by the count of envs that does worst."""
        first, *more = self.sizes
        speeds = found.speeds.get("growth", {})
        few = speeds.get((self.contender, self.scenario, first), ())
        ratios = [(n, _ratios(speeds.get((self.contender, self.scenario, n), ()), few)) for n in more]
        known = [(statistics.median(of), n, of) for n, of in ratios if of]
        what = f"{self.scenario} {first} to {more[-1]:,}: {self.contender}"
        if not known or known[-1][1] != more[-1]:
            return Verdict(None, f"{what}: the time of an env's step is not to rise")
        median, n, of = min(known)
        return Verdict(
            median >= 1.0,
            f"{what} steps {median:.2f} ({min(of):.2f} to {max(of):.2f}) times as many with {n:,} envs as "
            f"with {first}, where it does worst; at least 1 is asked",
        )


class AtMost(NamedTuple):
    """A number that is to stay below a limit: seconds or megabytes, median over the rounds."""

    what: str
    unit: str
    limit: float
    of: str
    contender: str = ""
    envs: int = 0

    def judge(self, found: Found) -> Verdict:
        """Goes by the median."""
        values = list(getattr(self, f"_{self.of}")(found))
        asked = f"less than {self.limit:g} {self.unit} is asked"
        if not values:
            return Verdict(None, f"{self.what}: {asked}")
        median = statistics.median(values)
        text = f"{self.what}: {median:.2f} {self.unit} ({min(values):.2f} to {max(values):.2f}); {asked}"
        return Verdict(median < self.limit, text)

    def _imports(self, found: Found) -> Iterable[float]:
        return found.imports

    def _starts(self, found: Found) -> Iterable[float]:
        return _good(found.starts.get((self.contender, "null", self.envs), ()))

    def _beyond(self, found: Found) -> Iterable[float]:
        return found.beyond.get((self.contender, self.envs), ())

    def _memory(self, found: Found) -> Iterable[float]:
        return [v / 1e6 for v in _good(found.memory.get((self.contender, "null", self.envs), ()))]


class Light:
    """``import envmgr`` loads nothing heavy."""

    def judge(self, found: Found) -> Verdict:
        """Goes by what was in sys.modules."""
        heavy = ", ".join(found.loads) or "nothing heavy"
        return Verdict(
            not found.loads if found.imports else None,
            f"import envmgr loads {heavy if found.imports else '...'}; torch and ray are not to be loaded",
        )


class Flat(NamedTuple):
    """Nothing grows over so many calls of step."""

    calls: int

    def judge(self, found: Found) -> Verdict:
        """Goes by every face: bytes within ``FLAT``; descriptors, threads and processes as they were."""
        what = f"{self.calls:,} steps: memory, descriptors and processes of parent and workers"
        if not found.faces or min(one["steps"] for one in found.faces.values()) < self.calls:
            return Verdict(None, f"{what} are not to grow")
        most = max(max(one["bytes_grown"]) for one in found.faces.values())
        same = all(
            one["early"][key] == one["late"][key]
            for one in found.faces.values()
            for key in ("fds", "threads", "processes")
        )
        counts = "all counts as they were" if same else "descriptors, threads or processes changed"
        return Verdict(same and most < FLAT, f"{what}: at most {most / 1024:+.0f} KB in a process, {counts}")


BUDGETS: list[Ratio | Growth | AtMost | Light | Flat] = [
    Ratio("null", 8, "envmgr subprocess, arrays", 5.0, ONE_PER_ENV),
    Ratio("null", 8, "envmgr subprocess, dict", 4.0, ONE_PER_ENV),
    Ratio("null", 64, "envmgr, 2 workers, arrays", 40.0, GYMNASIUM),
    Ratio("null", 64, "envmgr, 2 workers, arrays", 8.0, PUFFER),
    Ratio("cartpole", 64, "envmgr async, 2 workers, half in flight", 1.5, PLAIN),
    Ratio("pix", 32, "envmgr, 2 workers, arrays", 10.0, GYMNASIUM),
    Ratio("pix", 32, "envmgr, 2 workers, arrays", 0.5, ("memcpy",)),
    Ratio("pix", 32, "envmgr, 2 workers, arrays", 0.5, ("memcpy, cold",)),
    Ratio("sleepy", 8, "envmgr async, half in flight", 0.85, (SLEEPING,)),
    Ratio("sleepy", 32, "envmgr async, half in flight", 0.85, (SLEEPING,)),
    Growth("envmgr, 2 workers, arrays", "null", (8, 32, 128, 512, 1024)),
    AtMost("import envmgr", "s", 0.15, "imports"),
    Light(),
    AtMost("64 envs up, fork, one process each", "s", 1.5, "starts", "envmgr, fork", 64),
    AtMost(
        "8 spawned workers up, beyond the time of the slowest",
        "s",
        1.0,
        "beyond",
        "envmgr, spawn",
        8,
    ),
    AtMost("a forked worker's own memory", "MB", 12.0, "memory", "envmgr, fork", 8),
    AtMost("a spawned worker's own memory", "MB", 60.0, "memory", "envmgr, spawn", 8),
    Flat(100_000),
    *(
        Ratio(scenario, envs, who, limit, (f"{floor}{workers}",))
        for floor in ("floor of bells", "floor")
        for scenario, envs, who, limit, workers in (
            ("null", 8, "envmgr subprocess, arrays", 0.8, ""),
            ("null", 64, "envmgr, 2 workers, arrays", 0.8, ", 2 workers"),
            ("cartpole", 64, "envmgr, 2 workers, arrays", 0.9, ", 2 workers"),
            ("pix", 32, "envmgr, 2 workers, arrays", 0.9, ", 2 workers"),
        )
    ),
]


def judged(found: Found, *, unmeasured: bool = True) -> list[Verdict]:
    """A verdict per budget; those whose cells were not measured only if ``unmeasured``."""
    verdicts = [budget.judge(found) for budget in BUDGETS]
    return [verdict for verdict in verdicts if unmeasured or verdict.held is not None]


def load(paths: Iterable[Path]) -> Found:
    """What is in these files, or in the JSON files of these directories; several runs are put together."""
    speeds: dict[str, dict[Any, list[Any]]] = {}
    starts: dict[Any, list[Any]] = {}
    memory: dict[Any, list[Any]] = {}
    beyond: dict[Any, list[float]] = {}
    imports: list[float] = []
    loads: set[str] = set()
    faces: dict[str, Any] = {}
    for path in _files(paths):
        content = json.loads(path.read_text(encoding="utf-8"))
        starting = "import_seconds" in content
        values = starts if starting else speeds.setdefault(path.stem, {})
        for result in content.get("results", ()):
            key = result["contender"], result["scenario"], result["envs"]
            values.setdefault(key, []).extend(result["values"])
            if starting:
                memory.setdefault(key, []).extend(result["memory"])
                beyond.setdefault((key[0], key[2]), []).extend(result["beyond"])
        imports += content.get("import_seconds", ())
        loads.update(content.get("import_loads", ()))
        for face, one in content.get("faces", {}).items():
            faces[f"{path} {face}"] = one
    return Found(speeds, starts, memory, beyond, imports, sorted(loads), faces)


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        yield from sorted(path.glob("*.json")) if path.is_dir() else [path]


def _good(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _ratios(mine: Sequence[float | None], its: Sequence[float | None]) -> list[float]:
    return [a / b for a, b in zip(mine, its, strict=False) if a is not None and b]


def main() -> None:
    paths = [Path(word) for word in sys.argv[1:]] or [Path(__file__).parent / "results"]
    for verdict in judged(load(paths)):
        print(verdict)


if __name__ == "__main__":
    main()
