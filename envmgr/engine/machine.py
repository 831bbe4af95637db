"""The pure machine: what happened goes in, what is to be done comes out.

It owns the state of every env (see ``ledger``, whose class it extends by rules), knows no process, no clock
and no thread (``now`` is handed in), and so every rule about retries, renewals, budgets and episodes can be
tested with plain data. The uneventful majority never gets here one by one: ``states``, ``op`` and
``episodes`` are arrays that the engine moves for a whole batch through ``steps_sent`` and ``steps_done``.

The idea of events in and instructions out is that of dask's worker state machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from envmgr.engine import events as e
from envmgr.engine.ledger import IDLE, RESETTING, STEPPING, Ledger
from envmgr.engine.policy import Policy
from envmgr.engine.states import EnvState

__all__ = ["IDLE", "RESETTING", "STEPPING", "Machine", "Policy"]


class Machine(Ledger):
    """The rules between the states of all envs.

    Args:
        policy: The rules that the config sets.
        envs_of: The envs of each worker.
        on_move: Called with (env_id, old, new) at every change of a state.
    """

    def __init__(
        self,
        policy: Policy,
        envs_of: Sequence[range],
        on_move: Callable[[int, EnvState, EnvState], None] | None = None,
    ) -> None:
        super().__init__(policy, envs_of, on_move)
        self._closed = False
        self._rules: dict[type, Callable[[Any, float], list[e.Instruction]]] = {
            e.Opened: self._opened,
            e.WorkerCameUp: self._came_up,
            e.WorkerFailedToBuild: self._failed_to_build,
            e.WorkerEnded: self._worker_ended,
            e.ResetAsked: self._reset_asked,
            e.ResetDone: self._reset_done,
            e.ResetFailed: self._reset_failed,
            e.StepFailed: self._step_failed,
            e.EpisodeEnded: self._episode_ended,
            e.SaidAbnormal: self._said_abnormal,
            e.DeadlinePassed: self._deadline_passed,
            e.Tick: self._tick,
            e.Closed: self._close,
        }

    # -- what the engine asks --------------------------------------------------------------------------

    def handle(self, event: e.Event, now: float) -> list[e.Instruction]:
        """Takes one event at the time ``now`` (seconds) and says what is to be done."""
        if self._closed:
            return []
        env_id = getattr(event, "env_id", None)
        if env_id is not None:
            self._envs[env_id].story.append(type(event).__name__)
        return self._rules[type(event)](event, now)

    def take_owed(self, env_id: int) -> list[e.Instruction]:
        """The step that names an owed env: an error or an abnormal timestep, by policy."""
        env = self._envs[env_id]
        cause, env.owed = env.owed, None
        env.failure_count += 1
        return self._bad_step(env_id, cause)

    def reset_followed(self, env_id: int) -> None:
        """A worker reset an env right after its last step, unasked; the reset's own outcome is an event."""
        self._move(env_id, EnvState.RESET)
        self.op[env_id] = RESETTING

    def drop(self, env_id: int) -> list[e.Instruction]:
        """A reply came that nobody wants any more, since a reset was asked: now the reset goes out."""
        env = self._envs[env_id]
        env.again = False
        env.interrupted = None
        self.op[env_id] = IDLE
        return self._reset_now(env_id)

    # -- rules: coming up ------------------------------------------------------------------------------

    def _opened(self, _event: e.Opened, _now: float) -> list[e.Instruction]:
        for i in range(len(self._envs)):
            self._move(i, EnvState.INIT)
        return []

    def _came_up(self, event: e.WorkerCameUp, _now: float) -> list[e.Instruction]:
        out: list[e.Instruction] = []
        self.worker_up[event.worker] = True
        self._was_up[event.worker] = True
        for i in self._envs_of[event.worker]:
            self.fresh_at[i] = self.episodes[i]
            self._envs[i].renewing = False
            if self._envs[i].want_reset:
                out += self._reset_now(i)
        return out

    def _failed_to_build(self, event: e.WorkerFailedToBuild, now: float) -> list[e.Instruction]:
        self.worker_up[event.worker] = False
        if not self._was_up[event.worker]:
            return [e.Fail("init", event.env_id, event.cause)]
        envs = sorted(self._envs_of[event.worker], key=lambda i: i != event.env_id)  # blamed before siblings
        for i in envs:
            if self._envs[i].want_reset:
                self._envs[i].failure_count += 1
                if self._try_again(i, event.cause, "init"):
                    return [self._reset_given_up(i)]
        for i in envs:
            if self._over_budget(i, now, event.cause, "init"):
                return [self._budget_used_up(i)]
        return self._renew_later(event.worker, now)

    def _renew_later(self, worker: int, now: float) -> list[e.Instruction]:
        if not self._renew_due[worker]:
            self._renew_due[worker] = True
            self._at(now + self._policy.retry_wait, "renew", worker)
        return []

    # -- rules: resets ---------------------------------------------------------------------------------

    def _reset_asked(self, event: e.ResetAsked, _now: float) -> list[e.Instruction]:
        i = event.env_id
        env = self._envs[i]
        env.owed = None
        env.attempts, env.first_cause = 0, None
        if self.op[i] == STEPPING and env.timer:  # it waits for its retry: nothing is under way
            self.op[i] = IDLE
        if self.op[i] != IDLE:
            env.again = True
            if self.state(i) not in (EnvState.RESET, EnvState.INIT):
                self._move(i, EnvState.RESET)
            return []
        return self._reset_now(i)

    def _reset_now(self, i: int) -> list[e.Instruction]:
        env = self._envs[i]
        env.owed, env.timer, env.step_attempts = None, 0, 0
        worker = self._worker_of[i]
        if self._is_worn(i) and self.worker_up[worker] and not self._dying[worker]:
            self._dying[worker] = self._retiring[worker] = env.want_reset = True
            self._move(i, EnvState.RESET)
            return [e.Retire(worker)]
        if not self.worker_up[worker] or self._dying[worker]:
            env.want_reset = True
            if self._retiring[worker]:
                return []
            if self.state(i) in (EnvState.RUN, EnvState.DONE, EnvState.NEED_RESET, EnvState.RESET):
                self._move(i, EnvState.ERROR)
            self._move(i, EnvState.INIT)
            return []
        env.want_reset = False
        self._move(i, EnvState.RESET)
        self.op[i] = RESETTING
        return [e.SendReset(i)]

    def _reset_done(self, event: e.ResetDone, _now: float) -> list[e.Instruction]:
        i = event.env_id
        env = self._envs[i]
        self.op[i] = IDLE
        env.attempts, env.first_cause, env.interrupted = 0, None, None
        if env.again:
            env.again = False
            return self._reset_now(i)
        self._move(i, EnvState.RUN)
        return []

    def _try_again(self, i: int, cause: Any, at: str = "") -> bool:
        """Counts a failed attempt; whether that was the last one. ``at``: see ``Fail``."""
        env = self._envs[i]
        env.attempts += 1
        env.interrupted = None
        if env.first_cause is None:
            env.first_cause, env.first_at = cause, at
        if env.attempts >= self._policy.max_retry:
            return True
        env.retry_count += 1
        return False

    def _reset_given_up(self, i: int) -> e.Fail:
        env = self._envs[i]
        return e.Fail("reset", i, env.first_cause, env.attempts, at=env.first_at)

    def _reset_failed(self, event: e.ResetFailed, now: float) -> list[e.Instruction]:
        i = event.env_id
        self.op[i] = IDLE
        env = self._envs[i]
        env.failure_count += 1
        if env.again:
            env.again, env.attempts, env.first_cause, env.interrupted = False, 0, None, None
            return self._reset_now(i)
        self._move(i, EnvState.ERROR)
        if event.final:
            return [e.Fail("reset", i, event.cause)]
        env.reset_cause = event.cause
        if self._try_again(i, event.cause):
            return [self._reset_given_up(i)]
        self._at(now + self._policy.retry_wait, "kill" if self._policy.renew else "reset", i)
        return []

    # -- rules: steps ----------------------------------------------------------------------------------

    def _step_failed(self, event: e.StepFailed, now: float) -> list[e.Instruction]:
        i = event.env_id
        env = self._envs[i]
        self.op[i] = IDLE
        env.interrupted = None
        env.failure_count += 1
        if env.again:
            return self.drop(i)
        if self._policy.retry_step and not event.final:
            env.step_attempts += 1
            if env.step_attempts == 1:
                env.step_cause = event.cause
            if env.step_attempts < self._policy.max_retry:
                env.retry_count += 1
                self.op[i] = STEPPING
                self._at(now + self._policy.retry_wait, "step", i)
                return []
            return self._bad_step(i, env.step_cause, env.step_attempts)
        return self._bad_step(i, event.cause)

    def _bad_step(self, i: int, cause: Any, attempts: int = 1) -> list[e.Instruction]:
        """A step that will not be done: an error or an abnormal timestep, by policy.

        Siblings of an env whose worker was killed get here too, with either policy: their step is lost with
        their episode, and only who has asked for abnormal timesteps is given one in its place.
        """
        env = self._envs[i]
        env.step_attempts, env.step_cause = 0, None
        if not self._policy.reset_on_error:
            self._move(i, EnvState.ERROR)
            return [e.Fail("step", i, cause, attempts, close=self._policy.close_on_error)]
        env.streak += 1
        if env.streak_cause is None:
            env.streak_cause = cause
        if env.streak > self._policy.max_retry:
            self._move(i, EnvState.ERROR)
            return [e.Fail("streak", i, env.streak_cause, env.streak)]
        return [e.GiveAbnormal(i, cause)]

    def _episode_ended(self, event: e.EpisodeEnded, _now: float) -> list[e.Instruction]:
        i = event.env_id
        if event.abnormal:
            return self._reset_now(i)
        self.episodes[i] += 1
        if self.episodes[i] >= self._policy.episode_num:
            self._move(i, EnvState.DONE)
            return []
        if not self._policy.auto_reset:
            self._move(i, EnvState.NEED_RESET)
            return []
        return self._reset_now(i)

    def _said_abnormal(self, event: e.SaidAbnormal, _now: float) -> list[e.Instruction]:
        self._move(event.env_id, EnvState.ERROR)
        return []

    # -- rules: time and death -------------------------------------------------------------------------

    def _deadline_passed(self, event: e.DeadlinePassed, _now: float) -> list[e.Instruction]:
        i = event.env_id
        env = self._envs[i]
        if self.op[i] == IDLE:
            return []
        worker = self._worker_of[i]
        if self._dying[worker]:  # its end is under way, and is what will be told
            return []
        if env.interrupted is None:
            env.interrupted = event.cause
            env.timeout_count += 1
            return [e.Interrupt(i)]
        self._dying[worker] = True
        return [e.Kill(worker, i)]

    def _worker_ended(self, event: e.WorkerEnded, now: float) -> list[e.Instruction]:
        w = event.worker
        was_up, self.worker_up[w] = self.worker_up[w], False
        self._dying[w], retired = False, self._retiring[w]
        self._retiring[w] = False
        if not self._was_up[w]:
            first = self._envs_of[w][0]
            return [e.Fail("init", first, event.cause)]
        out: list[e.Instruction] = []
        attempt_failed = not was_up
        for i in self._culprit_first(w, event.running):
            env = self._envs[i]
            cause, at = self._why(i, event.cause, was_up)
            op, self.op[i] = self.op[i], IDLE
            env.interrupted = None
            if op == STEPPING:
                env.timer = 0
            env.failure_count += int(op != IDLE or (env.want_reset and not was_up))
            env.renewal_count += 1
            if env.again:
                env.again = False
                out += self._reset_now(i)
            elif op == STEPPING:
                out += self._bad_step(i, cause)
            elif retired:  # its reset goes out when the next worker is up
                continue
            elif env.want_reset and was_up:  # it was asked for while the worker was being killed
                out += self._reset_now(i)
            elif op == RESETTING or env.want_reset:
                attempt_failed = True
                if self.state(i) == EnvState.RESET:
                    self._move(i, EnvState.ERROR)
                if self._try_again(i, cause, at if at == "init" else ""):
                    return [*out, self._reset_given_up(i)]
                out += self._reset_now(i)
            elif env.renewing or self._waits_for_renewal(i):
                out += self._reset_now(i)
            elif self.state(i) == EnvState.RUN:
                env.owed = cause
            if self._over_budget(i, now, cause, at):
                return [*out, self._budget_used_up(i)]
        if any(isinstance(order, e.Fail) and order.close for order in out):
            return out
        if attempt_failed:
            return out + self._renew_later(w, now)
        return [*out, e.Renew(w)]

    def _culprit_first(self, worker: int, running: int | None) -> list[int]:
        """A worker's envs, before all others the one that it ended for, as far as anybody knows."""

        def rank(i: int) -> tuple[bool, bool, bool]:
            env = self._envs[i]
            return not env.renewing, env.interrupted is None, i != running

        return sorted(self._envs_of[worker], key=rank)

    def _why(self, i: int, cause: Any, was_up: bool) -> tuple[Any, str]:
        """Why an env's worker had to be renewed, and what the env was at: see ``Fail``.

        A kill that the machine ordered is no cause: what it was ordered for is.
        """
        env = self._envs[i]
        at = {IDLE: "idle", STEPPING: "step", RESETTING: "reset"}[int(self.op[i])]
        if env.interrupted is not None:
            return env.interrupted, at
        if not was_up:
            return cause, "init"
        if env.renewing or self._waits_for_renewal(i):
            return env.reset_cause, "reset"
        return cause, at

    def _waits_for_renewal(self, i: int) -> bool:
        """Whether an env's reset has failed, and is tried again on a new worker in a while."""
        return self._policy.renew and self._envs[i].timer != 0 and self.state(i) == EnvState.ERROR

    def _over_budget(self, i: int, now: float, cause: Any, at: str) -> bool:
        times = self._envs[i].renewals
        times.append((now, cause, at))
        while times and times[0][0] < now - self._policy.renewal_window:
            times.popleft()
        return len(times) > self._policy.max_renewals

    def _budget_used_up(self, i: int) -> e.Fail:
        times = self._envs[i].renewals
        _, cause, at = times[0]
        return e.Fail("budget", i, cause, len(times), at=at)

    def _tick(self, _event: e.Tick, now: float) -> list[e.Instruction]:
        out: list[e.Instruction] = []
        while self._timers and self._timers[0][0] <= now:
            _, number, what, index = heapq.heappop(self._timers)
            if what != "renew":
                if self._envs[index].timer != number:
                    continue
                self._envs[index].timer = 0
            if what == "renew":
                self._renew_due[index] = False
                if not self.worker_up[index]:
                    out.append(e.Renew(index))
            elif what == "step":
                if self.op[index] == STEPPING and self.worker_up[self._worker_of[index]]:
                    out.append(e.SendStepAgain(index))
            elif self.state(index) == EnvState.ERROR and self.op[index] == IDLE:
                worker = self._worker_of[index]
                if what == "kill" and self.worker_up[worker]:
                    if not self._dying[worker]:
                        out.append(e.Kill(worker, index, renewal=True))
                    self._envs[index].renewing = self._dying[worker] = True
                else:
                    out += self._reset_now(index)
        return out

    def _close(self, _event: e.Closed, _now: float) -> list[e.Instruction]:
        for i in range(len(self._envs)):
            self._move(i, EnvState.VOID)
        self.op[:] = IDLE
        self._timers.clear()
        self._closed = True
        return []
