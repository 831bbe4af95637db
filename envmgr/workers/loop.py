"""The loop that the steps of all envs of a worker go through, but for plain steps of a lone env (``solo``).

It holds nothing that a plain step does not need: what is written for a whole batch stands before and
behind it, an exception leaves it and comes back for the next env, and everything that it touches is bound
to a local name once. At a million steps a second a microsecond is the whole budget. What is no plain step
(an end, an info, an odd reward) goes to ``outcome``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from envmgr.workers.contract import Extra, Status
from envmgr.workers.misreturned import was_given

if TYPE_CHECKING:
    from envmgr.workers.stepper import Stepper

_SLOW_STEP = 20e-6  # seconds: from here on every env is timed and announced alone, below in groups
_GROUP = 7  # a mask: of quick envs that are announced one by one, each eighth looks whether to ring
_MESSAGE = int(Status.MESSAGE)


class _Never:
    """The class of no reward: where none is plain."""


def step_loop(stepper: Stepper, each: bool) -> Callable[..., None]:
    """A function that steps envs: ``run(ids, auto, actions)``.

    Args:
        stepper: Whose envs they are.
        each: Whether each result is announced as soon as it is there, or a batch at once.
    """
    envs, lo, views = stepper.envs, stepper.envs.start, stepper.views
    fns, puts, running, reward = stepper.fns, stepper.puts, views.my_running, views.reward
    statuses, terminated, truncated = views.status, views.terminated, views.truncated
    mine = (views.my_terminated, views.my_truncated, views.my_status)
    nothing, publish, announce, look = bytes(len(envs)), stepper.publish, stepper.announce, stepper.look
    read_actions, write_step, rescue = stepper.actions, stepper.write_step, stepper.rescue
    leave = stepper.leave
    step_time, batch_time, clock = views.step_time, views.my_batch_time, time.monotonic
    array, lone, posts, dirty = np.ndarray, len(envs) == 1, list[tuple[int, Extra]](), views.dirty
    plain, plain64 = (float, np.float64) if views.plain_reward else (_Never, _Never)
    dtype, shape, rows = stepper.lone_rows or (None, (), cast("list[Any]", puts))
    slow = lone

    def run(ids: Sequence[int], auto: bool, arguments: list[Any] | None = None) -> None:
        """Steps ``ids``, with their actions in rows unless they came as ``arguments``."""
        nonlocal slow
        actions = read_actions(ids) if arguments is None else arguments
        if ids is envs:
            steps, places = fns, rows
            for cells in mine:
                cells[:] = nothing
        else:
            steps, places = [fns[i - lo] for i in ids], [rows[i - lo] for i in ids]
            for i in ids:
                terminated[i] = truncated[i] = False
                statuses[i] = 0
        todo = zip(ids, steps, places, actions)  # noqa: B905 - of one length, and hot
        i = -1
        start = before = clock()
        while True:
            try:
                for i, step, row, action in todo:
                    running[0] = i
                    obs, r, te, tr, info = step(action)
                    kind = r.__class__
                    if te or tr or info or (kind is not plain and kind is not plain64):
                        running[0] = -2 - i
                        statuses[i], extra = write_step(i, auto, obs, r, te, tr, info)
                        if extra is not None:
                            posts.append((i, extra))
                    else:
                        if obs.__class__ is array and obs.dtype is dtype and obs.shape == shape:
                            dirty[i] = 1
                            row[...] = obs
                        else:
                            side = puts[i - lo](obs)
                            if side is not None:
                                statuses[i] = _MESSAGE
                                posts.append((i, Extra(side=side)))
                        reward[i] = r
                    if slow:
                        now = clock()
                        step_time[i] += now - before
                        before = now
                    if each:
                        running[0] = -1  # an order to break it off comes too late once it is announced
                        announce(i, posts, slow or not i & _GROUP)
                running[0] = -1
                break
            except BaseException as error:  # whatever an env raises is that env's error, SystemExit too
                leave(error)
                running[0] = -2 - i
                if i < 0:  # no env's: a bug of ours
                    raise
                given = (obs, r, te, tr, info) if was_given(error) else None
                statuses[i], extra = rescue(i, auto, error, given)
                if extra is not None:
                    posts.append((i, extra))
                if slow:
                    now = clock()
                    step_time[i] += now - before
                    before = now
                if each:
                    announce(i, posts, True)
        if each:
            look(False)
        else:
            publish(ids, posts)
        now = clock()
        if not slow:
            batch_time[0] += now - start
        slow = lone or now - start > _SLOW_STEP * len(ids)

    return run
