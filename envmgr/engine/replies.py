"""What comes back: flags into results and states.

A batch in which every env has nothing to say but its row is taken in by a comparison of bytes. Where only
some rows say more, those are looked at one by one. Replies that nobody waits for are dropped by their
number. Everything here is called with the lock.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.engine import events as e
from envmgr.engine.blame import Overrun, error_for
from envmgr.engine.core import Core
from envmgr.engine.doubts import Doubts
from envmgr.engine.inbox import Inbox
from envmgr.engine.machine import RESETTING, STEPPING
from envmgr.engine.outbox import Outbox
from envmgr.engine.results import InfoReader
from envmgr.engine.states import EnvState
from envmgr.infos import as_dict, says_something
from envmgr.log import log as _log
from envmgr.memory.arena import Arena, fence, order_stores
from envmgr.memory.sides import own_copy
from envmgr.workers import contract as c

_Ids = NDArray[np.int64]

# Plain ints: looking a member up in its enum costs more than the array operation that it is for.
_IDLE, _PENDING, _IN, _RUN = int(c.Flag.IDLE), int(c.Flag.PENDING), int(c.Flag.IN), int(EnvState.RUN)
_INFO, _MESSAGE, _FAILED = int(c.Status.INFO), int(c.Status.MESSAGE), int(c.Status.FAILED)
_FINAL, _RESET_FAILED = int(c.Status.FINAL), int(c.Status.RESET_FAILED)
_TAKEN_WHOLE = bytes([0, _INFO, _FINAL, _INFO | _FINAL])  # words of good steps that rows can hold
_STRANGE = 0xFF & ~(_INFO | _FINAL)  # a reply with other bits is looked at by itself


class Replies:
    """Takes replies in.

    Args:
        core: What the parts share.
        inbox: Where results go.
        outbox: For what belongs to the request: its action, its seed.

    Attributes:
        talking: Workers of which a message is under way that a reply waits for.
    """

    def __init__(self, core: Core, inbox: Inbox, outbox: Outbox) -> None:
        self._core = core
        self._inbox = inbox
        self._outbox = outbox
        self._pool, self._machine = core.pool, core.machine
        self._doubts = Doubts(core)
        self._nothing = bytes(core.env_num)
        self._none = np.zeros(0, np.int64)
        self._all_in = bytes([_IN]) * core.env_num
        self._op = memoryview(core.machine.op)  # type: ignore[arg-type]  # numpy has no stub for __buffer__
        self._episodes = memoryview(core.machine.episodes)  # type: ignore[arg-type]
        self._renews = core.policy.renew_every is not None
        self._infos = InfoReader()
        self.talking: set[int] = set()

    def lay(self, arena: Arena) -> None:
        """Says where the rows are."""
        self._flag, self._status = arena.bytes_of("flag"), arena.bytes_of("status")
        self._seq, self._reply_seq = arena.bytes_of("seq"), arena.bytes_of("reply_seq")
        self._terminated, self._truncated = arena.bytes_of("terminated"), arena.bytes_of("truncated")
        self._verdict = arena.verdict()
        self._plain = self._all_in + bytes(len(self._verdict) - len(self._all_in))

    def waiting(self) -> int:
        """How many replies are in the rows and not taken in."""
        return self._flag.tobytes().count(_IN)

    # -- batches ---------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Takes in the replies that are there."""
        core = self._core
        if core.closing or not core.has_rows:  # what is broken off by close has not failed
            return
        if self._inbox.whole_due and self._collect_whole():
            return
        arena = self._core.arena
        found = (arena.flag == _IN).nonzero()[0]
        if not len(found):
            return
        self._inbox.whole_due = False  # it comes in parts, or says more than its rows
        order_stores()
        count, op = np.count_nonzero, self._machine.op
        stale = arena.reply_seq[found] != arena.seq[found]
        if count(stale):
            self._put_aside(arena, found[stale])
            found = found[~stale]
        plain, odd, firsts = found, self._none, 0
        status = arena.status[found]
        if self._renews or self._core.troubled or count(status) or count(op[found] != STEPPING):
            strange = (status & _STRANGE != 0) | (op[found] != STEPPING)
            if self._renews:  # an end may be followed by a fresh worker
                strange |= arena.terminated[found] | arena.truncated[found]
            if self._core.troubled:
                strange |= [i in self._core.troubled for i in found.tolist()]
            plain, odd = found[~strange], found[strange]
            firsts = self._take_words(plain[arena.status[plain] != 0])
        if len(plain):
            arena.flag[plain] = _IDLE
            self._machine.steps_done(plain)
            self._inbox.arrive(plain, len(plain) - self._ended_among(plain) + firsts)
        for i in odd.tolist():
            self._collect_one(i)

    def _put_aside(self, arena: Arena, stale: _Ids) -> None:
        """Drops replies to older requests; the answer to the last one may be coming in meanwhile."""
        arena.flag[stale] = _PENDING
        fence()
        came = stale[arena.reply_seq[stale] == arena.seq[stale]]
        arena.flag[came] = _IN

    def _ended_among(self, ids: Any) -> int:
        if self._terminated.tobytes() == self._nothing and self._truncated.tobytes() == self._nothing:
            return 0
        arena = self._core.arena
        return int(np.count_nonzero(arena.terminated[ids] | arena.truncated[ids]))

    def _collect_whole(self) -> bool:
        """The batch that went to all envs, if it is all here and nothing went wrong in it."""
        nothing = self._nothing
        if (
            self._verdict.tobytes() == self._plain
            and self._reply_seq.tobytes() == self._seq.tobytes()
            and not self._core.troubled
        ):
            self._flag[:] = self._op[:] = nothing
            self._inbox.arrive_whole(self._core.env_num)
            return True
        if (
            self._core.troubled
            or self._flag.tobytes() != self._all_in
            or self._reply_seq.tobytes() != self._seq.tobytes()
        ):
            return False
        status = self._status.tobytes()
        firsts = 0
        if status != nothing:
            if status.translate(None, _TAKEN_WHOLE):
                return False
            firsts = self._take_words(self._core.arena.status.nonzero()[0])
        self._flag[:] = self._op[:] = nothing
        self._inbox.arrive_whole(self._core.env_num - self._ended() + firsts)
        return True

    def _take_words(self, ids: _Ids) -> int:
        """What good steps have to say beside their rows, infos and ends; how many episodes have begun."""
        firsts, status = 0, self._status
        for i in ids.tolist():
            if status[i] & _INFO and says_something(info := self._info_of(i, _INFO, None)):
                self._inbox.infos[i] = info
            if status[i] & _FINAL:
                firsts += 1
                self._episode_followed(i)
        return firsts

    def _ended(self) -> int:
        """How many rows end an episode."""
        terminated = int.from_bytes(self._terminated.tobytes(), "little")
        return (terminated | int.from_bytes(self._truncated.tobytes(), "little")).bit_count()

    def _episode_followed(self, i: int) -> None:
        """An episode ended and its env was reset at once: its last observation is in the final rows."""
        self._inbox.final.add(i)
        self._episodes[i] += 1
        self._outbox.load_seed(i)

    # -- one reply -------------------------------------------------------------------------------------

    def _collect_one(self, i: int) -> None:
        core, machine = self._core, self._machine
        arena = core.arena
        status = int(arena.status[i])
        worker = int(core.worker_of[i])
        extra: c.Extra | None = None
        if status & _MESSAGE:
            extra = self._pool.extra(worker, i, int(arena.seq[i]))
            if extra is None:
                self.talking.add(worker)
                return
            self.talking.discard(worker)
            core.warnings += extra.warnings
            if extra.lost:  # the failure in it is all there is of this reply, whatever its row holds
                if machine.op[i] == STEPPING and not machine.wants_again(i):
                    self._doubts.disown(i, status)
                status = _FAILED
        arena.flag[i] = _IDLE
        core.deadlines.ended(i)
        if machine.wants_again(i):
            core.obey(machine.drop(i) if machine.op[i] == STEPPING else self._reset_reply(i, status, extra))
        elif machine.op[i] == RESETTING:
            core.obey(self._reset_reply(i, status, extra))
        elif machine.op[i] == STEPPING:
            if status & _FAILED:
                self._step_failed(i, *self._cause(i, extra, "step"))
            elif self._doubts.swallowed(i):
                self._doubts.disown(i, status)
                self._step_failed(i, Overrun("step", core.settings.step_timeout or 0.0), True)
            else:
                self._step_reply(i, status, extra)

    def _step_failed(self, i: int, cause: Any, final: bool) -> None:
        core, machine = self._core, self._machine
        core.troubled.add(i)
        orders = machine.handle(e.StepFailed(i, cause, final), time.monotonic())
        if attempt := machine.attempts(i)[0]:
            error = error_for(i, cause, "step", self._outbox.action_of(i))
            self.log_attempt(i, "step", attempt, error)
        core.obey(orders)

    def collect_resets(self) -> None:
        """Failed resets are tried again while the caller does something else."""
        arena = self._core.arena
        for i in np.flatnonzero((arena.flag == _IN) & (self._machine.op == RESETTING)).tolist():
            if arena.reply_seq[i] == arena.seq[i]:
                self._collect_one(i)

    def _cause(self, i: int, extra: c.Extra | None, op: str) -> tuple[Any, bool]:
        """(why, whether it is not to be tried again)."""
        failure = extra.failure if extra is not None else None
        if failure is None:
            return "its worker gave no reason", False
        if failure.interrupted:
            self._machine.overran(i)
            settings = self._core.settings
            limit = settings.step_timeout if op == "step" else settings.reset_timeout
            return Overrun(op, limit or 0.0, failure.traceback), op == "step"
        return failure, failure.mismatch

    def _info_of(self, i: int, status: int, extra: c.Extra | None) -> Any:
        arena = self._core.arena
        if status & _INFO:
            return self._infos.read(arena.info[i, : int(arena.info_len[i])], i, self._core.warnings)
        if extra is not None and extra.info is not None:
            return self._infos.read(extra.info, i, self._core.warnings)
        return None

    def _reset_reply(self, i: int, status: int, extra: c.Extra | None) -> list[e.Instruction]:
        core, inbox = self._core, self._inbox
        if status & _FAILED:
            cause, final = self._cause(i, extra, "reset")
            core.seeds.give_back(i)
            return self._reset_failed(i, cause, final)
        if extra is not None and extra.side is not None:
            inbox.take_side(i, extra.side)
        info = self._info_of(i, status, extra)
        if says_something(info):
            inbox.ready_infos[i] = info
        else:
            inbox.ready_infos.pop(i, None)
        orders = self._machine.handle(e.ResetDone(i), time.monotonic())
        if i in inbox.held:  # the array face waits for the first observation of the new episode
            ends = inbox.release(i)
            if self._machine.state(i) == _RUN:
                if says_something(info):
                    inbox.infos[i] = {**as_dict(inbox.infos.get(i)), "reset_info": own_copy(info)}
                core.arena.terminated[i], core.arena.truncated[i] = ends
                inbox.arrive(np.array([i], np.int64), unfinished=1)
        return orders

    def _step_reply(self, i: int, status: int, extra: c.Extra | None) -> None:
        core, inbox = self._core, self._inbox
        arena = core.arena
        self._machine.good_step(i)
        core.troubled.discard(i)
        self._machine.steps_done(i)
        info = self._info_of(i, status, extra)
        if says_something(info):
            inbox.infos[i] = info
        if extra is not None:
            if extra.side is not None:
                inbox.take_side(i, extra.side)
            if extra.final_side is not None:
                inbox.take_final_side(i, extra.final_side)
            if extra.has_reward:
                inbox.own_rewards[i] = extra.reward
        done = bool(arena.terminated[i] or arena.truncated[i])
        if status & _RESET_FAILED:
            self._reset_after_final_failed(i, extra)
            return
        if status & _FINAL:
            self._episode_followed(i)
            done = False
        if done and self._outbox.auto[i] and self._machine.renewal_follows(i):
            # The array face hands it over with the first observation of the fresh worker.
            inbox.hold(i, (bool(arena.terminated[i]), bool(arena.truncated[i])), inbox.observation(i))
            core.obey(self._machine.handle(e.EpisodeEnded(i), time.monotonic()))
            return
        inbox.arrive(np.array([i], np.int64), unfinished=0 if done else 1)

    def _reset_after_final_failed(self, i: int, extra: c.Extra | None) -> None:
        """The step was good, the reset right after it was not: the row waits until one succeeds."""
        core, arena = self._core, self._core.arena
        self._inbox.final.add(i)
        self._machine.episodes[i] += 1
        self._inbox.hold(i, (bool(arena.terminated[i]), bool(arena.truncated[i])))
        self._machine.reset_followed(i)
        cause, final = self._cause(i, extra, "reset")
        core.seeds.give_back(i)
        core.obey(self._reset_failed(i, cause, final))

    def _reset_failed(self, i: int, cause: Any, final: bool) -> list[e.Instruction]:
        orders = self._machine.handle(e.ResetFailed(i, cause, final), time.monotonic())
        attempt = self._machine.attempts(i)[1]  # none where another reset was asked for meanwhile
        if attempt and not any(isinstance(order, e.Fail) for order in orders):
            self.log_attempt(i, "reset", attempt, error_for(i, cause, "reset"))
        return orders

    def log_attempt(self, i: int, op: str, attempt: int, error: Exception) -> None:
        """What is tried again is an error to nobody, so the log is where it is told, with its traceback."""
        most = self._core.policy.max_retry
        _log.warning("env %d: %s, attempt %d of %d, is tried again: %s", i, op, attempt, most, error)

    # -- what stands for a reply that never came ---------------------------------------------------------

    def give_abnormal(self, i: int, cause: Any) -> None:
        """An abnormal timestep stands in the rows of an env whose step failed."""
        core, inbox = self._core, self._inbox
        arena = core.arena
        inbox.abnormal[i] = error_for(i, cause, "step", self._outbox.action_of(i))
        _log.warning("env %d is reset, because its step failed: %s", i, inbox.abnormal[i])
        arena.reward[i] = 0
        arena.terminated[i] = False
        arena.truncated[i] = True
        if self._doubts.taken_back(i):
            for rows in arena.obs:
                rows[i] = 0
        if self._outbox.auto[i]:  # the array face hands it over with the first observation after the reset
            inbox.hold(i, (False, True), inbox.observation(i))
            core.obey(self._machine.handle(e.EpisodeEnded(i, abnormal=True), time.monotonic()))
        else:
            inbox.arrive(np.array([i], np.int64), unfinished=0)
        self._pool.wake()
