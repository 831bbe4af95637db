"""One phase of the soak: one manager under faults for a while, then calm until all its envs are back."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import logging
import os
import random
import tempfile
import threading
import time
import traceback
from typing import Any

import psutil

from envmgr.testing.faults import Ledger, Record
from envmgr.testing.soak.checker import Checker
from envmgr.testing.soak.envs import Board, SoakFaultyEnv, soak_faults
from envmgr.testing.soak.tally import OUTSIDE, Tally, tally

LIMITS = {
    "step_timeout": 1.0,
    "reset_timeout": 1.0,
    "connect_timeout": 120.0,
    "interrupt_grace": 0.3,
    "close_grace": 2.0,
    "retry_waiting_time": 0.02,
    "max_retry": 50,
    "max_renewals": 1_000_000,
}
"""Short limits, so that hangs cost little; and no end of attempts, for the soak is to go on. Only coming up
has time: on a busy machine 32 fresh interpreters take a minute."""

_CALM = 60.0
"""Seconds after which an env that is not back will not come any more."""


class Usage(dict[str, int]):
    """What is held: ``memory`` (bytes of our own), ``fds``, ``threads``, ``processes`` (those under us)."""

    @classmethod
    def now(cls) -> Usage:
        """Of this process, and of how many processes it has under it."""
        gc.collect()
        me = psutil.Process()
        memory = me.memory_info()
        return cls(
            # Not what is ours alone (USS): pages that a fork shares with us count there when the fork ends.
            memory=int(memory.rss - getattr(memory, "shared", 0)),
            fds=int(me.num_fds()),
            threads=threading.active_count(),
            processes=len(me.children(recursive=True)),
        )


@dataclasses.dataclass(frozen=True)
class Phase:
    """What is run.

    Attributes:
        type: Of the manager.
        context: The start method.
        envs: How many.
        seconds: How long faults are made.
        seed: Of the faults.
        rate: Faults per step.
        envs_per_worker: Envs that share a worker, and its death.
        outside: Seconds between two workers that the soak kills from outside, on average; None for none.
    """

    type: str
    context: str
    envs: int = 32
    seconds: float = 150.0
    seed: int = 0
    rate: float = 0.002
    envs_per_worker: int = 1
    outside: float | None = 2.0

    @property
    def name(self) -> str:
        """For people."""
        shared = "" if self.envs_per_worker == 1 else f", {self.envs_per_worker} envs per worker"
        return f"{self.type}, {self.context}{shared}"


@dataclasses.dataclass
class PhaseResult:
    """What came of it. ``broke`` is the traceback of an error that ended it early, or an empty text."""

    phase: Phase
    checker: Checker
    tally: Tally
    begin: Usage
    end: Usage
    seconds: float
    stats: dict[str, float]
    broke: str = ""


class _Gone(logging.Handler):
    """Hears of every worker whose end was noticed, for as long as it is in a ``with``."""

    def __init__(self) -> None:
        super().__init__()
        self.pids: set[int] = set()
        self._logger = logging.getLogger("envmgr")

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the pid of an exit report."""
        for arg in record.args if isinstance(record.args, tuple) else ():
            pid = getattr(arg, "pid", None)
            if isinstance(pid, int):
                self.pids.add(pid)

    def __enter__(self) -> _Gone:
        self._before = self._logger.propagate
        self._logger.propagate = False  # thousands of warnings are expected
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._before


class _Killer:
    """Kills workers from outside, at random times, and writes it down like any other fault."""

    def __init__(self, phase: Phase, ledger: Ledger) -> None:
        self._rng = random.Random(phase.seed)
        self._mean, self._ledger, self._envs = phase.outside, ledger, phase.envs
        self._due = self._next()

    def _next(self) -> float:
        return (
            float("inf") if self._mean is None else time.monotonic() + self._rng.expovariate(1 / self._mean)
        )

    def look(self) -> None:
        """Kills one if it is time."""
        if time.monotonic() < self._due:
            return
        self._due = self._next()
        victim = self._rng.randrange(self._envs)
        built = [record for record in self._ledger.records("built") if record.env_id == victim]
        ours = {process.pid: process for process in psutil.Process().children(recursive=True)}
        process = ours.get(built[-1].pid)
        if process is not None and process.status() != psutil.STATUS_ZOMBIE:
            self._ledger.add(Record("fault", "kill", OUTSIDE, victim, len(built) - 1, pid=process.pid))
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def run_phase(phase: Phase) -> PhaseResult:
    """Runs one phase to its end, whatever happens in it."""
    from envmgr.managers.create import create_env_manager

    with tempfile.TemporaryDirectory(prefix=f"envmgr-{os.getpid()}-soak-") as here, _Gone() as gone:
        ledger = Ledger(os.path.join(here, "ledger"))
        board_path = os.path.join(here, "board")
        board = Board.create(board_path, phase.envs)
        cfg: dict[str, Any] = {
            "type": phase.type,
            "context": phase.context,
            "on_error": "reset",
            "envs_per_worker": phase.envs_per_worker,
            **LIMITS,
        }
        faults = soak_faults(phase.rate)
        fns = [
            functools.partial(
                SoakFaultyEnv, board_path, faults=faults, env_id=i, seed=phase.seed, ledger=ledger
            )
            for i in range(phase.envs)
        ]
        manager = create_env_manager(cfg, fns)
        checker = Checker(phase.envs, lambda i: manager.stats()[i]["timeouts"])
        start, broke = time.monotonic(), ""
        begin = end = Usage.now()
        try:
            manager.launch()
            begin = Usage.now()
            _drive(manager, checker, board, phase, _Killer(phase, ledger))
            end = Usage.now()
        except Exception:  # whatever ends it is a finding, and the table is wanted all the same
            broke = traceback.format_exc()
        checker.ends()
        manager.close()
        stats = _summed(manager.stats())
        counted = tally(
            ledger.records(),
            checker.notices,
            checker.recovered,
            failed_resets=int(stats["retries"]),
            gone=gone.pids,
            all_back=checker.all_back(),
            shared=phase.envs_per_worker > 1,
        )
        _compare_steps(checker, board, counted)
        return PhaseResult(phase, checker, counted, begin, end, time.monotonic() - start, stats, broke)


def _drive(manager: Any, checker: Checker, board: Board, phase: Phase, killer: _Killer) -> None:
    """Steps whatever is ready, until it is time; then calms the envs and goes on until all are back."""
    over = time.monotonic() + phase.seconds
    while time.monotonic() < over:
        killer.look()
        _round(manager, checker)
    board.calm = True
    given_up = time.monotonic() + _CALM
    while time.monotonic() < given_up:
        if checker.unanswered:  # collect only, so that it comes to rest
            _take(manager, checker, {})
        checker.ready(manager.ready_obs)
        if checker.all_back():
            return
        if not checker.unanswered:
            _round(manager, checker)


def _round(manager: Any, checker: Checker) -> None:
    observations = manager.ready_obs
    checker.ready(observations)
    _take(manager, checker, checker.sends(observations))


def _take(manager: Any, checker: Checker, actions: dict[int, int]) -> None:
    from envmgr.errors import IllegalStateError

    try:
        timesteps = manager.step(actions)
    except IllegalStateError:  # a worker was found dead between ready_obs and step: nothing was sent
        checker.takes_back(actions)
        return
    want_reset = checker.got(timesteps)
    if want_reset:
        manager.reset(dict.fromkeys(want_reset))


def _summed(stats: dict[int, dict[str, Any]]) -> dict[str, float]:
    out = dict.fromkeys(
        ("episodes", "retries", "renewals", "timeouts"), 0.0
    )  # also of what was never launched
    for row in stats.values():
        for name, value in row.items():
            out[name] = out.get(name, 0) + value
    return out


def _compare_steps(checker: Checker, board: Board, counted: Tally) -> None:
    """What the envs counted: each step that one finished was handed over, or called abnormal."""
    for i, done in enumerate(board.steps.tolist()):
        good, told = checker.good[i], len(checker.notices_of(i))
        if not good <= done <= good + told:
            counted.wrong.append(
                f"env {i} finished {done} steps; {good} were handed over whole, {told} called abnormal"
            )
