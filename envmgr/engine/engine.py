"""The engine: one owner of truth between the faces and the workers.

It turns what faces want (reset these, step those, gather so many) into commands in the arena's rows
and what workers reply into states, by way of the pure machine. Faces call it from one thread at a
time; the keeper calls ``look_after`` beside them; one lock keeps both apart, and nobody holds it
while asleep.

The fast way: a batch of steps is checked and moved with a few array operations. Only rows that are
done, failed, late or talkative are looked at one by one.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.engine import events as e
from envmgr.engine.blame import Death, Overrun, error_for, error_of
from envmgr.engine.deadlines import Deadlines
from envmgr.engine.gather import enough, sleep_for
from envmgr.engine.keeper import Keeper
from envmgr.engine.machine import IDLE, RESETTING, STEPPING, Machine, Policy
from envmgr.engine.results import StepBatch, as_slice, load_info
from envmgr.engine.seeds import SeedBook
from envmgr.engine.startup import check_specs, come_up, plan_of
from envmgr.engine.states import EnvState
from envmgr.errors import EnvManagerError, EnvManagerWarning, ManagerClosedError, SpaceMismatchError
from envmgr.memory.arena import Arena, order_stores
from envmgr.memory.rows import RowReader, RowWriter
from envmgr.workers import contract as c
from envmgr.workers.build import MethodProxy

_log = logging.getLogger("envmgr")

# Plain ints: looking a member up in its enum costs more than the array operation that it is for.
_IDLE, _PENDING, _IN = int(c.Flag.IDLE), int(c.Flag.PENDING), int(c.Flag.IN)
_STEP, _STEP_AUTORESET, _RESET = int(c.Cmd.STEP), int(c.Cmd.STEP_AUTORESET), int(c.Cmd.RESET)
_RUN, _RESETTING, _INIT = int(EnvState.RUN), int(EnvState.RESET), int(EnvState.INIT)
_INFO, _MESSAGE, _FAILED = int(c.Status.INFO), int(c.Status.MESSAGE), int(c.Status.FAILED)
_FINAL, _RESET_FAILED = int(c.Status.FINAL), int(c.Status.RESET_FAILED)


@dataclasses.dataclass(slots=True)
class Settings:
    """What the engine needs of a config besides the policy. Times in seconds, None for no limit."""

    connect_timeout: float | None = None
    step_timeout: float | None = None
    reset_timeout: float | None = None
    interrupt_grace: float = 1.0
    close_grace: float = 2.0
    shared_memory: bool = True
    copy_on_get: bool = True


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
        self.lock = threading.RLock()
        self.env_num: int = pool.env_num
        self.machine = Machine(policy, pool.envs_of, on_move)
        self.specs: dict[int, c.EnvSpec] = {}
        self.seeds = seeds
        self.closed = False
        self.closing = False
        self._keeper: Keeper | None = None
        self._keeper_due = float("inf")
        self._failure: EnvManagerError | None = None
        self._arena: Arena | None = None
        self._worker_of = np.asarray(pool.worker_of, np.int64)
        self._all_workers = list(range(pool.worker_num))
        self._every = np.arange(self.env_num)
        self._nobody = np.zeros(0, np.int64)
        self.all_run = bytes([EnvState.RUN]) * self.env_num
        self.all_idle = bytes(self.env_num)
        n = self.env_num
        self._params: dict[int, Any] = {}
        self._params_sent: NDArray[np.bool_] = np.ones(n, np.bool_)
        self._arrived: NDArray[np.bool_] = np.zeros(n, np.bool_)
        self._order: list[NDArray[np.int64]] = []
        self._whole = False  # all envs were stepped by one batch, and nothing of it has been taken in
        self._whole_in = False  # that batch is here as a whole, and not handed over
        self._quiet = False  # no episode ended in it
        self._auto_all: bool | None = None
        self._out = 0  # steps sent and not taken
        self._in = 0  # of those: arrived
        self._in_unfinished = 0
        self._abnormal: dict[int, BaseException] = {}
        self._infos: dict[int, Any] = {}
        self._ready_infos: dict[int, Any] = {}
        self._side: dict[int, list[Any]] = {}
        self._final_side: dict[int, list[Any]] = {}
        self._final: set[int] = set()
        self._own_rewards: dict[int, Any] = {}
        self._talking: set[int] = set()
        self._actions: dict[int, Any] = {}
        self._held: set[int] = set()
        self._stacks: dict[int, str] = {}
        self._killed: dict[int, str] = {}
        self._connecting: dict[int, float] = {}
        self._failed_workers: set[int] = set()
        self._troubled: set[int] = set()
        self._held_ends: dict[int, tuple[bool, bool]] = {}
        self._held_obs: dict[int, Any] = {}
        self._auto: NDArray[np.bool_] = np.zeros(n, np.bool_)
        self._step_counts: NDArray[np.int64] = np.zeros(n, np.int64)
        self._whole_steps = 0
        self._endless = policy.episode_num == float("inf")
        self._born_at, self._ended_at = time.monotonic(), 0.0
        self._old_times: NDArray[np.float64] = np.zeros((2, n), np.float64)

    # -- life ------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Brings the workers up, makes the rows and starts the keeper. Closes everything on an error."""
        try:
            self.machine.handle(e.Opened(), time.monotonic())
            self.pool.open()
            self.specs = come_up(self.pool, self.settings.connect_timeout)
            check_specs(self.specs)
            self._make_rows()
            for worker in self._all_workers:
                self.pool.attach(worker)
                self._obey(self.machine.handle(e.WorkerCameUp(worker), time.monotonic()))
            if self.pool.background:
                self._keeper = Keeper(self)
                self._keeper.start()
        except BaseException:
            self.close()
            raise

    def _make_rows(self) -> None:
        spec = self.specs[0]
        plan = plan_of(spec, self.env_num, self.pool.worker_num, self.settings.shared_memory)
        arena = self._arena = self.pool.make_arena(plan)
        self._seq_rows = arena.seq
        self._reader = RowReader(plan.obs, arena.obs)
        self._final_reader = RowReader(plan.obs, arena.final)
        self._writer = RowWriter(plan.action, arena.action, what="action", n=self.env_num)
        self._action_reader = RowReader(plan.action, arena.action)
        self._has_side = plan.obs.has_side
        self._flag = arena.bytes_of("flag")
        self._status = arena.bytes_of("status")
        self._seq = arena.bytes_of("seq")
        self._reply_seq = arena.bytes_of("reply_seq")
        self._cmd = arena.bytes_of("cmd")
        self._terminated = arena.bytes_of("terminated")
        self._truncated = arena.bytes_of("truncated")
        self._op = memoryview(self.machine.op)  # type: ignore[arg-type]  # numpy has no stub for __buffer__
        self._all_in = bytes([_IN]) * self.env_num
        self._all_pending = bytes([_PENDING]) * self.env_num
        self._all_stepping = bytes([STEPPING]) * self.env_num
        self._all_step = bytes([_STEP]) * self.env_num
        self._all_auto = bytes([_STEP_AUTORESET]) * self.env_num
        self.deadlines = Deadlines(self.pool.envs_of, self.settings.step_timeout, self.settings.reset_timeout)
        for i, s in self.specs.items():
            if s.style == "timestep":
                self.seeds.passes_dynamic(i)

    @property
    def arena(self) -> Arena:
        """The rows; an error when there are none."""
        if self._arena is None:
            raise ManagerClosedError("the manager is closed; launch() makes it usable again")
        return self._arena

    def close(self) -> dict[int, c.Failure]:
        """Closes everything, from any thread, bounded; again does nothing."""
        with self.lock:
            if self.closing:
                return {}
            self.closing = True
        self.pool.wake()
        if self._keeper is not None:
            self._keeper.stop()
        with self.lock:
            self._keep_times()
            failures: dict[int, c.Failure] = self.pool.close(self.settings.close_grace)
            self.machine.handle(e.Closed(), time.monotonic())
            self.closed = True
            self._ended_at = time.monotonic()
            self._arena = None
        for env_id, failure in failures.items():
            _log.warning(
                "env %d raised in close: %s: %s\n%s", env_id, failure.kind, failure.text, failure.traceback
            )
        return failures

    def check_failure(self) -> None:
        """Raises what the keeper has met and nobody was told yet."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def check(self) -> None:
        """Raises what the keeper has met since the last call; closes first where that is the rule."""
        failure = self._failure
        if failure is not None:
            self._failure = None
            if getattr(failure, "_closes", True):
                self._attach_results(failure)
                self.close()
            raise failure
        if self.closing:
            raise ManagerClosedError("the manager was closed meanwhile; launch() makes it usable again")

    def _attach_results(self, failure: EnvManagerError) -> None:
        """The others' results are not lost: they go with the error."""
        try:
            with self.lock:
                if self._arena is not None and self._in:
                    failure.results = self._take_raw()  # type: ignore[attr-defined]
        except Exception:  # the error at hand matters more than what would ride on it
            _log.debug("results could not be attached to an error", exc_info=True)

    # -- orders ----------------------------------------------------------------------------------------

    def _obey(self, orders: Iterable[e.Instruction]) -> None:
        """Does what the machine says. With the lock."""
        ring: set[int] = set()
        for order in orders:
            if isinstance(order, e.SendReset):
                self._send_reset(order.env_id)
                ring.add(int(self._worker_of[order.env_id]))
            elif isinstance(order, e.SendStepAgain):
                self._send_again(order.env_id)
                ring.add(int(self._worker_of[order.env_id]))
            elif isinstance(order, e.Renew):
                self._renew(order.worker)
            elif isinstance(order, e.Kill):
                self._kill(order)
            elif isinstance(order, e.Interrupt):
                self._interrupt(order.env_id)
            elif isinstance(order, e.GiveAbnormal):
                self._give_abnormal(order.env_id, order.cause)
            elif isinstance(order, e.Fail):
                self._fail(order)
        if ring:
            order_stores()
            self.pool.ring(sorted(ring))
        if self._keeper is not None and self._next_look() < self._keeper_due:
            self.pool.nudge()

    def _fail(self, order: e.Fail) -> None:
        action = self._action_of(order.env_id) if order.what == "step" else None
        error = error_of(order, action)
        error._closes = order.close  # type: ignore[attr-defined]
        if self._failure is None:
            self._failure = error
        if order.what == "step" and not order.close:  # the manager goes on without this result
            self._out -= 1
        self.pool.wake()

    def _action_of(self, env_id: int) -> Any:
        if env_id in self._actions:
            return self._actions[env_id]
        try:
            return self._action_reader.row(env_id)
        except Exception:  # only for a message; whatever is wrong with it must not hide the real error
            return None

    def _begin(self, ids: Any, resets: bool) -> None:
        if self.deadlines.begin(ids, time.monotonic(), resets) and self._keeper is not None:
            self.pool.nudge()

    def _send_reset(self, i: int) -> None:
        arena = self.arena
        self._load_seed(i)
        command = _RESET
        arena.seq[i] += 1
        argument = {}
        if not self._params_sent[i]:
            argument["params"] = self._params.get(i)
            self._params_sent[i] = True
        if argument:
            command |= c.WITH_MESSAGE
            packed = self.pool.pack((c.ARGUMENT, i, int(arena.seq[i]), argument))
            self.pool.send_packed(int(self._worker_of[i]), packed)
        arena.flag[i] = _PENDING
        order_stores()
        arena.cmd[i] = command
        self._begin(i, True)

    def _load_seed(self, i: int) -> None:
        """Puts the env's next seed into its row, if it has one; a reset takes it from there."""
        taken = self.seeds.take(i)
        if taken is not None:
            self.arena.seed[i], self.arena.seeded[i] = taken

    def _send_again(self, i: int) -> None:
        arena = self.arena
        arena.seq[i] += 1
        arena.flag[i] = _PENDING
        command = _STEP
        if i in self._actions:
            command |= c.WITH_MESSAGE
            self.pool.send_packed(
                int(self._worker_of[i]), self._packed(i, self._actions[i], int(arena.seq[i]))
            )
        order_stores()
        arena.cmd[i] = command
        self._begin(i, False)

    def _renew(self, worker: int) -> None:
        for i in self.pool.envs_of[worker]:
            self.seeds.renewed(i)
            self._params_sent[i] = self._params.get(i) is None
        self._killed.pop(worker, None)
        self._stacks.pop(worker, None)
        self.pool.renew(worker)
        if self.settings.connect_timeout is not None:
            self._connecting[worker] = time.monotonic() + self.settings.connect_timeout

    def _kill(self, order: e.Kill) -> None:
        worker = order.worker
        self._stacks[worker] = self.pool.dump_stack(worker)
        self._killed[worker] = order.why
        _log.warning("worker %d (process %s) is killed: %s\n%s", worker, self.pool.pid(worker), order.why,
                     self._stacks[worker])  # fmt: skip
        self.pool.kill(worker)

    def _interrupt(self, i: int) -> None:
        self.deadlines.grant(i, time.monotonic() + self.settings.interrupt_grace)
        self.pool.interrupt(int(self._worker_of[i]), i, int(self.arena.seq[i]))

    def _give_abnormal(self, i: int, cause: Any) -> None:
        """An abnormal timestep stands in the rows of an env whose step failed."""
        arena = self.arena
        action = self._action_of(i)
        self._abnormal[i] = error_for(i, cause, "step", action)
        _log.warning("env %d is reset, because its step failed: %s", i, self._abnormal[i])
        arena.reward[i] = 0
        arena.terminated[i] = False
        arena.truncated[i] = True
        if arena.dirty[i]:  # its worker died while it wrote: what stands there belongs to no step
            arena.dirty[i] = 0
            for rows in arena.obs:
                rows[i] = 0
        if self._auto[i]:  # the array face hands the row over with the first observation after the reset
            self._held.add(i)
            self._held_ends[i] = (False, True)
            self._held_obs[i] = self._reader.row(i, side=self._side.get(i))
            self._obey(self.machine.handle(e.EpisodeEnded(i, abnormal=True), time.monotonic()))
        else:
            self._arrive(np.array([i], np.int64), unfinished=0)
        self.pool.wake()

    # -- what comes in ---------------------------------------------------------------------------------

    def _arrive(self, ids: NDArray[np.int64], unfinished: int) -> None:
        self._arrived[ids] = True
        self._order.append(ids)
        self._in += len(ids)
        self._in_unfinished += unfinished

    def collect(self) -> None:
        """Takes in the replies that are there. With the lock."""
        arena = self._arena
        if arena is None:
            return
        if (
            self._whole
            and not self._troubled
            and self._flag.tobytes() == self._all_in
            and self._status.tobytes() == self.all_idle
            and self._reply_seq.tobytes() == self._seq.tobytes()
        ):
            self._collect_whole()
            return
        found = np.flatnonzero(arena.flag == _IN)
        if not len(found):
            return
        self._whole = False  # it comes in parts, or says more than its rows
        order_stores()
        stale = found[arena.reply_seq[found] != arena.seq[found]]
        if len(stale):
            arena.flag[stale] = _PENDING
            found = found[arena.reply_seq[found] == arena.seq[found]]
        odd = (arena.status[found] != 0) | (self.machine.op[found] != STEPPING) | (self._again(found))
        plain = found[~odd]
        if len(plain):
            arena.flag[plain] = _IDLE
            self.machine.steps_done(plain)
            self._arrive(plain, self._count_unfinished(plain))
        for i in found[odd].tolist():
            self._collect_one(i)

    def _nobody_ended(self) -> bool:
        idle = self.all_idle
        nobody: bool = self._terminated.tobytes() == idle and self._truncated.tobytes() == idle
        return nobody

    def _collect_whole(self) -> None:
        """Every env was stepped at once, and every one of them has nothing to say but its row."""
        self._whole, self._whole_in = False, True
        self._flag[:] = self._op[:] = self.all_idle
        self._in = self.env_num
        self._quiet = self._nobody_ended()
        self._in_unfinished = self.env_num if self._quiet else self._count_unfinished(slice(None))

    def _again(self, ids: NDArray[np.int64]) -> Any:
        if not self._troubled:
            return False
        return np.array([i in self._troubled for i in ids.tolist()], np.bool_)

    def _count_unfinished(self, ids: Any) -> int:
        arena = self.arena
        done = arena.terminated[ids] | arena.truncated[ids]
        return len(done) - int(np.count_nonzero(done))

    def _collect_one(self, i: int) -> None:
        arena = self.arena
        status = int(arena.status[i])
        worker = int(self._worker_of[i])
        extra: c.Extra | None = None
        if status & _MESSAGE:
            extra = self.pool.extra(worker, i, int(arena.seq[i]))
            if extra is None:
                self._talking.add(worker)
                return
            self._talking.discard(worker)
            for text in extra.warnings:
                warnings.warn(text, EnvManagerWarning, stacklevel=2)
        arena.flag[i] = _IDLE
        self.deadlines.ended(i)
        now = time.monotonic()
        if self.machine.wants_again(i):
            self._obey(
                self.machine.drop(i)
                if self.machine.op[i] == STEPPING
                else self._reset_reply(i, status, extra)
            )
        elif self.machine.op[i] == RESETTING:
            self._obey(self._reset_reply(i, status, extra))
        elif self.machine.op[i] == STEPPING:
            if status & _FAILED:
                cause, final = self._cause(i, extra, "step")
                self._troubled.add(i)
                self._obey(self.machine.handle(e.StepFailed(i, cause, final), now))
            else:
                self._step_reply(i, status, extra)

    def _cause(self, i: int, extra: c.Extra | None, op: str) -> tuple[Any, bool]:
        failure = extra.failure if extra is not None else None
        if failure is None:
            return "its worker gave no reason", False
        if failure.interrupted:
            limit = self.settings.step_timeout if op == "step" else self.settings.reset_timeout
            return Overrun(op, limit or 0.0, failure.traceback), True
        return failure, failure.mismatch

    def _reset_reply(self, i: int, status: int, extra: c.Extra | None) -> list[e.Instruction]:
        now = time.monotonic()
        if status & _FAILED:
            cause, final = self._cause(i, extra, "reset")
            final = final and isinstance(cause, c.Failure)
            self.seeds.give_back(i)
            return self.machine.handle(e.ResetFailed(i, cause, final), now)
        if extra is not None and extra.side is not None:
            self._side[i] = extra.side
        info = self._info_of(i, status, extra)
        if info:
            self._ready_infos[i] = info
        else:
            self._ready_infos.pop(i, None)
        orders = self.machine.handle(e.ResetDone(i), now)
        if i in self._held:  # the array face waits for the first observation of the new episode
            self._held.discard(i)
            if self.machine.state(i) == EnvState.RUN:
                if info:
                    self._infos.setdefault(i, {})["reset_info"] = info
                self.arena.terminated[i], self.arena.truncated[i] = self._held_ends.pop(i)
                self._arrive(np.array([i], np.int64), unfinished=1)
        return orders

    def _info_of(self, i: int, status: int, extra: c.Extra | None) -> Any:
        if status & _INFO:
            return load_info(self.arena.info[i, : int(self.arena.info_len[i])])
        if extra is not None and extra.info is not None:
            return load_info(extra.info)
        return None

    def _step_reply(self, i: int, status: int, extra: c.Extra | None) -> None:
        arena = self.arena
        self.machine.good_step(i)
        self._troubled.discard(i)
        self.machine.steps_done(i)
        info = self._info_of(i, status, extra)
        if info:
            self._infos[i] = info
        if extra is not None:
            if extra.side is not None:
                self._side[i] = extra.side
            if extra.final_side is not None:
                self._final_side[i] = extra.final_side
            if extra.has_reward:
                self._own_rewards[i] = extra.reward
        done = bool(arena.terminated[i] or arena.truncated[i])
        if status & _FINAL:
            self._final.add(i)
            self.machine.episodes[i] += 1
            if status & _RESET_FAILED:
                self._reset_after_final_failed(i, extra)
                return
            self._load_seed(i)
            done = False
        self._arrive(np.array([i], np.int64), unfinished=0 if done else 1)

    def _reset_after_final_failed(self, i: int, extra: c.Extra | None) -> None:
        """The step was good, the reset right after it was not: the row waits until one succeeds."""
        self._held.add(i)
        self._held_ends[i] = (bool(self.arena.terminated[i]), bool(self.arena.truncated[i]))
        self.machine.reset_followed(i)
        cause, final = self._cause(i, extra, "reset")
        final = final and isinstance(cause, c.Failure)
        self.seeds.give_back(i)
        self._obey(self.machine.handle(e.ResetFailed(i, cause, final), time.monotonic()))

    # -- the keeper's part -----------------------------------------------------------------------------

    def _until_next_look(self, left: float | None) -> float | None:
        """How long the caller may sleep where there is no keeper that would wake it."""
        if self.pool.background:
            return left
        due = self.next_look()
        if due is None:
            return left
        wait = max(0.0, due - time.monotonic())
        return wait if left is None else min(left, wait)

    def next_look(self) -> float | None:
        """When the keeper has to look, whatever happens; None for never."""
        with self.lock:
            # A failure waits for the caller: until it has been raised there is nothing to do.
            self._keeper_due = due = self._next_look() if self._failure is None else float("inf")
            return None if due == float("inf") else due

    def _next_look(self) -> float:
        due = self.machine.next_due()
        times = [self.deadlines.earliest, *self._connecting.values()]
        return min(times) if due is None else min(*times, due)

    def look_after(self, ready: list[Any], now: float) -> None:
        """Deaths, hellos, alarms, deadlines, timers. Called by the keeper."""
        with self.lock:
            if self.closing or self._arena is None:
                return
            for event in self.pool.handle(ready):
                self._pool_event(event, now)
            if self._failure is not None:
                return
            for i in self.deadlines.overdue(now, self._arena, self.machine.op):
                self._overdue(i, now)
            for worker, until in list(self._connecting.items()):
                if now >= until:
                    del self._connecting[worker]
                    self._killed[worker] = "connect"
                    self.pool.kill(worker)
            self._obey(self.machine.handle(e.Tick(), now))

    def _overdue(self, i: int, now: float) -> None:
        op = "reset" if self.machine.op[i] == RESETTING else "step"
        worker = int(self._worker_of[i])
        if op == "step" and int(self.arena.phase[worker]) == 1:
            op = "reset"
        limit = self.settings.step_timeout if op == "step" else self.settings.reset_timeout
        cause = Overrun(op, limit or 0.0, pid=self.pool.pid(worker), worker_killed=True)
        self._troubled.add(i)
        self._obey(self.machine.handle(e.DeadlinePassed(i, cause), now))

    def _pool_event(self, event: c.PoolEvent, now: float) -> None:
        if isinstance(event, c.Alarm):
            self._collect_resets()
        elif isinstance(event, c.WorkerUp):
            self._worker_up(event, now)
        elif isinstance(event, c.WorkerFailed):
            self._connecting.pop(event.worker, None)
            self._failed_workers.add(event.worker)
            self._obey(
                self.machine.handle(e.WorkerFailedToBuild(event.worker, event.env_id, event.failure), now)
            )
        elif isinstance(event, c.WorkerLost):
            self._worker_lost(event, now)
        elif isinstance(event, c.PoolBroken):
            _log.error("%s", event.text)
            self._obey([e.Fail("init", 0, event.text)])

    def _worker_up(self, event: c.WorkerUp, now: float) -> None:
        worker = event.worker
        self._connecting.pop(worker, None)
        for i, spec in event.specs.items():
            first = self.specs[0]
            difference = first.obs.difference(spec.obs) or first.action.difference(spec.action)
            if difference is not None:
                self._obey([e.Fail("init", i, f"after its renewal it has other spaces: {difference}")])
                return
        self.pool.attach(worker)
        self._obey(self.machine.handle(e.WorkerCameUp(worker), now))
        self.pool.wake()

    def _worker_lost(self, event: c.WorkerLost, now: float) -> None:
        worker = event.worker
        arena = self.arena
        envs = self.pool.envs_of[worker]
        self.collect()  # what it had finished before counts
        self._whole = False
        self._keep_times(envs)
        self._talking.discard(worker)
        self._connecting.pop(worker, None)
        if worker in self._failed_workers:  # it has said why already
            self._failed_workers.discard(worker)
            return
        for i in envs:
            arena.seq[i] += 1
            arena.cmd[i] = 0
            arena.flag[i] = _IDLE
            arena.seeded[i] = 0
            self.deadlines.ended(i)
            self._troubled.add(i)
            self.pool.forget(worker, i)
        cause: Any = Death(
            event.report, tuple(envs), self._stacks.get(worker, ""), self._killed.get(worker, "")
        )
        if self._killed.get(worker) == "connect":
            cause = Overrun("connect", self.settings.connect_timeout or 0.0, pid=event.report.pid)
        for i in envs:
            interrupted = self.machine.interrupted(i)
            if isinstance(interrupted, Overrun):
                interrupted.stack = self._stacks.get(worker, "")
        _log.warning("worker %d is gone: %s; its envs: %s", worker, event.report, list(envs))
        self._obey(self.machine.handle(e.WorkerEnded(worker, cause), now))
        self.pool.wake()

    def _collect_resets(self) -> None:
        """Failed resets are tried again while the caller does something else."""
        arena = self.arena
        for i in np.flatnonzero((arena.flag == _IN) & (self.machine.op == RESETTING)).tolist():
            if arena.reply_seq[i] == arena.seq[i]:
                self._collect_one(i)

    def keeper_failed(self, error: Exception) -> None:
        """The keeper met a bug: the caller must know."""
        failure = EnvManagerError(
            f"the background thread of the manager failed: {error!r}; this is a bug in envmgr"
        )
        failure.__cause__ = error
        self._failure = failure
        self.pool.wake()

    # -- what faces call -------------------------------------------------------------------------------

    def submit(
        self,
        ids: Any,
        actions: Any,
        *,
        batched: bool,
        autoreset: bool = False,
    ) -> None:
        """Sends steps. Everything was checked by the face but the actions themselves.

        Args:
            ids: The envs: an index array, or a slice for all.
            actions: A batch (tree of arrays), or a list with one action per env.
            batched: Which of the two.
            autoreset: Whether a finished env is reset at once by its worker.

        Raises:
            SpaceMismatchError: An action does not fit; nothing has been sent then.
        """
        arena = self.arena
        with self.lock:
            if batched:
                talkative = self._write_batch(ids, actions)
            else:
                talkative = self._write_actions(ids.tolist(), actions)
            self._send_steps(arena, ids, talkative, autoreset)

    def submit_all(self, actions: Any, autoreset: bool) -> None:
        """Sends a batch of steps to all envs, which are free (``free_all``). Raises as ``submit``."""
        with self.lock:
            if (
                self._endless
                and not self._actions
                and not self._troubled
                and self._writer.write_all(actions) is None
            ):
                self._send_whole(autoreset)
            else:
                self.submit(slice(0, self.env_num), actions, batched=True, autoreset=autoreset)

    def submit_each(self, actions: Sequence[Any]) -> None:
        """Sends one action to each of all envs, which are free (``free_all``). Raises as ``submit``."""
        with self.lock:
            plain = self._endless and not self._actions and not self._troubled
            if plain and not self._write_actions(range(self.env_num), actions):
                self._send_whole(False)
            else:
                self.submit(self._every, actions, batched=False)

    def free_all(self) -> bool:
        """Whether every env can be stepped, in a few hundred nanoseconds."""
        machine = self.machine
        return (
            not self._out
            and machine.states.tobytes() == self.all_run
            and machine.op.tobytes() == self.all_idle
        )

    def _write_actions(self, ids: Any, actions: Sequence[Any]) -> dict[int, Any]:
        """Writes each action into its row; those that do not fit rows wholly are returned, by env."""
        talkative = {}
        write = self._writer.write
        for i, action in zip(ids, actions, strict=True):
            try:
                side = write(i, action)
            except EnvManagerError as error:
                error.env_id = i
                error.message = f"the action for env {i} does not fit: {error.message}"
                error.args = (error.message,)
                raise
            if side is not None:
                talkative[i] = action
        return talkative

    def _write_batch(self, ids: Any, actions: Any) -> dict[int, Any]:
        side = self._writer.write_many(actions, ids)
        if side is None:
            return {}
        listed = range(self.env_num) if isinstance(ids, slice) else ids.tolist()
        return {i: self._action_reader.row(i, side=s) for i, s in zip(listed, side, strict=True)}

    def _send_steps(self, arena: Arena, ids: Any, talkative: dict[int, Any], autoreset: bool) -> None:
        if talkative:
            messages = {i: self._packed(i, a, int(arena.seq[i]) + 1) for i, a in talkative.items()}
            self._actions.update(talkative)
        elif self._actions:
            for i in range(self.env_num) if isinstance(ids, slice) else ids.tolist():
                self._actions.pop(i, None)
        if self._troubled and self.machine.any_owed():
            ids = self._answer_owed(ids)
            if not len(ids):
                return
        if isinstance(ids, slice) and not talkative and self._endless:
            self._send_whole(autoreset)
            return
        arena.seq[ids] += 1
        arena.flag[ids] = _PENDING
        self._auto[ids] = autoreset
        self._auto_all = None
        self.machine.steps_sent(ids)
        self._begin(ids, False)
        if talkative:
            for i in range(self.env_num) if isinstance(ids, slice) else ids.tolist():
                self.pool.send_packed(int(self._worker_of[i]), messages[i])
        order_stores()
        command: Any = _STEP_AUTORESET if autoreset else _STEP
        if autoreset and not self._endless:
            last = self.machine.episodes[ids] + 1 >= self.policy.episode_num
            command = np.where(last, _STEP, _STEP_AUTORESET)
        arena.cmd[ids] = command | c.WITH_MESSAGE if talkative else command
        if isinstance(ids, slice):
            self._out += self.env_num
            self._step_counts += 1
            self.pool.ring(self._all_workers)
        else:
            self._out += len(ids)
            self._step_counts[ids] += 1
            self.pool.ring(sorted(set(self._worker_of[ids].tolist())))

    def _send_whole(self, autoreset: bool) -> None:
        """Steps every env: the same writes as for some, each over the whole array."""
        self._seq_rows += 1
        self._flag[:] = self._all_pending
        if self._auto_all is not autoreset:
            self._auto[:] = self._auto_all = autoreset
        self._op[:] = self._all_stepping
        if self.deadlines.begin_all(time.monotonic()) and self._keeper is not None:
            self.pool.nudge()
        self._whole = not self._in and not self._held
        order_stores()
        self._cmd[:] = self._all_auto if autoreset else self._all_step
        self._out += self.env_num
        self._whole_steps += 1
        self.pool.ring(self._all_workers)

    def _packed(self, i: int, value: Any, seq: int) -> Any:
        try:
            return self.pool.pack((c.ARGUMENT, i, seq, value))
        except Exception as error:  # what an action holds may raise anything when it is pickled
            raise SpaceMismatchError(
                f"the action for env {i} cannot be sent to its worker: {error}; nothing was sent", env_id=i
            ) from error

    def _answer_owed(self, ids: Any) -> NDArray[np.int64]:
        """Steps of envs whose worker died meanwhile are answered at once."""
        listed = np.arange(self.env_num)[ids] if isinstance(ids, slice) else ids
        kept = []
        for i in listed.tolist():
            if self.machine.owed(i) is None:
                kept.append(i)
            else:
                self._out += 1
                self._obey(self.machine.take_owed(i))
        return np.array(kept, np.int64)

    def gather(self, wait_num: int | None, window: float | None) -> None:
        """Sleeps until enough results are in. Bounded by the calls' own limits.

        Args:
            wait_num: How many; None for all that are pending.
            window: Seconds that the gather goes on for more than ``wait_num``; None for as long as it takes.
        """
        if window is None:
            wait_num = None
        end = None if window is None else time.monotonic() + window
        pool = self.pool
        if wait_num is None and self._whole and pool.background:
            self._await_whole()
        while True:
            if not pool.background:
                self._look_myself()
            with self.lock:
                self.collect()
                if self._failure is not None or self.closing:
                    break
                arrived, pending, unfinished = self._in, self._out - self._in, self._in_unfinished
                if not pending:
                    break
                talking = self._talk() if self._talking or pool.sending else ()
                unusable = int(np.count_nonzero(self.arena.flag == _IN)) if self._talking else 0
            left = None if end is None else end - time.monotonic()
            over = left is not None and left <= 0
            if enough(
                arrived=arrived, unfinished=unfinished, pending=pending, wait_num=wait_num, window_over=over
            ):
                break
            need = sleep_for(arrived=arrived, unfinished=unfinished, pending=pending, wait_num=wait_num)
            timeout = None if over or arrived < (wait_num or 0) else left
            pool.wait(need + unusable, self._until_next_look(timeout), talking)
        if self._failure is not None or self.closing:
            self.check()

    def _await_whole(self) -> None:
        """Sleeps until a batch of all envs is in, without a look at its parts: each look costs what many steps do."""
        if not self._troubled and self._failure is None and not self.closing and not self.pool.sending:
            self.pool.wait(self.env_num, None)

    def _talk(self) -> list[int]:
        return [*self._talking, *self.pool.sending]

    def _look_myself(self) -> None:
        """Where there is no keeper, the caller looks after deaths, timers and new workers."""
        if self.pool.news or self.machine.next_due() is not None:
            self.look_after(self.pool.poll(0), time.monotonic())

    def wait_until(self, condition: Callable[[], bool], limit: float | None) -> bool:
        """Sleeps until a condition over the states holds; False when ``limit`` seconds are over."""
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            if not self.pool.background:
                self._look_myself()
            with self.lock:
                self.collect()
                if self._failure is None and not self.closing and condition():
                    return True
                talking = self._talk()
                unusable = int(np.count_nonzero(self.arena.flag == _IN)) if self._arena is not None else 0
            self.check()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self.pool.wait(unusable + 1, self._until_next_look(left), talking)

    def take(self, order: Any = None) -> StepBatch:
        """Hands over what has arrived, each result once.

        Args:
            order: The envs in the order that the rows shall have, where all of them have arrived (an index
                array, or a slice for all); None for the order of their arrival.
        """
        with self.lock:
            batch = self._take_raw(order)
            self._after_take(batch)
        return batch

    def _take_raw(self, order: Any = None) -> StepBatch:
        arena = self.arena
        if self._whole_in and (order is None or isinstance(order, slice)):
            ids, where = self._every.copy(), slice(0, self.env_num)
            ended = not self._quiet
        else:
            if self._whole_in:
                self._arrived[:] = True
                self._order = [self._every]
            ids = self._every[order] if isinstance(order, slice) else order
            if ids is None:
                ids = (
                    self._order[0] if len(self._order) == 1 else np.concatenate([*self._order, self._nobody])
                )
            where = as_slice(ids, self.env_num)
            self._order.clear()
            self._arrived[ids] = False
            ended = True
        self._whole_in = False
        side = {i: self._side[i] for i in ids.tolist()} if self._has_side else None
        obs = self._reader.batch(where, copy=self.settings.copy_on_get, side=side)
        final: dict[int, Any] = {}
        infos: dict[int, Any] = {}
        own: dict[int, Any] = {}
        abnormal: dict[int, BaseException] = {}
        if self._final or self._held_obs:
            final = self._take_final(ids)
        if self._infos or self._own_rewards or self._abnormal:
            members = set(ids.tolist())
            infos, self._infos = _split(self._infos, members)
            own, self._own_rewards = _split(self._own_rewards, members)
            abnormal, self._abnormal = _split(self._abnormal, members)
        batch = StepBatch(
            ids=ids,
            obs=obs,
            row=self._reader.unbatch,
            reward=arena.reward[where].copy(),
            terminated=arena.terminated[where].copy(),
            truncated=arena.truncated[where].copy(),
            infos=infos,
            own_rewards=own,
            final_obs=final,
            abnormal=abnormal,
            ended=ended,
        )
        self._out -= len(ids)
        self._in -= len(ids)
        self._in_unfinished = 0 if not self._in else self._in_unfinished - len(ids)
        return batch

    def _take_final(self, ids: NDArray[np.int64]) -> dict[int, Any]:
        final = {}
        for i in self._final.intersection(ids.tolist()):
            final[i] = self._final_reader.row(i, side=self._final_side.pop(i, None))
            self._final.discard(i)
        for i in [i for i in self._held_obs if self._ended_in(i, ids)]:
            final[i] = self._held_obs.pop(i)
        return final

    def _ended_in(self, i: int, ids: NDArray[np.int64]) -> bool:
        return i not in self._held and bool((ids == i).any())

    def _after_take(self, batch: StepBatch) -> None:
        """Ends the episodes of what was handed over: resets go out, now that the rows are copied."""
        if not batch.infos and not batch.ended:
            return
        for i, info in batch.infos.items():
            said = self.policy.abnormal_is_error and isinstance(info, dict) and info.get("abnormal")
            if said and self.machine.state(i) == EnvState.RUN and i not in batch.final_obs:
                self._obey(self.machine.handle(e.SaidAbnormal(i), time.monotonic()))
        done = batch.terminated | batch.truncated
        if not done.any():
            return
        now = time.monotonic()
        orders: list[e.Instruction] = []
        for i in batch.ids[done].tolist():
            if i in batch.final_obs or self.machine.state(i) != EnvState.RUN:
                continue
            orders += self.machine.handle(e.EpisodeEnded(i, abnormal=i in batch.abnormal), now)
        self._obey(orders)

    def ask_resets(self, ids: Iterable[int], params: dict[int, Any]) -> None:
        """Resets envs; what they have pending is dropped.

        Args:
            ids: The envs.
            params: Params that are used from now on, where they change.
        """
        with self.lock:
            now = time.monotonic()
            for i, value in params.items():
                try:
                    self.pool.pack(value)
                except Exception as error:  # what params hold may raise anything when they are pickled
                    raise EnvManagerError(
                        f"the reset params for env {i} cannot be sent to its worker: {error}", env_id=i
                    ) from error
            for i in ids:
                if i in params:
                    self._params[i] = params[i]
                    self._params_sent[i] = False
                self._forget_results(i)
                if self.machine.op[i] != IDLE:
                    self._troubled.add(i)
                self._obey(self.machine.handle(e.ResetAsked(i), now))

    def _forget_results(self, i: int) -> None:
        self._whole = False
        if self.machine.op[i] == STEPPING:
            self._out -= 1
        if self._whole_in:
            self._whole_in = False
            self._arrived[:] = True
            self._order = [self._every]
        if self._arrived[i]:
            self._arrived[i] = False
            self._order = [kept for ids in self._order if len(kept := ids[ids != i])]
            self._in -= 1
            self._out -= 1
            self._in_unfinished = min(self._in_unfinished, self._in)
        for store in (self._infos, self._own_rewards, self._abnormal, self._final_side, self._ready_infos):
            store.pop(i, None)
        self._final.discard(i)
        if i in self._held:
            self._held.discard(i)
            self._held_ends.pop(i, None)
            self._held_obs.pop(i, None)
            self._out -= 1

    def observations(self, ids: NDArray[np.int64]) -> tuple[Any, Callable[[int], Any]]:
        """The last observations of envs that are in RUN: (batch, row accessor)."""
        with self.lock:
            side = {i: self._side[i] for i in ids.tolist()} if self._has_side else None
            batch = self._reader.batch(as_slice(ids, self.env_num), copy=self.settings.copy_on_get, side=side)
            return batch, self._reader.unbatch(batch)

    def ready_infos(self) -> dict[int, Any]:
        """The infos of the last resets, where they are not empty."""
        with self.lock:
            return dict(self._ready_infos)

    def collect_now(self) -> None:
        """Takes in what is there."""
        with self.lock:
            self.collect()

    def glance(self) -> None:
        """Takes in what is there, unless somebody is at it already; never waits."""
        if self.lock.acquire(blocking=False):
            try:
                self.collect()
            finally:
                self.lock.release()

    def has_result(self, env_id: int) -> bool:
        """Whether an env's result is here and not handed over."""
        return self._whole_in or bool(self._arrived[env_id])

    def ready(self) -> list[int]:
        """The envs that can be stepped."""
        machine = self.machine
        free = (machine.states == _RUN) & (machine.op == IDLE) & ~self._arrived
        if self._whole_in:
            return []
        found: list[int] = np.flatnonzero(free).tolist()
        return found

    def coming(self) -> bool:
        """Whether some env will be ready by itself: a reset is under way, or a worker comes up."""
        states = self.machine.states
        resetting = (states == _RESETTING) | (states == _INIT)
        return bool(resetting.any()) or self.machine.killing() or self.machine.next_due() is not None

    def spaces(self, env_id: int) -> tuple[Any, Any, Any]:
        """(observation, action, reward) space of an env. Unpickling them imports their library."""
        loaded: tuple[Any, Any, Any] = load_info(self.specs[env_id].spaces)
        return loaded

    def is_method(self, value: Any) -> bool:
        """Whether a fetched attribute stands for a method of the env."""
        return isinstance(value, MethodProxy) or (not self.pool.background and callable(value))

    @property
    def pending(self) -> int:
        """Steps that were sent and not handed over."""
        return self._out

    @property
    def in_hand(self) -> int:
        """Results that are here and not handed over."""
        return self._in

    # -- numbers ---------------------------------------------------------------------------------------

    def _keep_times(self, envs: range | None = None) -> None:
        """Times stand in rows that go with the arena; keep them for ``stats``."""
        if self._arena is not None and envs is None:
            self._old_times[:] = self.times()

    def times(self) -> NDArray[np.float64]:
        """Seconds per env in step and in reset, shape (2, env_num)."""
        arena = self._arena
        if arena is None:
            return self._old_times.copy()
        out = np.stack([arena.step_time, arena.reset_time])
        for w, envs in enumerate(self.pool.envs_of):
            out[0, envs.start : envs.stop] += float(arena.batch_time[w]) / len(envs)
        return out

    def stats(self) -> dict[int, dict[str, Any]]:
        """Counts and seconds per env."""
        with self.lock:
            times = self.times()
            lived = (self._ended_at or time.monotonic()) - self._born_at
            out = {}
            for i in range(self.env_num):
                retries, renewals, timeouts = self.machine.counts(i)
                out[i] = {
                    "steps": int(self._step_counts[i]) + self._whole_steps,
                    "episodes": int(self.machine.episodes[i]),
                    "step_time": float(times[0, i]),
                    "reset_time": float(times[1, i]),
                    "wait_time": max(0.0, lived - float(times[0, i]) - float(times[1, i])),
                    "retries": retries,
                    "renewals": renewals,
                    "timeouts": timeouts,
                }
            return out


def _split(store: dict[int, Any], members: set[int]) -> tuple[dict[int, Any], dict[int, Any]]:
    mine = {i: v for i, v in store.items() if i in members}
    return mine, {i: v for i, v in store.items() if i not in members}
