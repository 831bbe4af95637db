"""The loop of a worker process that hosts one env: as little code as an uneventful step needs.

Where each env has a process of its own, a worker runs for some microseconds between two switches of
processes, with cold caches each time: what it costs is the amount of code that it touches. So what the
stepper does for any number of envs, this does for one. Everything that is not a plain step (another
command, a message, the end of an episode, an info, an error) goes back to the stepper: nothing is decided
here, and nothing may be added that not every step needs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

from envmgr.memory.arena import STRONG_ORDER, new_lock
from envmgr.workers.contract import Bell, Cmd
from envmgr.workers.misreturned import was_given
from envmgr.workers.spin import Spinner, give_way
from envmgr.workers.stepper import Stepper
from envmgr.workers.stray import end_if_stray

_WORK = bytes([Bell.WORK])
_STEP, _AUTO = int(Cmd.STEP), int(Cmd.STEP_AUTORESET)


def solo_loop(
    stepper: Stepper,
    sleep: Callable[[], bytes],
    doze: Callable[[], bytes],
    spinner: Spinner | None,
    parent_bell: int,
) -> Callable[[], bytes] | None:
    """A function that serves plain steps until something else is asked for.

    Args:
        stepper: Of a worker with one env.
        sleep: Sleeps until there is work (see ``doze``).
        doze: Polls and sleeps, and sees to mail.
        spinner: Says how long to poll before that; None for never.
        parent_bell: The descriptor that wakes the parent.

    Returns:
        The function; it gives what ``doze`` gave last, which is not served then. None where the
        worker has several envs, where rewards are no plain numbers, where observations have leaves without
        rows, and on processors that reorder stores.
    """
    views, arena = stepper.views, stepper.arena
    if len(stepper.envs) != 1 or not views.plain_reward or stepper.has_side or not STRONG_ORDER:
        return None
    i = stepper.envs.start
    # One view per type rather than one per array: each is an object that has to come into the cache.
    cells, words, floats = arena.cells("B"), arena.cells("I"), arena.cells("d")
    cmd, flag, status = (arena.place(name, i) for name in ("cmd", "flag", "status"))
    terminated, truncated = arena.place("terminated", i), arena.place("truncated", i)
    dirty = arena.place("dirty", i)
    seq, reply_seq = arena.place("seq", i), arena.place("reply_seq", i)
    reward, step_time = arena.place("reward", i), arena.place("step_time", i)
    need, flags, running = views.need, views.flag, views.my_running
    fns, put, action_of, conclude = stepper.fns, stepper.puts[0], stepper.actions, stepper.conclude
    envs, step_failure = stepper.envs, stepper.step_failure
    cell, array = stepper.action_cell, np.ndarray
    dtype, shape, (row, *_) = stepper.lone_rows or (None, (), [np.zeros(())])
    write, clock, float64 = os.write, time.monotonic, np.float64
    mail, patience, learn = arena.place("mail", stepper.worker), 0.0, None
    if spinner is not None:
        patience, learn = spinner.patience, spinner.learn

    def serve() -> bytes:
        nonlocal patience
        while True:
            if not cells[cmd] or cells[mail]:
                began = now = clock()
                until = now + patience
                while now < until and not (cells[cmd] or cells[mail]):
                    give_way()
                    now = clock()
                if not cells[cmd] or cells[mail]:
                    data = doze() if cells[mail] else sleep()
                    now = clock()
                    if data != _WORK:
                        return data
                if learn is not None:
                    patience = learn(now - began)
            command = cells[cmd]
            if command != _AUTO and command != _STEP:
                return _WORK
            cells[cmd] = 0
            (action,) = action_of(envs) if cell is None else (cell[0],)
            before = clock()
            try:
                running[0] = i
                outcome = obs, r, te, tr, info = fns[0](action)
                running[0] = -1
                kind = r.__class__
                plain = not (te or tr or info) and (kind is float or kind is float64)
                if plain:
                    if obs.__class__ is array and obs.dtype is dtype and obs.shape == shape:
                        cells[dirty] = 1
                        row[...] = obs
                    else:
                        put(obs)
            except BaseException as error:  # whatever an env raises is that env's error, SystemExit too
                end_if_stray(error)
                running[0] = -1
                plain = False
                if not was_given(error):
                    outcome = step_failure(error)
            if not plain:
                conclude(i, command == _AUTO, outcome, before)
                continue
            floats[reward] = r
            cells[terminated] = cells[truncated] = cells[status] = 0
            floats[step_time] += clock() - before
            words[reply_seq] = words[seq]
            cells[flag] = 2
            cells[dirty] = 0
            new_lock().acquire()  # a fence
            missing = need[0]
            if missing and flags.tobytes().count(2) >= missing:
                try:
                    write(parent_bell, b"\x01")
                except (
                    OSError
                ):  # a full pipe rings as loud as it can; the end of the parent is heard in sleep
                    continue

    return serve
