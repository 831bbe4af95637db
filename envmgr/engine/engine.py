"""The engine: one owner of truth between the faces and the workers.

It turns what faces want (reset these, step those, gather so many) into commands in the arena's rows
and what workers reply into states, by way of the pure machine. Faces call it from one thread at a
time; the keeper calls ``look_after`` beside them; one lock keeps both apart, and nobody holds it
while asleep. What it does itself is the handing over; the rest is in its parts, see ``core``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.engine import events as e
from envmgr.engine.blame import Death
from envmgr.engine.core import Core
from envmgr.engine.inbox import Inbox
from envmgr.engine.life import Life
from envmgr.engine.machine import IDLE, STEPPING, Machine, Policy
from envmgr.engine.orders import Orders
from envmgr.engine.outbox import Outbox
from envmgr.engine.replies import Replies
from envmgr.engine.results import StepBatch, load_info
from envmgr.engine.seeds import SeedBook
from envmgr.engine.settings import Settings
from envmgr.engine.states import EnvState
from envmgr.engine.statistics import Statistics
from envmgr.engine.troubles import Troubles
from envmgr.engine.waits import Waits
from envmgr.errors import EnvManagerError, ManagerClosedError
from envmgr.log import log as _log
from envmgr.memory.arena import Arena
from envmgr.workers import contract as c
from envmgr.workers.build import MethodProxy

__all__ = ["Engine", "Settings"]

# Plain ints: numpy asks a member of an enum for attributes, and that is slow, and swallows a Ctrl-C.
_RUN, _RESETTING, _INIT = int(EnvState.RUN), int(EnvState.RESET), int(EnvState.INIT)


class Engine:
    """Owns the states of all envs of one manager.

    Args:
        pool: What hosts the envs.
        policy: The rules of retries, renewals and episodes.
        settings: Limits and switches.
        seeds: The seeds of the envs; they outlive a launch.
        on_move: Called at every change of a state with (env_id, old, new).
    """

    def __init__(
        self,
        pool: Any,
        policy: Policy,
        settings: Settings,
        seeds: SeedBook,
        on_move: Callable[[int, EnvState, EnvState], None] | None = None,
    ) -> None:
        self.pool = pool
        self.policy = policy
        self.settings = settings
        self.seeds = seeds
        self.env_num: int = pool.env_num
        self.machine = Machine(policy, pool.envs_of, on_move)
        self.specs: dict[int, c.EnvSpec] = {}
        core = self._core = Core(pool, self.machine, policy, settings, seeds)
        self.lock = core.lock
        self._inbox = Inbox(self.env_num, settings.copy_on_get)
        self._outbox = Outbox(core, self._inbox)
        self._replies = Replies(core, self._inbox, self._outbox)
        self._troubles = Troubles(core, self._inbox, self._outbox, self._replies, self.specs)
        self._orders = Orders(core, self._inbox, self._outbox, self._replies, self._troubles)
        self._statistics = Statistics(core, self._outbox)
        self._waits = Waits(core, self._inbox, self._replies, self)
        self._life = Life(core, self.specs, self._lay, self._statistics.end, self)
        self.gather, self.wait_until = self._waits.gather, self._waits.wait_until
        self.free, self.has_result = self._outbox.free, self._inbox.has

    # -- life ------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Brings the workers up, makes the rows and starts the keeper; see ``Life.connect``."""
        self._life.connect()

    def close(self) -> dict[int, c.Failure]:
        """Closes everything, from any thread, bounded; again does nothing; see ``Life.close``."""
        return self._life.close()

    def _lay(self, arena: Arena) -> None:
        self._inbox.lay(arena.plan, arena)
        self._outbox.lay(arena.plan, arena)
        self._replies.lay(arena)

    @property
    def closed(self) -> bool:
        """Whether everything is closed."""
        return self._life.closed

    @property
    def closing(self) -> bool:
        """Whether ``close`` was called."""
        return self._core.closing

    def check_failure(self) -> None:
        """Raises what the keeper has met and nobody was told yet."""
        failure, self._core.failure = self._core.failure, None
        if failure is not None:
            raise failure

    def check(self) -> None:
        """Raises what the keeper has met since the last call; closes first where that is the rule."""
        core = self._core
        failure = core.failure
        if failure is not None:
            core.failure = None
            if core.failure_closes:
                self._attach_results(failure)
                self.close()
            raise failure
        if core.midway:
            self.close()
            raise ManagerClosedError(
                "the last call was broken off (by a Ctrl-C, say) while it sent or took in a batch: nobody "
                "knows which envs have stepped, so everything was closed; launch() makes it usable again"
            )
        if core.closing:
            raise ManagerClosedError("the manager was closed meanwhile; launch() makes it usable again")

    def _attach_results(self, failure: EnvManagerError) -> None:
        """The others' results are not lost: they go with the error."""
        try:
            with self.lock:
                if self._core.has_rows and self._inbox.count:
                    failure.results = self._inbox.take()  # type: ignore[attr-defined]
        except Exception:  # the error at hand matters more than what would ride on it
            _log.debug("results could not be attached to an error", exc_info=True)

    # -- the keeper's part -----------------------------------------------------------------------------

    def next_look(self) -> float | None:
        """When the keeper has to look, whatever happens; None for never."""
        core = self._core
        with self.lock:
            core.keeper_due = due = self._troubles.next_look()
            return None if due == float("inf") else due

    def look_after(self, ready: list[Any], now: float) -> None:
        """Deaths, hellos, alarms, deadlines, timers. Called by the keeper."""
        with self.lock:
            if not self._core.closing and self._core.has_rows:
                self._troubles.look_after(ready, now)

    def keeper_failed(self, error: BaseException) -> None:
        """The keeper met a bug: the caller must know."""
        failure = EnvManagerError(
            f"the background thread of the manager failed: {error!r}; this is a bug in envmgr"
        )
        failure.__cause__ = error
        self._core.failure, self._core.failure_closes = failure, True
        self.pool.wake()

    # -- sending ---------------------------------------------------------------------------------------

    def submit(self, ids: Any, actions: Any, *, batched: bool, autoreset: bool = False) -> None:
        """Sends steps; see ``Outbox.submit``."""
        with self.lock:
            self._outbox.submit(ids, actions, batched=batched, autoreset=autoreset)

    def submit_all(self, actions: Any, autoreset: bool) -> bool:
        """Sends a batch to all envs, if they are free; see ``Outbox.submit_all``."""
        with self.lock:
            return self._outbox.submit_all(actions, autoreset)

    def submit_each(self, actions: Sequence[Any]) -> bool:
        """Sends one action to each of all envs, if they are free; see ``Outbox.submit_each``."""
        with self.lock:
            return self._outbox.submit_each(actions)

    def ask_resets(self, ids: Iterable[int], params: dict[int, Any]) -> None:
        """Resets envs; what they have pending is dropped.

        Args:
            ids: The envs.
            params: Params that are used from now on, where they change.
        """
        with self.lock:
            now = time.monotonic()
            self._outbox.set_params(params)
            self._core.midway = True
            for i in ids:
                self._inbox.forget(i, stepping=bool(self.machine.op[i] == STEPPING))
                if self.machine.op[i] != IDLE:
                    self._core.troubled.add(i)
                self._core.obey(self.machine.handle(e.ResetAsked(i), now))
            self._core.midway = False

    # -- handing over ----------------------------------------------------------------------------------

    def take(self, order: Any = None) -> StepBatch:
        """Hands over what has arrived, each result once.

        Args:
            order: The envs in the order that the rows shall have, where all of them have arrived (an index
                array, or a slice for all); None for the order of their arrival.
        """
        if self._core.warnings:
            self._core.warn()  # where warnings are errors, nothing has been handed over yet
        with self.lock:
            self._core.midway = True
            batch = self._inbox.take(order)
            if batch.infos or batch.ended:
                self._end_episodes(batch)
            self._core.midway = False
        return batch

    def _end_episodes(self, batch: StepBatch) -> None:
        """Ends the episodes of what was handed over: resets go out, now that the rows are copied."""
        machine, obey = self.machine, self._core.obey
        if self.policy.abnormal_is_error:
            for i, info in batch.infos.items():
                if _said_abnormal(info) and machine.state(i) == EnvState.RUN and i not in batch.final_obs:
                    obey(machine.handle(e.SaidAbnormal(i), time.monotonic()))
        done = batch.terminated | batch.truncated
        if not done.any():
            return
        now = time.monotonic()
        orders: list[e.Instruction] = []
        for i in batch.ids[done].tolist():
            if i not in batch.final_obs and machine.state(i) == EnvState.RUN:
                orders += machine.handle(e.EpisodeEnded(i, abnormal=i in batch.abnormal), now)
        obey(orders)

    def observations(self, ids: NDArray[np.int64]) -> tuple[Any, Callable[[int], Any]]:
        """The last observations of envs that are in RUN: (batch, row accessor)."""
        with self.lock:
            self._core.arena  # noqa: B018 - an error where the manager was closed meanwhile
            return self._inbox.observations(ids)

    def ready_infos(self) -> dict[int, Any]:
        """The infos of the last resets, where they are not empty."""
        with self.lock:
            return self._inbox.reset_infos()

    # -- reading ---------------------------------------------------------------------------------------

    def collect_now(self) -> None:
        """Takes in what is there."""
        with self.lock:
            self._core.midway = True
            self._replies.collect()
            self._core.midway = False

    def glance(self) -> None:
        """Takes in what is there, unless somebody is at it already; never waits."""
        if self.lock.acquire(blocking=False):
            try:
                if self._core.has_rows and self._replies.waiting():
                    self._replies.collect()
                    self.pool.wake()  # a caller that sleeps counts on them
            finally:
                self.lock.release()

    def ready(self) -> list[int]:
        """The envs that can be stepped."""
        machine, inbox = self.machine, self._inbox
        if inbox.whole:
            return []
        free = (machine.states == _RUN) & (machine.op == IDLE) & ~inbox.arrived
        found: list[int] = np.flatnonzero(free).tolist()
        return found

    def all_run(self, ids: Sequence[int]) -> bool:
        """Whether all of some envs are in an episode."""
        return not np.count_nonzero(self.machine.states[ids] != _RUN)

    def coming(self) -> bool:
        """Whether some env will be ready by itself: a reset is under way, or a worker comes up."""
        states = self.machine.states
        resetting = (states == _RESETTING) | (states == _INIT)
        return bool(resetting.any()) or self.machine.killing() or self.machine.next_due() is not None

    def spaces(self, env_id: int) -> tuple[Any, Any, Any]:
        """(observation, action, reward) space of an env. Unpickling them imports their library."""
        loaded: tuple[Any, Any, Any] = load_info(self.specs[env_id].spaces)
        return loaded

    def last_death(self, worker: int) -> Death:
        """How the last worker in this place ended."""
        nobody_knows = Death(c.ExitReport(None, None), tuple(self.pool.envs_of[worker]))
        return self._core.deaths.get(worker, nobody_knows)

    def is_method(self, value: Any) -> bool:
        """Whether a fetched attribute stands for a method of the env."""
        return isinstance(value, MethodProxy) or (not self.pool.background and callable(value))

    @property
    def pending(self) -> int:
        """Steps that were sent and not handed over."""
        return self._inbox.out

    def times(self) -> NDArray[np.float64]:
        """Seconds per env in step and in reset, shape (2, env_num)."""
        return self._statistics.times()

    def stats(self) -> dict[int, dict[str, Any]]:
        """Counts and seconds per env."""
        with self.lock:
            return self._statistics.per_env()


def _said_abnormal(info: Any) -> bool:
    """Whether an info says ``abnormal``, in whatever type."""
    said = info.get("abnormal") if isinstance(info, dict) else None
    return bool(np.any(said)) if isinstance(said, np.ndarray) else bool(said)
