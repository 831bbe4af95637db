"""The work on rows: take commands, call envs, announce what they gave.

The same object works in a worker process and in the caller (``base``); it knows rows, envs and two
functions (``post`` a message, ``ring`` the parent) and nothing of processes. What runs per env-step is not
here but in ``loop`` and ``solo``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from numpy.typing import NDArray

from envmgr.envs.adapt import Adapted
from envmgr.infos import says_something
from envmgr.memory.arena import Arena, fence, order_loads, order_stores
from envmgr.memory.rows import RowReader, RowWriter
from envmgr.workers.contract import WITH_MESSAGE, Cmd, Extra, Failure, Status, Unreadable
from envmgr.workers.failures import capture
from envmgr.workers.interrupt import Interrupter
from envmgr.workers.loop import step_loop
from envmgr.workers.outcome import OutcomeWriter
from envmgr.workers.outside import from_a_signal
from envmgr.workers.resets import Resets
from envmgr.workers.stray import end_if_stray
from envmgr.workers.views import Views

_STEP, _AUTO, _RESET = int(Cmd.STEP), int(Cmd.STEP_AUTORESET), int(Cmd.RESET)
_FAILED, _MESSAGE = int(Status.FAILED), int(Status.MESSAGE)


def _stay(_: BaseException | None = None) -> None:
    """This process is nobody's worker."""


class Stepper:
    """Serves the rows of one worker's envs.

    Args:
        arena: The rows.
        worker: Index of this worker.
        envs: The env ids that it hosts, neighbours.
        adapted: The envs, in that order.
        post: Sends what did not fit into rows: ``post(env_id, seq, extra)``.
        ring: Wakes the parent; ``ring(alarm)``, where an alarm must not wait for the caller.
        fetch: Waits for one more message and takes it, where arguments come as messages.
        each: Whether each result is announced as soon as it is there (async), or a batch at once.
        info_errors: ``'drop'`` or ``'raise'``: what to do with an info that does not pickle.
        isolate_rng: Whether the global generators' states are kept apart per env.
        pressed: Where the caller is this very process: takes a Ctrl-C that has hit an env's call,
            and what the handler of another signal raised there.
    """

    def __init__(
        self,
        arena: Arena,
        worker: int,
        envs: range,
        adapted: Sequence[Adapted],
        post: Callable[[int, int, Extra], None],
        ring: Callable[[bool], None],
        *,
        interrupter: Interrupter,
        fetch: Callable[[], None] | None = None,
        each: bool = False,
        info_errors: str = "drop",
        isolate_rng: bool | None = False,
        pressed: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.arena = arena
        self.worker = worker
        self.envs = envs
        self._lo, self._hi = envs.start, envs.stop
        self._adapted = dict(zip(envs, adapted, strict=True))
        self._post = post
        self._ring = ring
        self._fetch = fetch
        self._pressed = pressed
        # Not where envs live in the caller's process: that one may be a helper of somebody else's env.
        self.leave = end_if_stray if pressed is None else _stay
        self._arguments: dict[int, tuple[int, Any]] = {}

        plan = arena.plan
        writer = RowWriter(plan.obs, arena.obs, dirty=arena.bytes_of("dirty"))
        self.puts = [writer.bind(i) for i in envs]
        self.lone_rows = writer.lone_rows(envs)
        self.has_side = plan.obs.has_side
        self._reader = RowReader(plan.action, arena.action)
        self.views = Views(arena, worker, envs)
        running, phase = self.views.my_running, self.views.my_phase
        self._resets = Resets(arena, self._adapted, writer, running, phase, isolate_rng, self.leave)
        self._outcome = OutcomeWriter(arena, writer, self._resets.reset, info_errors, self.failure_of)

        self.write_step, self.rescue = self._outcome.write_step, self._outcome.rescue
        self.step_failure = self._outcome.step_failure

        count = len(envs)
        self._all_in = b"\x02" * count
        self._nothing = bytes(count)
        self._all_step = bytes([_STEP]) * count
        self._all_auto = bytes([_AUTO]) * count
        self.fns: list[Any] = [None] * count
        for env_id in envs:
            self._adapted[env_id].on_settled = functools.partial(self._bind, env_id)
            self._bind(env_id)
        interrupter.bind(arena, worker)
        running[0] = -1
        self.action_cell: NDArray[Any] | None = None  # of a lone env whose action is a number
        self.actions = self._make_actions()
        self._run = step_loop(self, each)

    # -- what the owner of this object calls -------------------------------------------------------

    def argument(self, env_id: int, seq: int, value: Any) -> None:
        """Takes the argument of a command that is about to be seen."""
        self._arguments[env_id] = (seq, value)

    def work(self) -> None:
        """Serves every command that is in the rows, until there is none."""
        cmd = self.views.my_cmd
        while True:
            cmds = cmd.tobytes()
            if cmds == self._nothing:
                return
            order_loads()  # commands were seen, now what they are about
            if cmds == self._all_step:
                cmd[:] = self._nothing
                self._run(self.envs, False)
            elif cmds == self._all_auto:
                cmd[:] = self._nothing
                self._run(self.envs, True)
            else:
                self._work_mixed(cmds)

    def _work_mixed(self, cmds: bytes) -> None:
        lo, cmd = self._lo, self.views.my_cmd
        steps: list[int] = []
        autos: list[int] = []
        others: list[int] = []
        for k, command in enumerate(cmds):
            if command:
                cmd[k] = 0
                (autos if command == _AUTO else steps if command == _STEP else others).append(k)
        for auto, found in ((False, steps), (True, autos)):
            if found:
                self._run([lo + k for k in found], auto)
        resets = []
        for k in others:
            i, command = lo + k, cmds[k]
            if command & ~WITH_MESSAGE == _RESET:
                resets.append((i, bool(command & WITH_MESSAGE)))
            elif isinstance(action := self._take(i), Unreadable):
                self.conclude(i, False, self.failure_of(action.error, "step"), time.monotonic())
            else:
                self._run([i], command & ~WITH_MESSAGE == _AUTO, [action])
        for i, with_message in resets:
            self._reset(i, self._take(i) if with_message else None)

    def _take(self, env_id: int) -> Any:
        """The argument of a command; its message may still be under way."""
        while True:
            seq, value = self._arguments.pop(env_id, (-1, None))
            if seq == self.views.seq[env_id]:
                return value
            if self._fetch is None:
                return None
            self._fetch()

    def _bind(self, env_id: int) -> None:
        """Fetches the quickest callable for a step; an adapter may know a better one after a first call."""
        function = self._adapted[env_id].step_fn()
        rng = self._resets.rngs.get(env_id)
        self.fns[env_id - self._lo] = function if rng is None else rng.wrap(function)

    # -- steps ----------------------------------------------------------------------------------------

    def _make_actions(self) -> Callable[[Sequence[int]], Iterable[Any]]:
        """Private copies: the env may keep its action or write into it."""
        reader, lo, hi, envs, plan = self._reader, self._lo, self._hi, self.envs, self.arena.plan.action
        lone = plan.tree == 0 and not plan.has_side
        if not lone or (plan.leaves[0].kind != "discrete" and not plan.leaves[0].shape):
            return lambda ids: [reader.row(i) for i in ids]
        rows = self.arena.action[0]
        mine = rows[lo:hi]
        if plan.leaves[0].shape or len(envs) > 1:

            def actions(ids: Sequence[int]) -> Iterable[Any]:
                copied: Iterable[Any] = mine.copy() if ids is envs else rows[ids]
                return copied

            return actions
        self.action_cell = mine
        return lambda _ids: (mine[0],)

    def conclude(self, i: int, auto: bool, outcome: Any, before: float) -> None:
        """The second half of a step that is no plain one: writes its outcome and announces it.

        Args:
            i: The env.
            auto: Whether it is reset at once when its episode has ended.
            outcome: The five values that it returned, or the Failure of what it raised.
            before: When it was called.
        """
        extra: Extra | None
        try:
            if isinstance(outcome, Failure):
                bits, extra = _FAILED | _MESSAGE, Extra(failure=outcome)
            else:
                bits, extra = self.write_step(i, auto, *outcome)
        except BaseException as error:  # rubbish of every kind: wrong shapes, infos, flags
            bits, extra = _FAILED | _MESSAGE, Extra(failure=self.failure_of(error, "step"))
        self.views.status[i] = bits
        self.views.step_time[i] += time.monotonic() - before
        self.publish([i], [] if extra is None else [(i, extra)])
        self.views.my_running[0] = -1

    def publish(self, ids: Sequence[int], posts: list[tuple[int, Extra]]) -> None:
        """Announces a batch. Messages follow it: the parent reads a long one only when it knows of it.

        Who dies before its message is out has announced nothing, so rows are dirty until then; that of a step
        which has failed stays so if anything was stored in it.
        """
        views = self.views
        if ids is self.envs:
            views.my_reply_seq[:] = views.my_seq
            order_stores()
            views.my_flag[:] = self._all_in
        else:
            for i in ids:
                views.reply_seq[i] = views.seq[i]
            order_stores()
            for i in ids:
                views.flag[i] = 2
        if posts:
            self._tell(posts)
            for i in ids:
                if not views.status[i] & _FAILED:
                    views.dirty[i] = 0
            return
        if ids is self.envs:
            views.my_dirty[:] = self._nothing
        else:
            for i in ids:
                views.dirty[i] = 0
        self.look(False)

    def announce(self, i: int, posts: list[tuple[int, Extra]], now: bool) -> None:
        """Announces one of several results; whether to ring is looked at ``now``, or with a later one."""
        views = self.views
        views.reply_seq[i] = views.seq[i]
        order_stores()
        views.flag[i] = 2
        if posts:
            self._tell(posts)
            if not views.status[i] & _FAILED:
                views.dirty[i] = 0
            return
        views.dirty[i] = 0
        if now:
            self.look(False)

    def _tell(self, posts: list[tuple[int, Extra]]) -> None:
        self.look(True)
        self._send(posts)

    def _send(self, posts: list[tuple[int, Extra]]) -> None:
        running = self.views.my_running
        for i, extra in posts:
            running[0] = -2 - i  # what is pickled is the user's own
            self._post(i, self.views.seq[i], extra)
        running[0] = -1
        posts.clear()

    def look(self, messages: bool) -> None:
        """Rings if the parent sleeps for so many, or for a message."""
        fence()
        need = self.views.need[0]
        if need and (messages or self.views.flag.tobytes().count(2) >= need):
            self._ring(False)

    def failure_of(self, error: BaseException, op: str) -> Failure:
        """What is told of an exception that an env's call raised."""
        if self._pressed is not None and from_a_signal(error):
            self._pressed(error)
        return capture(error, op, in_process=self._pressed is not None)

    # -- resets ---------------------------------------------------------------------------------------

    def _reset(self, i: int, argument: dict[str, Any] | Unreadable | None) -> None:
        extra: Extra | None = None
        bits = 0
        start = time.monotonic()
        failed = False
        try:
            if argument:
                self._resets.take_params(i, argument)
            info, side = self._resets.reset(i)
            if side is not None:
                extra = Extra(side=side)
            if says_something(info):
                bits, extra = self._outcome.write_info(i, info, extra)
        except BaseException as error:  # whatever an env raises is that env's error
            failed = True
            bits, extra = _FAILED, Extra(failure=self.failure_of(error, "reset"))
        views = self.views
        views.terminated[i] = views.truncated[i] = False
        views.reset_time[i] += time.monotonic() - start
        if extra is not None:
            bits |= _MESSAGE
        views.status[i] = bits
        posts = [] if extra is None else [(i, extra)]
        if failed:  # the alarm before the message: a long one must not keep the keeper from hearing of it
            self.publish([i], [])
            self._ring(True)
            self.look(True)
            self._send(posts)
            if extra is not None:  # the keeper may have looked before its message was there
                self._ring(True)
        else:
            self.publish([i], posts)
        views.my_running[0] = -1
