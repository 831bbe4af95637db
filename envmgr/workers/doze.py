"""How a worker waits for work: it looks at its rows for as long as that pays, then it sleeps on its bell.

While ``awake`` is 1 nobody rings: a worker that is at work, or that polls (see ``spin``), looks at its
commands once more before it sleeps. The parent writes commands, then reads ``awake``; the worker takes
``awake`` back, then reads its commands; a fence on both sides, so that one of them sees what the other wrote.

Messages always ring, and ``mail`` tells whoever polls of it, so that steps which come without a pause cannot
keep a call waiting. It is a hint that may come late: whether there is a ring is asked of the bell.
"""

from __future__ import annotations

import math
import os
import select
from collections.abc import Callable

from envmgr.memory.arena import fence
from envmgr.workers.contract import Bell
from envmgr.workers.spin import Spinner
from envmgr.workers.views import Views

_WORK = bytes([Bell.WORK])
_RINGS = 16  # taken at once: a small bytes object is had for less than a large one that is cut down
_MANY_RINGS = 4096  # taken where there was mail, which may be many messages


def make_sleep(views: Views, bell: int) -> Callable[[], bytes]:
    """A function that sleeps until there is work, or does not where there is some already.

    Args:
        views: The rows of the worker, which is awake from now on.
        bell: The descriptor to sleep on.

    Returns:
        The function; it gives what was read from the bell (empty: its end), ``Bell.WORK`` where it was not.
    """
    awake, cmd, read = views.my_awake, views.my_cmd, os.read
    nothing = bytes(len(cmd))
    awake[0] = 1

    def sleep() -> bytes:
        awake[0] = 0
        fence()
        data = read(bell, _RINGS) if cmd.tobytes() == nothing else _WORK
        awake[0] = 1
        return data

    return sleep


def make_doze(
    views: Views, bell: int, sleep: Callable[[], bytes], spinner: Spinner | None
) -> Callable[[], bytes]:
    """A function that polls before it sleeps; it gives what ``sleep`` gives.

    Args:
        views: The rows of the worker.
        bell: The descriptor that messages ring on.
        sleep: Sleeps.
        spinner: Says how long to poll; None for never.
    """
    mail, cmd, read = views.my_mail, views.my_cmd, os.read
    nothing = bytes(len(cmd))
    poll = select.poll()
    poll.register(bell, select.POLLIN)

    def due() -> bool:
        return bool(mail[0]) or cmd.tobytes() != nothing

    def doze() -> bytes:
        while due() if spinner is None else spinner.holds(due, math.inf):
            if not mail[0]:
                return _WORK
            mail[0] = 0
            if poll.poll(0):
                return read(bell, _MANY_RINGS)
        data = sleep()
        if spinner is not None:
            spinner.slept()
        return data

    return doze
