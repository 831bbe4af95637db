"""What the engine and the workers say to each other, and the shape of a pool of workers.

A request is one byte in the env's ``cmd`` row, a reply is one byte in its ``flag`` row; what does
not fit into rows travels as a message (a tuple) on the worker's side channel. Both sides read the
numbers below and nothing else of each other.
"""

from __future__ import annotations

import dataclasses
import enum
import signal
from collections.abc import Sequence
from typing import Any, Protocol

from envmgr.memory.arena import Arena, ArenaPlan
from envmgr.memory.layout import Layout


class Cmd(enum.IntEnum):
    """What the parent asks of an env (its ``cmd`` row)."""

    NONE = 0
    STEP = 1
    STEP_AUTORESET = 2
    """A step after which a finished env is reset at once: its last observation goes to the final
    rows, the first one of the new episode to the observation rows."""
    RESET = 3


WITH_MESSAGE = 0x80
"""Set in a ``cmd`` byte when its argument is on the side channel."""


class Flag(enum.IntEnum):
    """How far a request is (its ``flag`` row)."""

    IDLE = 0
    PENDING = 1
    IN = 2


class Status(enum.IntFlag):
    """What a reply brought besides its rows (its ``status`` row)."""

    INFO = 1
    """An info dict, pickled, in the info row."""
    MESSAGE = 2
    """A message on the side channel belongs to this reply; read it before the reply is used."""
    FAILED = 4
    """The call raised; the message is a Failure."""
    FINAL = 8
    """The episode ended and the env was reset at once; see Cmd.STEP_AUTORESET."""
    RESET_FAILED = 16
    """With FINAL: the step is good, the reset after it raised; the message has a Failure."""


class Bell(enum.IntEnum):
    """The bytes on a worker's bell."""

    WORK = 1
    MESSAGE = 2


@dataclasses.dataclass(slots=True)
class Failure:
    """An exception in a worker, told so that it can be told again.

    Attributes:
        op: What was called: ``'step'``, ``'reset'``, ``'env_fn'``, ...
        kind: Name of the exception's class.
        text: Its message.
        traceback: The traceback as text, the user's frames last.
        pickled: The exception by cloudpickle, or None when it does not pickle.
        error: The exception itself, where the worker lives in this process.
        interrupted: Whether envmgr itself broke the call off, because it took too long.
        mismatch: Whether it is a value that does not fit its space (never tried again).
        advice: What usually helps, for errors that are known.
    """

    op: str
    kind: str
    text: str
    traceback: str = ""
    pickled: bytes | None = None
    error: BaseException | None = None
    interrupted: bool = False
    mismatch: bool = False
    advice: str = ""


@dataclasses.dataclass(slots=True)
class EnvSpec:
    """What a worker says of one env when it has built it.

    The spaces travel pickled, because unpickling one imports its library.
    """

    obs: Layout
    action: Layout
    reward_dtype: str
    reward_shape: tuple[int, ...]
    spaces: bytes
    style: str


@dataclasses.dataclass(slots=True)
class ExitReport:
    """How a worker ended."""

    pid: int | None
    exitcode: int | None
    """As multiprocessing counts: negative for a signal; None when nobody could learn it."""
    why: str = ""
    """Why envmgr ended it, where it did."""

    @property
    def signal_name(self) -> str | None:
        """The signal that ended it, None when none did."""
        if self.exitcode is None or self.exitcode >= 0:
            return None
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return f"signal {-self.exitcode}"

    def __str__(self) -> str:
        if self.pid is None and self.why:
            return f"no process was started for it: {self.why}"
        if self.why:
            return f"envmgr ended process {self.pid}: {self.why}"
        if self.exitcode is None:
            how = "is gone (nobody could learn its exit code)"
        elif self.signal_name:
            how = f"was killed by {self.signal_name}"
            if self.signal_name == "SIGKILL":
                how += " (from outside; often the system is out of memory)"
        else:
            how = f"ended with exit code {self.exitcode}"
        return f"process {self.pid} {how}"


# Messages of a worker to its parent: (kind, ...).
HELLO = "hello"  # (HELLO, {env_id: EnvSpec})
INIT_FAILED = "init_failed"  # (INIT_FAILED, env_id, Failure)
EXTRA = "extra"  # (EXTRA, env_id, seq, pickled Extra): belongs to a reply
ANSWER = "answer"  # (ANSWER, call_id, ok, pickled value or Failure)
CLOSED = "closed"  # (CLOSED, {env_id: Failure}): every env's close was called

# Messages of the parent to a worker.
SETUP = "setup"  # (SETUP, ArenaPlan, options, spin): with the descriptors beside it
ARGUMENT = "argument"  # (ARGUMENT, env_id, seq, value, pickled): of the cmd with WITH_MESSAGE
CALL = "call"  # (CALL, call_id, env_id, op, name, (args, kwargs), pickled)
CLOSE = "close"  # (CLOSE,)


@dataclasses.dataclass(slots=True)
class Extra:
    """What belongs to a reply and did not fit its rows.

    With ``lost`` it could not be sent or read: ``failure`` says why, and is all there is of the reply.
    """

    info: Any = None
    side: list[Any] | None = None
    final_side: list[Any] | None = None
    reward: Any = None
    has_reward: bool = False
    failure: Failure | None = None
    warnings: list[str] = dataclasses.field(default_factory=list)
    lost: bool = False


@dataclasses.dataclass(slots=True)
class Unreadable:
    """Stands in a worker for an argument that did not unpickle there."""

    error: Exception


# What a pool tells the engine, from ``Pool.poll``.
@dataclasses.dataclass(slots=True)
class WorkerUp:
    """A worker has built its envs and said hello."""

    worker: int
    specs: dict[int, EnvSpec]


@dataclasses.dataclass(slots=True)
class WorkerFailed:
    """A worker came up, but could not build an env."""

    worker: int
    env_id: int
    failure: Failure


@dataclasses.dataclass(slots=True)
class WorkerLost:
    """A worker's process is gone."""

    worker: int
    report: ExitReport


@dataclasses.dataclass(slots=True)
class Alarm:
    """A worker has something that must not wait for the caller (a reset that failed)."""


@dataclasses.dataclass(slots=True)
class PoolBroken:
    """No worker can be started any more: why, and what to do."""

    text: str


PoolEvent = WorkerUp | WorkerFailed | WorkerLost | Alarm | PoolBroken


class Pool(Protocol):
    """What the engine needs of whatever hosts the envs.

    ``poll`` and ``wait`` block and are called without the engine's lock, everything else is quick
    and is called with it. A new kind of worker is one class with these methods. Where a worker may
    be gone, a call about it does nothing: its WorkerLost says the rest.
    """

    env_num: int
    worker_num: int
    worker_of: Sequence[int]
    """The worker of each env."""
    envs_of: Sequence[range]
    """The envs of each worker: neighbours."""
    sending: set[int]
    """Workers that a part of a message still has to go to, or an answer that nobody wants to come from; in
    the caller's own process, those whose turn a Ctrl-C has put off."""
    news: bool
    """Without background: whether ``handle`` has something to tell."""
    background: bool
    """Whether things happen here while the caller does something else (so that a keeper is needed)."""

    def open(self) -> None:
        """Starts every worker, and does not wait for them."""

    def renew(self, worker: int) -> None:
        """Starts a new worker in place of one that is gone; WorkerUp follows."""

    def poll(self, timeout: float | None) -> list[Any]:
        """Waits for what must not wait for the caller; ``nudge`` ends the wait.

        What it returns is for ``handle``, which is called with the lock.
        """

    def handle(self, ready: list[Any]) -> list[PoolEvent]:
        """Turns what ``poll`` saw into events."""

    def nudge(self) -> None:
        """Ends ``poll``, from any thread."""

    def make_arena(self, plan: ArenaPlan) -> Arena:
        """Makes the rows."""

    def attach(self, worker: int) -> None:
        """Hands the rows to a worker that is up; it works from then on."""

    def ring(self, workers: Sequence[int]) -> None:
        """Tells workers that there are commands in their rows."""

    def pack(self, message: Any) -> Any:
        """Makes a message ready to send; raises what pickling raises."""

    def send_packed(self, worker: int, packed: Any) -> None:
        """Sends a message and never blocks; what does not fit goes out as the worker reads."""

    def retire(self, worker: int) -> None:
        """Asks a worker to close its envs and go; its WorkerLost follows."""
        ...

    def last_words(self, worker: int) -> dict[int, Failure] | None:
        """What the envs of a worker raised in ``close``; None where it did not go because it was asked to."""
        ...

    def forget(self, worker: int, env_id: int) -> None:
        """Drops messages of an env's replies that nobody waits for."""

    def extra(self, worker: int, env_id: int, seq: int) -> Extra | None:
        """The message of a reply, or None while it is still under way."""

    def answer(self, worker: int, call_id: int) -> tuple[bool, Any] | None:
        """The answer to a call, or None while it is still under way."""

    def drop_answer(self, worker: int, call_id: int) -> None:
        """Nobody waits for this answer any more."""

    def wait(self, need: int, timeout: float | None, talking: Sequence[int] = ()) -> None:
        """Sleeps until ``need`` replies are in, somebody calls ``wake``, or the time is over.

        It ends early when one of the workers ``talking`` sends or takes a part of a message, and may
        do so for no reason; the caller looks and comes again.
        """

    def exchange(self) -> None:
        """Sends and takes in what is under way to and from the workers in ``sending``."""

    def wake(self) -> None:
        """Ends ``wait``, from any thread."""

    def interrupt(self, worker: int, env_id: int, seq: int) -> None:
        """Breaks a call off inside its worker, if that call is still the one that runs there."""

    def interrupt_build(self, worker: int) -> None:
        """Breaks an env_fn off; WorkerFailed follows, or WorkerLost where none runs yet."""

    def ask_stack(self, worker: int) -> bool:
        """Asks a stuck worker for its Python stack; whether it could be asked."""

    def take_stack(self, worker: int) -> str:
        """What it has written of it since, as text."""

    def kill(self, worker: int) -> None:
        """Kills a worker for good; WorkerLost follows."""

    def pid(self, worker: int) -> int | None:
        """The process id of a worker, None when it has none of its own."""

    def close(self, grace: float) -> dict[int, Failure]:
        """Asks every worker to close its envs, waits ``grace`` seconds, then kills.

        Returns the failures of the envs' own ``close``. Idempotent, bounded, never raises.
        """
