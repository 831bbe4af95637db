"""What the parts of the engine share: the rows, the machine, the pool, and what everybody must know.

The engine is cut by direction: ``outbox`` writes commands, ``replies`` takes in what workers answered,
``inbox`` keeps results until a face takes them, ``troubles`` looks after deaths and deadlines, ``orders``
carries out what the machine says. None of them knows another but through the attributes here; nothing is
decided here.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from envmgr.engine import events as e
from envmgr.engine.blame import Death
from envmgr.engine.deadlines import Deadlines
from envmgr.engine.machine import Machine, Policy
from envmgr.engine.seeds import SeedBook
from envmgr.engine.settings import Settings
from envmgr.errors import EnvManagerError, EnvManagerWarning, ManagerClosedError
from envmgr.memory.arena import Arena

Obey = Callable[[Iterable[e.Instruction]], None]


class Core:
    """Shared by the parts of one engine; all of it is read and written with the lock.

    Args:
        pool: What hosts the envs.
        machine: The rules, and the states.
        policy: What the rules are parametrised with.
        settings: Limits and switches.
        seeds: The seeds of the envs.

    Attributes:
        lock: Nobody holds it while asleep.
        deadlines: The limits of what is under way.
        failure: What the keeper has met and the caller was not told yet.
        failure_closes: Whether everything is closed when it is told.
        troubled: Envs with which something was wrong: their replies are looked at one by one.
        disowned: Envs whose row holds, all of it announced, what nobody is told of: see ``doubts``.
        deaths: How the last worker ended in each place where one did.
        closing: Whether ``close`` was called.
        warnings: What workers want their user to be warned of.
        midway: True while a batch is being sent, taken in or handed over. Who finds it so at the beginning of
            a call knows that the last one was broken off in the middle, by a Ctrl-C say.
        has_keeper: Whether a background thread looks after this engine.
        keeper_due: When that thread means to look next.
        obey: Carries out what the machine says; ``orders`` puts itself here.
    """

    def __init__(
        self, pool: Any, machine: Machine, policy: Policy, settings: Settings, seeds: SeedBook
    ) -> None:
        self.pool = pool
        self.machine = machine
        self.policy = policy
        self.settings = settings
        self.seeds = seeds
        self.lock = threading.RLock()
        self.env_num: int = pool.env_num
        self.worker_of = np.asarray(pool.worker_of, np.int64)
        self.deadlines = Deadlines(pool.envs_of, settings.step_timeout, settings.reset_timeout)
        self.failure: EnvManagerError | None = None
        self.failure_closes = True
        self.troubled: set[int] = set()
        self.disowned: set[int] = set()
        self.deaths: dict[int, Death] = {}
        self.closing = False
        self.midway = False
        self.warnings: list[str] = []
        self.has_keeper = False
        self.keeper_due = float("inf")
        self.obey: Obey
        self._arena: Arena | None = None

    @property
    def arena(self) -> Arena:
        """The rows; an error when there are none."""
        if self._arena is None:
            raise ManagerClosedError("the manager is closed; launch() makes it usable again")
        return self._arena

    @arena.setter
    def arena(self, arena: Arena | None) -> None:
        self._arena = arena

    @property
    def has_rows(self) -> bool:
        """Whether there are rows: after ``connect``, before ``close``."""
        return self._arena is not None

    def warn(self) -> None:
        """Gives warnings when nothing is half done: where they are errors, they leave the call there."""
        while self.warnings:
            warnings.warn(self.warnings.pop(0), EnvManagerWarning, stacklevel=4)
