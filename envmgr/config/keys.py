"""Every key of an env manager's config: its type, range, default and meaning, in this place only.

One pydantic model holds the keys of the whole family, so that a config stays valid when its ``type``
is changed; which managers a key has an effect on is said by its ``uses``. Values are checked
strictly: a bool is no int, a string no number. ints pass for floats, numpy scalars for what they hold.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

IN_CALLER = ("base", "base_v2")
SUPERVISED = ("env_supervisor",)
PROCESSES = ("subprocess", "async_subprocess", "subprocess_v2", *SUPERVISED, "ray")
WORKERS = (*PROCESSES, "thread")
TYPES = (*IN_CALLER, *WORKERS)
WAITING = ("async_subprocess", "ray")


class Allowed(NamedTuple):
    """What a key may be, in the words of an error message."""

    text: str


class Uses(NamedTuple):
    """The managers that a key has an effect on."""

    types: tuple[str, ...]


def _no_inf(value: Any) -> Any:
    """An endless limit is no limit."""
    return None if isinstance(value, float) and value == math.inf else value


def _only_inf(value: float) -> float:
    if value != math.inf:
        raise ValueError("not inf")
    return value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _names(value: Any) -> Any:
    return [value] if isinstance(value, str) else list(value) if isinstance(value, tuple) else value


def _ids(value: Any) -> Any:
    if isinstance(value, (tuple, range, np.ndarray)):
        value = list(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _amounts(value: Any) -> Any:
    return {key: _plain(value[key]) for key in value} if isinstance(value, Mapping) else value


def _plain(value: Any) -> Any:
    """A numpy scalar as what it holds, a member of an enum as its value."""
    if isinstance(value, Enum):
        value = value.value
    return value.item() if isinstance(value, np.generic) else value


_Positive = Annotated[int, Field(ge=1)]
_Number = Annotated[float, Field(allow_inf_nan=False)]

Switch = Annotated[bool, Allowed("True or False")]
Count = Annotated[_Positive, Allowed("a whole number of at least 1")]
CountOrNone = Annotated[_Positive | None, Allowed("a whole number of at least 1, or None")]
CountFromZero = Annotated[int, Field(ge=0), Allowed("a whole number of at least 0")]
CountOrInf = Annotated[
    _Positive | Annotated[float, AfterValidator(_only_inf)],
    Allowed("a whole number of at least 1, or float('inf') (.inf in YAML)"),
]
Limit = Annotated[
    Annotated[_Number, Field(gt=0)] | None,
    BeforeValidator(_no_inf),
    Allowed("a number of seconds above 0, or None for no limit (null in YAML)"),
]
Wait = Annotated[
    Annotated[_Number, Field(ge=0)] | None,
    BeforeValidator(_no_inf),
    Allowed("a number of seconds of at least 0, or None for no limit (null in YAML)"),
]
Seconds = Annotated[_Number, Field(ge=0), Allowed("a number of seconds of at least 0")]
Span = Annotated[_Number, Field(gt=0), Allowed("a number of seconds above 0")]
Text = Annotated[str, Field(min_length=1), Allowed("a non-empty str")]
RetryType = Annotated[Literal["reset", "renew"], BeforeValidator(_lower), Allowed("'reset' or 'renew'")]
StartMethod = Annotated[Literal["fork", "spawn", "forkserver"], Allowed("'fork', 'spawn' or 'forkserver'")]
OnError = Annotated[Literal["raise", "reset"], Allowed("'raise' or 'reset'")]
SeedMode = Annotated[Literal["offset", "spawn"], Allowed("'offset' or 'spawn'")]
InfoErrors = Annotated[Literal["drop", "raise"], Allowed("'drop' or 'raise'")]
Spin = Annotated[
    bool | Literal["auto"] | Annotated[_Number, Field(ge=0, le=0.1)],
    Allowed("True, False, 'auto' or a number of seconds from 0 to 0.1"),
]
Affinity = Annotated[
    Literal["spread"] | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None,
    BeforeValidator(_ids),
    Allowed("None, 'spread' or a list of core numbers"),
]
Resources = Annotated[
    dict[str, Annotated[_Number, Field(ge=0)]] | None,
    BeforeValidator(_amounts),
    Allowed("None or a dict of resource name to amount, such as {'num_cpus': 2}"),
]
Names = Annotated[list[Text], BeforeValidator(_names), Allowed("a module name or a list of module names")]


class ManagerConfig(BaseModel):
    """The keys of every env manager; their defaults are those of ``async_subprocess``."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    # Episodes and results
    episode_num: Annotated[CountOrInf, Uses(TYPES)] = Field(
        math.inf, description="Episodes after which an env is DONE and restarts no more."
    )
    auto_reset: Annotated[Switch, Uses(TYPES)] = Field(
        True,
        description="Whether an env that is done restarts by itself, in the background; otherwise it is "
        "NEED_RESET until reset() names it.",
    )
    wait_num: Annotated[Count, Uses(WAITING)] = Field(
        2, description="Results that step() waits for at least; capped by how many are pending."
    )
    step_wait_timeout: Annotated[Wait, Uses(WAITING)] = Field(
        0.01,
        description="Seconds that step() goes on collecting after its call when wait_num results are in; "
        "0 returns at once, None waits for all that are pending.",
    )
    copy_on_get: Annotated[Switch, Uses(TYPES)] = Field(
        True,
        description="Whether returned arrays are the caller's own; otherwise they are read-only views, valid "
        "until the same env is stepped again.",
    )
    as_torch: Annotated[Switch, Uses(TYPES)] = Field(
        False,
        description="Whether the arrays of the array face come as torch tensors, over the same memory. With "
        "copy_on_get=False they are valid as long as the arrays would be, and must not be written to.",
    )
    pin_memory: Annotated[Switch, Uses(TYPES)] = Field(
        False,
        description="Whether those tensors lie in pinned memory, for non_blocking copies to a GPU; it costs "
        "one more copy on the host. Needs as_torch and CUDA.",
    )

    # Time limits
    step_timeout: Annotated[Limit, Uses(TYPES)] = Field(
        60.0, description="Seconds that one env's step may take."
    )
    reset_timeout: Annotated[Limit, Uses(TYPES)] = Field(
        60.0, description="Seconds that one env's reset may take."
    )
    connect_timeout: Annotated[Limit, Uses(WORKERS)] = Field(
        60.0, description="Seconds that a worker may take to come up, building its envs included."
    )
    interrupt_grace: Annotated[Seconds, Uses(WORKERS)] = Field(
        1.0, description="Seconds given to an interrupted call to come back before its worker is killed."
    )
    close_grace: Annotated[Seconds, Uses(TYPES)] = Field(
        2.0,
        description="Seconds that close() waits for workers to go by themselves before it kills them; "
        "without them, before it breaks off what an env's close still does (in a main thread).",
    )

    # Failures
    on_error: Annotated[OnError, Uses(TYPES)] = Field(
        "raise",
        description="What a failed step (an exception, an overrun, a dead worker) leads to: 'raise' the "
        "error and close ('base' stays open, with that env in ERROR), or give one abnormal timestep and "
        "'reset' the env.",
    )
    max_retry: Annotated[Count, Uses(TYPES)] = Field(5, description="Attempts at a reset, in all.")
    max_try: Annotated[CountOrNone, Uses(SUPERVISED)] = Field(
        None, description="Attempts at a reset, in all, by the supervisor; None takes max_retry."
    )
    retry_waiting_time: Annotated[Seconds, Uses(TYPES)] = Field(
        0.1, description="Seconds between two attempts."
    )
    retry_type: Annotated[RetryType, Uses(TYPES)] = Field(
        "reset",
        description="Whether a failed reset is tried again on the same env, or on a new one ('renew').",
    )
    retry_step: Annotated[Switch, Uses(TYPES)] = Field(
        False,
        description="Whether a step that raised is tried again with the same action. Only for envs that a "
        "failed step leaves as they were: others advance twice.",
    )
    max_renewals: Annotated[CountFromZero, Uses(TYPES)] = Field(
        10, description="Renewals that one env is given within renewal_window before its failure is final."
    )
    renewal_window: Annotated[Span, Uses(TYPES)] = Field(
        300.0, description="Seconds over which max_renewals counts."
    )
    renew_every: Annotated[CountOrNone, Uses(TYPES)] = Field(
        None,
        description="Episodes after which an env is closed and built anew in a fresh worker, for simulators "
        "that leak; None for never. In processes it wants one env per worker. A seeded env goes on with the "
        "seed of a renewal.",
    )
    info_errors: Annotated[InfoErrors, Uses(TYPES)] = Field(
        "drop",
        description="What becomes of an info value that cannot be pickled: 'drop' it with one warning, or "
        "'raise' an error.",
    )

    # Seeds
    seed_mode: Annotated[SeedMode, Uses(TYPES)] = Field(
        "offset",
        description="What seed(int) gives env i: seed + i ('offset'), or its child of one "
        "numpy SeedSequence ('spawn').",
    )
    isolate_rng: Annotated[Switch, Uses(TYPES)] = Field(
        False,
        description="Whether envs that share a worker have global generators (random, numpy.random) of their "
        "own, swapped in and out at each call; it costs time.",
    )

    # Workers
    envs_per_worker: Annotated[Count, Uses(WORKERS)] = Field(
        1, description="Envs that one worker hosts; not together with num_workers."
    )
    num_workers: Annotated[CountOrNone, Uses(WORKERS)] = Field(
        None, description="Workers over which the envs are spread evenly; None goes by envs_per_worker."
    )
    context: Annotated[StartMethod, Uses(PROCESSES)] = Field(
        "fork" if sys.platform == "linux" else "spawn",
        description="How worker processes are started; 'fork' on Linux by default, 'spawn' elsewhere.",
    )
    shared_memory: Annotated[Switch, Uses(PROCESSES)] = Field(
        True, description="Whether observations travel in shared memory; otherwise they are pickled."
    )
    cpu_affinity: Annotated[Affinity, Uses(PROCESSES)] = Field(
        None,
        description="Cores that workers are pinned to, renewed ones too: a list that they take in turn, "
        "'spread' for all that this process may use, None for no pinning. A core that the system refuses is "
        "passed over.",
    )
    spin: Annotated[Spin, Uses(PROCESSES)] = Field(
        "auto",
        description="Whether the caller and the workers poll for a moment before they sleep, as long as that "
        "has paid lately, and give way to whatever wants their core between two looks; True does, for 0.001 "
        "seconds at the most, 'auto' too but in a container that is granted less time than the cores "
        "that they would poll on; a number is the most in seconds.",
    )

    # Ray
    num_actors: Annotated[CountOrNone, Uses(("ray",))] = Field(
        None, description="Ray actors over which the envs are spread evenly; None goes by envs_per_actor."
    )
    envs_per_actor: Annotated[CountOrNone, Uses(("ray",))] = Field(
        None, description="Envs that one Ray actor hosts; None lets envmgr choose, one actor per node."
    )
    resources: Annotated[Resources, Uses(("ray",))] = Field(
        None, description="Resources that Ray reserves for each actor."
    )

    # Carried along in a config; they say which manager, not how it works
    type: Annotated[Text, Uses(())] = Field(
        "async_subprocess", description="The manager's name in the registry."
    )
    import_names: Annotated[Names, Uses(())] = Field(
        default_factory=list, description="Modules to import first, such as those that register a manager."
    )
    cfg_type: Annotated[Text, Uses(())] = Field(
        "ManagerConfigDict", description="The name of a config's kind, as DI-engine keeps it; without effect."
    )

    @field_validator("*", mode="before")
    @classmethod
    def _accept_scalars(cls, value: Any) -> Any:
        return _plain(value)


OTHER_DEFAULTS: dict[str, dict[str, Any]] = {
    name: {"max_retry": 1, "step_timeout": None, "reset_timeout": None} for name in IN_CALLER
}
"""Where a type's default is not that of ``async_subprocess``."""


class Key(NamedTuple):
    """One key as it is documented."""

    name: str
    allowed: str
    doc: str
    uses: tuple[str, ...]
    default: Any


def _read_keys() -> dict[str, Key]:
    keys = {}
    for name, field in ManagerConfig.model_fields.items():
        allowed = next(mark.text for mark in field.metadata if isinstance(mark, Allowed))
        uses = next(mark.types for mark in field.metadata if isinstance(mark, Uses))
        default = field.get_default(call_default_factory=True)
        keys[name] = Key(name, allowed, field.description or "", uses, default)
    return keys


KEYS: dict[str, Key] = _read_keys()
