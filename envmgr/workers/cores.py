"""How many cores there are to run on: those that a process may use, and what its container grants of them."""

from __future__ import annotations

import math
import os

from envmgr.cgroups import cpu_quota


def usable_cores() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def granted_cores() -> float:
    """How many cores' worth of time this process gets; ``inf`` where no control group sets a quota."""
    quota = cpu_quota()
    return math.inf if quota is None else quota
