"""How a worker process that hosts several envs sleeps: not while there is work, and unrung where it is awake.

While such a worker is at work the caller sends it steps of other envs. It looks at its commands once more
before it sleeps, so nobody has to ring for those: ``awake`` says so. The parent writes commands, then reads
``awake``; the worker takes ``awake`` back, then reads its commands; a fence on both sides, so that one of
them sees what the other wrote.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from envmgr.memory.arena import fence
from envmgr.workers.contract import Bell
from envmgr.workers.stepper import Stepper

_WORK = bytes([Bell.WORK])
_RINGS = 16  # taken at once: a small bytes object is had for less than a large one that is cut down


def many_loop(stepper: Stepper, bell: int) -> Callable[[], bytes]:
    """A function that returns when there is work; it gives what was read from the bell (empty: its end).

    Args:
        stepper: Whose commands they are.
        bell: The descriptor to sleep on.
    """
    awake, idle, read = stepper.views.my_awake, stepper.idle, os.read

    def hear() -> bytes:
        awake[0] = 0
        fence()
        data = read(bell, _RINGS) if idle() else _WORK
        awake[0] = 1
        return data

    return hear
