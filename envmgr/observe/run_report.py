"""The report of a run: its numbers as JSON, its episodes as ``.npz``, a picture as PNG.

A :class:`RunRecord` is what a run was, whether it came to its end or not; everything else is computed
from it here, so that the table in the terminal, the JSON and the picture say the same.
"""

from __future__ import annotations

import dataclasses
import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import envmgr
from envmgr.observe import rollouts
from envmgr.observe.files import write_json
from envmgr.observe.rollouts import Episode

Outcome = Literal["complete", "interrupted", "failed"]

SHARES = ("step", "reset", "wait")
"""What an env's time is divided into."""


@dataclasses.dataclass
class RunRecord:
    """All there is to say about a run.

    Attributes:
        name: What the run is called.
        config: The config it was made from, as far as it is worth repeating.
        wanted: Episodes that were asked for.
        episodes: Those that are over, in the order of finishing.
        steps: Steps of all envs, unfinished episodes included.
        unfinished: Steps of episodes that are not over.
        samples: ``(seconds, steps)``: the count of steps at moments since the start of collecting.
        wall_time: Seconds of collecting.
        start_time: Seconds that the launch of the envs took.
        stats: What the manager says of each env.
        outcome: How it ended.
        error: The message of the error that it ended with.
        started: The date and time of its start, in ISO form.
    """

    name: str
    config: Mapping[str, Any]
    wanted: int
    episodes: Sequence[Episode]
    steps: int
    unfinished: int
    samples: Sequence[tuple[float, int]]
    wall_time: float
    start_time: float
    stats: Mapping[int, Mapping[str, float]]
    outcome: Outcome
    error: str | None = None
    started: str = ""

    @property
    def steps_per_second(self) -> float:
        """Steps of single envs per second of collecting."""
        return self.steps / self.wall_time if self.wall_time > 0 else 0.0


def env_times(record: RunRecord) -> dict[int, dict[str, float]]:
    """Seconds that each env spent in step, in reset, and waiting.

    Waiting is what is left of the run: for an action, for the caller to take a result, for the other
    envs of the same worker.
    """
    times = {}
    for env_id in sorted(record.stats):
        step, reset = (float(record.stats[env_id].get(f"{name}_time", 0.0)) for name in ("step", "reset"))
        # The first reset is part of the launch, so that the two can add up to more than the collecting.
        times[env_id] = {"step": step, "reset": reset, "wait": max(0.0, record.wall_time - step - reset)}
    return times


def time_shares(record: RunRecord) -> dict[str, float]:
    """How the time of all envs together divides: parts of 1. Empty when nothing was measured."""
    times = env_times(record).values()
    sums = {name: sum(of[name] for of in times) for name in SHARES}
    total = sum(sums.values())
    return {name: value / total for name, value in sums.items()} if total > 0 else {}


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, median, extremes and standard deviation; all None when there are no values."""
    if not values:
        return dict.fromkeys(("mean", "median", "min", "max", "std"))
    return {
        "mean": statistics.fmean(values),
        "median": float(statistics.median(values)),
        "min": float(min(values)),
        "max": float(max(values)),
        "std": statistics.pstdev(values),
    }


def summary(record: RunRecord) -> dict[str, Any]:
    """The numbers of a run, as they stand in ``summary.json``."""
    episodes = record.episodes
    return {
        "name": record.name,
        "outcome": record.outcome,
        "error": record.error,
        "episodes": len(episodes),
        "episodes_wanted": record.wanted,
        "episodes_abnormal": sum(e.abnormal for e in episodes),
        "steps": record.steps,
        "steps_unfinished": record.unfinished,
        "steps_per_second": record.steps_per_second,
        "wall_time": record.wall_time,
        "start_time": record.start_time,
        "return": spread([e.total for e in episodes]),
        "length": spread([float(e.length) for e in episodes]),
        "time_share": time_shares(record),
        "envs": {env_id: dict(of) for env_id, of in record.stats.items()},
        # One entry per episode, in the order of finishing.
        "episode_env_id": [e.env_id for e in episodes],
        "episode_return": [e.total for e in episodes],
        "episode_length": [e.length for e in episodes],
        "config": record.config,
        "started": record.started,
        "versions": versions(("numpy", "gymnasium")),
    }


def versions(packages: Sequence[str]) -> dict[str, str | None]:
    """Versions of envmgr, Python and packages, which are not imported for it; None where one is missing."""
    found: dict[str, str | None] = {"envmgr": envmgr.__version__, "python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


@dataclasses.dataclass(frozen=True)
class Written:
    """What :func:`write` left behind.

    Attributes:
        files: Their paths.
        left_out: Parts of the observations and actions that numpy would have had to pickle, and were not
            written.
    """

    files: list[Path]
    left_out: list[str]


def write(record: RunRecord, directory: Path) -> Written:
    """Writes ``summary.json``, ``rollouts.npz`` (where steps were kept) and ``report.png``.

    Args:
        record: The run.
        directory: Where to; it is made if it is not there, and files of an earlier run are replaced.

    Returns:
        What was written.
    """
    # Matplotlib takes a second to import; who only wants the numbers does not wait for it.
    from envmgr.observe.run_picture import draw

    directory.mkdir(parents=True, exist_ok=True)
    written = Written([], [])
    write_json(directory / "summary.json", summary(record))
    written.files.append(directory / "summary.json")
    if any(e.steps is not None for e in record.episodes):
        written.left_out.extend(rollouts.save(directory / "rollouts.npz", record.episodes))
        written.files.append(directory / "rollouts.npz")
    draw(record, directory / "report.png")
    written.files.append(directory / "report.png")
    return written
