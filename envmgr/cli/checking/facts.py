"""What was seen of an env: plain data, collected in the worker, judged elsewhere.

Times are seconds, sizes bytes. Everything pickles without the user's own modules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass
class Trouble:
    """A call of the env that raised, hung, or took the process with it.

    Attributes:
        kind: ``'raised'``, ``'hung'`` or ``'died'``.
        op: The call: ``'import'``, ``'env_fn'``, ``'reset'``, ``'step'``, ``'random_action'`` or
            ``'close'``.
        count: The how manieth call of this kind it was, from 1.
        text: What it raised, or how the process ended.
        place: The user's own file, line and function, or an empty text when nobody knows.
        trace: The traceback, or the stack, as text.
    """

    kind: str
    op: str
    count: int
    text: str
    place: str = ""
    trace: str = ""


@dataclasses.dataclass
class Misfit:
    """What of a leaf (or of the whole observation) is not as the space says.

    Attributes:
        leaf: Which one, such as ``"['img']"``; empty for the whole.
        kind: ``'structure'``, ``'shape'``, ``'lossy'``, ``'rounded'``, ``'cast'``, ``'bounds'``, ``'range'``,
            ``'nan'`` or ``'foreign'`` (a leaf without rows whose value its space does not contain).
        text: The first one, in words.
        at: Which call it came from: ``'reset 1'``, ``'step 17'``.
        count: How many observations had it.
    """

    leaf: str
    kind: str
    text: str
    at: str
    count: int = 1


@dataclasses.dataclass
class Seeding:
    """What comes of seeds.

    Attributes:
        takes_seed: Whether the env can be given one at all.
        steps: How many steps were compared.
        same_seed: Where two runs with one seed parted, in words; empty if nowhere.
        same_seed_and_globals: The same with the global generators seeded alike, too; None when not tried.
        same_seed_and_fresh: The same with an env newly built for each run, too; None when not tried.
        seeds_differ: Whether another seed gave another trajectory.
    """

    takes_seed: bool
    steps: int = 0
    same_seed: str = ""
    same_seed_and_globals: str | None = None
    same_seed_and_fresh: str | None = None
    seeds_differ: bool = False


@dataclasses.dataclass
class Facts:
    """Everything that was seen. What could not be looked at any more keeps its default.

    Attributes:
        name: What builds the env.
        env: Class of the env, and of its wrappers.
        style: ``'gymnasium'``, ``'gym26'``, ...
        missing: Complaint about a target that does not exist.
        pickle_error: Why the factory does not pickle; empty if it does.
        factory_bytes: Size of its pickle.
        build_time: Of the env_fn.
        observation_space: As text; None for an env without one.
        action_space: As text; None for an env without one.
        leaves: Leaves of the observation: name, shape and dtype; ``'side'`` for one without rows.
        obs_bytes: Size of an observation's rows.
        info_bytes: Size of the largest info, pickled.
        misfits: What of the observations is not as the space says.
        values: What is wrong with rewards, flags and infos as values, by kind (``'reward'``,
            ``'reward shape'``, ``'reward dtype'``, ``'reward rounded'``, ``'reward nan'``, ``'flag'``,
            ``'info'``, ``'result'``): in words, with the call that it was first seen in.
        unpicklable: Keys of infos that do not pickle, with the error.
        reused: Leaves of observations, and parts of infos, that the env wrote to after it had returned them.
        globals_used: Global generators whose state changed, with the call: ``('random', 'step')``.
        step_times: Of each step.
        reset_times: Of each reset.
        episode_lengths: Of the episodes that ended.
        seeding: What comes of seeds; None when it could not be tried.
        troubles: Calls that failed.
        closed: Whether the env's ``close`` came back.
        finished: Whether everything was looked at.
    """

    name: str = ""
    env: str = ""
    style: str = ""
    missing: str = ""
    pickle_error: str = ""
    factory_bytes: int = 0
    build_time: float = 0.0
    observation_space: str | None = None
    action_space: str | None = None
    leaves: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    obs_bytes: int = 0
    info_bytes: int = 0
    misfits: list[Misfit] = dataclasses.field(default_factory=list)
    values: dict[str, str] = dataclasses.field(default_factory=dict)
    unpicklable: dict[str, str] = dataclasses.field(default_factory=dict)
    reused: dict[str, str] = dataclasses.field(default_factory=dict)
    globals_used: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    step_times: list[float] = dataclasses.field(default_factory=list)
    reset_times: list[float] = dataclasses.field(default_factory=list)
    episode_lengths: list[int] = dataclasses.field(default_factory=list)
    seeding: Seeding | None = None
    troubles: list[Trouble] = dataclasses.field(default_factory=list)
    closed: bool = False
    finished: bool = False

    @property
    def steps(self) -> int:
        """How many steps were looked at."""
        return len(self.step_times)


@dataclasses.dataclass(frozen=True)
class Times:
    """How long calls took, in seconds.

    The first call, which often sets things up, is left out if there are more.
    """

    mean: float
    median: float
    p95: float
    p99: float
    most: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Times | None:
        """Sums up; None when there is nothing to."""
        if not times:
            return None
        rest = sorted(times[1:] or times)
        median, p95, p99 = (rest[min(len(rest) - 1, int(share * len(rest)))] for share in (0.5, 0.95, 0.99))
        return cls(
            mean=sum(rest) / len(rest),
            median=median,
            p95=p95,
            p99=p99,
            most=rest[-1],
        )

    def as_dict(self) -> dict[str, Any]:
        """As a plain dict."""
        return dataclasses.asdict(self)
