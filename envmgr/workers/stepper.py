"""The work on rows: take commands, call envs, write what they give. The hot loop of a worker.

The same object works in a worker process and in the caller (``base``); it knows rows, envs and two
functions (``post`` a message, ``ring`` the parent) and nothing of processes. Everything that runs
per env-step is bound to local names once, in ``_make_run``: at a million steps a second a
microsecond is the whole budget.
"""

from __future__ import annotations

import functools
import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from envmgr.envs.adapt import Adapted
from envmgr.errors import SpaceMismatchError
from envmgr.memory.arena import Arena, fence, order_stores
from envmgr.memory.rows import RowReader, RowWriter
from envmgr.workers.contract import WITH_MESSAGE, Cmd, Extra, Failure, Status
from envmgr.workers.failures import capture
from envmgr.workers.hygiene import derive, seed_globals
from envmgr.workers.interrupt import Interrupter
from envmgr.workers.rng import GlobalRng

_SLOW_STEP = 20e-6  # seconds: from here on the clock is read for every env, below once per batch
_DIRTY_FROM = 64  # bytes: a smaller row is written in one go
_FAILED = int(Status.FAILED)
_MESSAGE = int(Status.MESSAGE)
_PICKLE = pickle.HIGHEST_PROTOCOL


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
        in_process: Whether the parent is this very process.
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
        in_process: bool = False,
    ) -> None:
        self._arena = arena
        self._worker = worker
        self._envs = envs
        self._lo, self._hi = envs.start, envs.stop
        self._adapted = dict(zip(envs, adapted, strict=True))
        self._post = post
        self._ring = ring
        self._fetch = fetch
        self._each = each
        self._info_errors = info_errors
        self._isolate_rng = isolate_rng
        self._in_process = in_process
        self._rngs: dict[int, GlobalRng] = {}
        self._params: dict[int, dict[str, Any] | None] = {}
        self._arguments: dict[int, tuple[int, Any]] = {}
        self._warned: set[tuple[int, str]] = set()
        self._slow = len(envs) == 1

        plan = arena.plan
        row_bytes = sum(rows[0].nbytes for rows in arena.obs if len(rows))
        dirty = arena.bytes_of("dirty") if row_bytes > _DIRTY_FROM else None
        self._writer = RowWriter(plan.obs, arena.obs, dirty=dirty)
        self._final_writer = RowWriter(plan.obs, arena.final)
        self._reader = RowReader(plan.action, arena.action)
        lone = len(plan.action.leaves) == 1 and not plan.action.has_side and plan.action.tree == 0
        self._lone_action = arena.action[0] if lone and plan.action.leaves[0].shape else None
        self._scalar_action = (
            arena.action[0]
            if lone and not plan.action.leaves[0].shape and plan.action.leaves[0].kind == "discrete"
            else None
        )

        count = len(envs)
        self._cmd = arena.bytes_of("cmd")[self._lo : self._hi]
        self._flag = arena.bytes_of("flag")
        self._status = arena.bytes_of("status")
        self._seq = arena.bytes_of("seq").cast("I")
        self._reply_seq = arena.bytes_of("reply_seq").cast("I")
        self._terminated = arena.bytes_of("terminated").cast("?")
        self._truncated = arena.bytes_of("truncated").cast("?")
        self._need = arena.bytes_of("need").cast("q")
        self._running = arena.bytes_of("running").cast("i")[worker : worker + 1]
        self._phase = arena.bytes_of("phase")[worker : worker + 1]
        self._step_time = arena.bytes_of("step_time").cast("d")
        self._reset_time = arena.bytes_of("reset_time").cast("d")
        self._info_len = arena.bytes_of("info_len").cast("H")
        self._info = arena.bytes_of("info")
        self._info_bytes = plan.info_bytes
        scalar = plan.reward_shape == () and np.dtype(plan.reward_dtype) == np.float64
        self._reward = arena.bytes_of("reward").cast("d") if scalar else None

        self._my_seq, self._my_reply_seq = (
            self._seq[self._lo : self._hi],
            self._reply_seq[self._lo : self._hi],
        )
        self._my_flag = self._flag[self._lo : self._hi]
        self._all_in = b"\x02" * count
        self._nothing = bytes(count)
        self._all_step = bytes([Cmd.STEP]) * count
        self._all_auto = bytes([Cmd.STEP_AUTORESET]) * count
        self._step_fns: dict[int, Callable[[Any], Any]] = {}
        for env_id in envs:
            self._adapted[env_id].on_settled = functools.partial(self._bind, env_id)
            self._bind(env_id)
        if isolate_rng:
            for env_id in envs:
                self._isolate(env_id)
        interrupter.bind(arena, worker)
        self._running[0] = -1
        self._run = self._make_run()

    # -- what the owner of this object calls -------------------------------------------------------

    def argument(self, env_id: int, seq: int, value: Any) -> None:
        """Takes the argument of a command that is about to be seen."""
        self._arguments[env_id] = (seq, value)

    def work(self) -> None:
        """Serves every command that is in the rows, until there is none."""
        cmd = self._cmd
        while True:
            cmds = cmd.tobytes()
            if cmds == self._nothing:
                return
            if cmds == self._all_step:
                cmd[:] = self._nothing
                self._run(self._envs, False)
            elif cmds == self._all_auto:
                cmd[:] = self._nothing
                self._run(self._envs, True)
            else:
                self._work_mixed(cmds)

    def _work_mixed(self, cmds: bytes) -> None:
        lo = self._lo
        steps: dict[bool, list[int]] = {False: [], True: []}
        resets = []
        for k, command in enumerate(cmds):
            if not command:
                continue
            self._cmd[k] = 0
            if command & ~WITH_MESSAGE == Cmd.RESET:
                resets.append((lo + k, bool(command & WITH_MESSAGE)))
            elif command & WITH_MESSAGE:
                self._run([lo + k], command & ~WITH_MESSAGE == Cmd.STEP_AUTORESET, [self._take(lo + k)])
            else:
                steps[command == Cmd.STEP_AUTORESET].append(lo + k)
        for auto, ids in steps.items():
            if ids:
                self._run(ids, auto)
        for env_id, with_message in resets:
            self._reset(env_id, self._take(env_id) if with_message else None)

    def _take(self, env_id: int) -> Any:
        """The argument of a command; its message may still be under way."""
        while True:
            seq, value = self._arguments.pop(env_id, (-1, None))
            if seq == self._seq[env_id]:
                return value
            if self._fetch is None:
                return None
            self._fetch()

    # -- binding ------------------------------------------------------------------------------------

    def _bind(self, env_id: int) -> None:
        """Fetches the quickest callable for a step; an adapter may know a better one after a first call."""
        function = self._adapted[env_id].step_fn()
        rng = self._rngs.get(env_id)
        self._step_fns[env_id] = function if rng is None else rng.wrap(function)

    def _isolate(self, env_id: int) -> None:
        if env_id not in self._rngs:
            self._rngs[env_id] = GlobalRng()
            self._bind(env_id)

    # -- reading actions ----------------------------------------------------------------------------

    def _make_actions(self) -> Callable[[Sequence[int]], Iterable[Any]]:
        """Private copies: the env may keep its action or write into it."""
        reader, lo, hi, envs = self._reader, self._lo, self._hi, self._envs
        rows = self._scalar_action if self._scalar_action is not None else self._lone_action
        if rows is None:
            return lambda ids: [reader.row(i) for i in ids]
        mine = rows[lo:hi]

        def actions(ids: Sequence[int]) -> Iterable[Any]:
            if ids is envs:
                copied: Iterable[Any] = mine.copy()
                return copied
            return [rows[i].copy() for i in ids]

        return actions

    # -- steps ----------------------------------------------------------------------------------------

    def _make_run(self) -> Callable[..., None]:
        fns, running = self._step_fns, self._running
        terminated, truncated, status = self._terminated, self._truncated, self._status
        reward, write, clock = self._reward, self._writer.write, time.monotonic
        seqs, step_time, each = self._seq, self._step_time, self._each
        float64 = np.float64
        batch_time, lone = self._arena.bytes_of("batch_time").cast("d"), len(self._envs) == 1
        worker = self._worker
        read_actions, capture_step = self._make_actions(), self._capture
        publish, publish_one, post_all = self._publish, self._publish_one, self._post_all

        def run(ids: Sequence[int], auto: bool, arguments: list[Any] | None = None) -> None:
            """Steps ``ids``; the one loop that every step of every env goes through."""
            actions = read_actions(ids) if arguments is None else arguments
            posts: list[tuple[int, int, Extra]] = []
            slow = self._slow
            start = before = clock()
            for i, action in zip(ids, actions):  # noqa: B905 - both are of one length, and this is the hot loop
                extra = None
                bits = 0
                try:
                    running[0] = i
                    obs, r, te, tr, info = fns[i](action)
                    running[0] = -1
                except BaseException as error:  # whatever an env raises is that env's error, SystemExit too
                    running[0] = -1
                    bits, extra = _FAILED | _MESSAGE, Extra(failure=capture_step(error, "step"))
                else:
                    try:
                        if auto and (te or tr):
                            bits, extra = self._finish(i, obs, r, te, tr, info)
                        else:
                            side = write(i, obs)
                            if side is not None:
                                extra = Extra(side=side)
                            if reward is not None and (r.__class__ is float or r.__class__ is float64):
                                reward[i] = r
                            else:
                                extra = self._write_reward(i, r, extra)
                            terminated[i] = te
                            truncated[i] = tr
                            if info:
                                bits, extra = self._write_info(i, info, extra)
                            if extra is not None:
                                bits |= _MESSAGE
                    except Exception as error:  # rubbish of every kind: wrong shapes, infos, flags
                        bits, extra = _FAILED | _MESSAGE, Extra(failure=capture_step(error, "step"))
                status[i] = bits
                if slow:
                    now = clock()
                    step_time[i] += now - before
                    before = now
                if extra is not None:
                    posts.append((i, seqs[i], extra))
                if each:
                    publish_one(i)
                    if posts:
                        post_all(posts)
            if not each:
                publish(ids, bool(posts))
                if posts:
                    post_all(posts)
            if not slow:
                now = clock()
                batch_time[worker] += now - start
            self._slow = lone or now - start > _SLOW_STEP * len(ids)

        return run

    def _post_all(self, posts: list[tuple[int, int, Extra]]) -> None:
        """After the flags: the parent must know of a long message before it can read it."""
        for env_id, seq, extra in posts:
            self._post(env_id, seq, extra)
        posts.clear()

    def _publish(self, ids: Sequence[int], messages: bool) -> None:
        if ids is self._envs:
            self._my_reply_seq[:] = self._my_seq
            order_stores()
            self._my_flag[:] = self._all_in
        else:
            for i in ids:
                self._reply_seq[i] = self._seq[i]
            order_stores()
            for i in ids:
                self._flag[i] = 2
        fence()
        need = self._need[0]
        if need and (messages or self._flag.tobytes().count(2) >= need):
            self._ring(False)

    def _publish_one(self, i: int) -> None:
        self._reply_seq[i] = self._seq[i]
        order_stores()
        self._flag[i] = 2
        fence()
        need = self._need[0]
        if need and (self._status[i] & _MESSAGE or self._flag.tobytes().count(2) >= need):
            self._ring(False)

    def _finish(self, i: int, obs: Any, r: Any, te: Any, tr: Any, info: Any) -> tuple[int, Extra | None]:
        """The end of an episode with an immediate reset: the last observation goes to the final rows."""
        extra: Extra | None = None
        side = self._final_writer.write(i, obs)
        if side is not None:
            extra = Extra(final_side=side)
        extra = self._write_reward(i, r, extra)
        self._terminated[i] = te
        self._truncated[i] = tr
        bits = int(Status.FINAL)
        info = dict(info) if info else {}
        try:
            first_info, first_side = self._call_reset(i, None)
        except BaseException as error:  # the step was good: say both
            extra = extra or Extra()
            extra.failure = self._capture(error, "reset")
            bits |= Status.RESET_FAILED
        else:
            if first_info:
                info["reset_info"] = first_info
            if first_side is not None:
                extra = extra or Extra()
                extra.side = first_side
        if info:
            info_bits, extra = self._write_info(i, info, extra)
            bits |= info_bits
        if extra is not None:
            bits |= _MESSAGE
        return bits, extra

    def _write_reward(self, i: int, r: Any, extra: Extra | None) -> Extra | None:
        """A reward that is not a plain float; one that does not fit its row goes as a message."""
        plan = self._arena.plan
        if isinstance(r, (bool, int, float, np.number, np.bool_)) and plan.reward_shape == ():
            self._arena.reward[i] = r
            return extra
        array = _to_numpy(r)
        if array.dtype == object or array.dtype.kind not in "bifu":
            raise SpaceMismatchError(
                f"the reward is {type(r).__name__} ({_short(r)}); expected a number, or an array of shape "
                f"{plan.reward_shape}"
            )
        if array.shape == plan.reward_shape:
            self._arena.reward[i] = array
            return extra
        extra = extra or Extra()
        extra.reward, extra.has_reward = np.array(array), True
        return extra

    def _write_info(self, i: int, info: Any, extra: Extra | None) -> tuple[int, Extra | None]:
        try:
            data = pickle.dumps(info, _PICKLE)
        except Exception as error:  # lambdas, locks, sockets, whatever users put there
            if self._info_errors == "raise":
                keys = self._bad_keys(info)
                raise SpaceMismatchError(
                    f"the info of env {i} does not pickle (key {keys}: {error}); "
                    "leave it out, or set info_errors='drop'"
                ) from error
            extra = extra or Extra()
            data = self._without_bad(i, info, error, extra)
        if len(data) <= self._info_bytes:
            self._info_len[i] = len(data)
            at = i * self._info_bytes
            self._info[at : at + len(data)] = data
            return int(Status.INFO), extra
        extra = extra or Extra()
        extra.info = data
        return 0, extra

    @staticmethod
    def _bad_keys(info: Any) -> str:
        bad = []
        for key, value in info.items() if isinstance(info, dict) else []:
            try:
                pickle.dumps(value, _PICKLE)
            except Exception:  # asking is the only way to know
                bad.append(repr(key))
        return ", ".join(bad) or "(the whole)"

    def _without_bad(self, i: int, info: Any, error: Exception, extra: Extra) -> bytes:
        kept: dict[Any, Any] = {}
        for key, value in info.items() if isinstance(info, dict) else []:
            try:
                pickle.dumps((key, value), _PICKLE)
            except Exception:  # asking is the only way to know
                if (i, str(key)) not in self._warned:
                    self._warned.add((i, str(key)))
                    extra.warnings.append(f"env {i}: info[{key!r}] does not pickle ({error}) and is dropped")
            else:
                kept[key] = value
        return pickle.dumps(kept, _PICKLE)

    def _capture(self, error: BaseException, op: str) -> Failure:
        return capture(error, op, in_process=self._in_process)

    # -- resets ---------------------------------------------------------------------------------------

    def _reset(self, i: int, argument: dict[str, Any] | None) -> None:
        extra: Extra | None = None
        bits = 0
        start = time.monotonic()
        failed = False
        try:
            info, side = self._call_reset(i, argument)
            if side is not None:
                extra = Extra(side=side)
            if info:
                bits, extra = self._write_info(i, info, extra)
        except BaseException as error:  # whatever an env raises is that env's error
            failed = True
            bits, extra = int(Status.FAILED), Extra(failure=self._capture(error, "reset"))
        self._terminated[i] = False
        self._truncated[i] = False
        self._reset_time[i] += time.monotonic() - start
        if extra is not None:
            bits |= _MESSAGE
        self._status[i] = bits
        seq = self._seq[i]
        self._publish_one(i)
        if failed:
            self._ring(True)
        if extra is not None:
            self._post(i, seq, extra)

    def _call_reset(self, i: int, argument: dict[str, Any] | None) -> tuple[Any, list[Any] | None]:
        """Calls the env's reset and writes its observation; (info, side values)."""
        arena = self._arena
        adapted = self._adapted[i]
        if argument is not None and "params" in argument:
            self._params[i] = argument["params"]
        params = self._params.get(i)
        if argument is not None and "once" in argument:
            params = {**(params or {}), **argument["once"]}
        seeded = int(arena.seeded[i])
        seed: int | None = None
        if seeded:
            seed = int(arena.seed[i])
            arena.seeded[i] = 0
            if self._isolate_rng is None:  # base: from the first seed on, streams are kept apart
                self._isolate(i)
        self._phase[0] = 1
        try:
            self._running[0] = i

            def call() -> Any:
                if seed is not None:
                    seed_globals(derive(seed))
                if seed is not None and seeded > 1:
                    adapted.seed(seed, seeded == 3)
                    return adapted.reset(None, params)
                return adapted.reset(seed, params)

            rng = self._rngs.get(i)
            obs, info = call() if rng is None else rng.wrap(call)()
            self._running[0] = -1
        except BaseException:
            self._running[0] = -1
            raise
        finally:
            self._phase[0] = 0
        return info, self._writer.write(i, obs)


def _to_numpy(value: Any) -> np.ndarray[Any, np.dtype[Any]]:
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value = value.detach().cpu().numpy()
    return np.asarray(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else text[:77] + "..."
