"""How many cores there are to run on: those that a process may use, and what its container grants of them."""

from __future__ import annotations

import contextlib
import math
import os

from envmgr import cgroups


def usable_cores() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def granted_cores() -> float:
    """How many cores' worth of time this process gets; ``inf`` where no control group sets a quota.

    A quota is a bound on time: a process may run on more cores than that, until its share is used up.
    """
    granted = math.inf
    for group, version in cgroups.groups("cpu"):
        with contextlib.suppress(OSError, ValueError):  # no such file, or a quota of 'max'
            if version == 2:
                quota, period = map(int, (group / "cpu.max").read_text().split())
            else:
                quota = int((group / "cpu.cfs_quota_us").read_text())
                period = int((group / "cpu.cfs_period_us").read_text())
            if quota > 0 and period > 0:
                granted = min(granted, quota / period)
    return granted
