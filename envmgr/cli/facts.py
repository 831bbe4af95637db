"""Facts about this machine and this process, for ``envmgr doctor``: read, not judged.

What does not exist on a platform, or cannot be read, is None.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import psutil

from envmgr import cgroups
from envmgr.observe.run_report import versions
from envmgr.workers.cores import usable_cores

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_PACKAGES = ("numpy", "torch", "gymnasium", "gym", "cloudpickle", "pydantic", "psutil", "ray")
_BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclasses.dataclass(frozen=True)
class Facts:
    """What there is. Sizes are bytes; None is unknown, or without limit.

    Attributes:
        platform: Operating system and machine.
        cores: Cores of the machine.
        usable_cores: Those that this process may run on.
        cpu_quota: Cores' worth of time that its container is given, a fraction possibly.
        start_methods: How processes can be started; the first is multiprocessing's default.
        memory_total: Memory of the machine.
        memory_free: Memory that can be had without swapping.
        memory_limit: What the container may use. Of nested limits, the one with the least left.
        memory_used: What the container uses of it.
        shm_total: Size of /dev/shm.
        shm_free: What is left of it.
        fd_soft: Files that a process may have open.
        fd_hard: What that may be raised to.
        process_limit: Processes that the user, or the container, may have.
        blas: Environment variables that set the threads of BLAS libraries.
        versions: Of Python and the packages that matter; None where one is not installed.
    """

    platform: str
    cores: int
    usable_cores: int
    cpu_quota: float | None
    start_methods: list[str]
    memory_total: int
    memory_free: int
    memory_limit: int | None
    memory_used: int | None
    shm_total: int | None
    shm_free: int | None
    fd_soft: int | None
    fd_hard: int | None
    process_limit: int | None
    blas: dict[str, str]
    versions: dict[str, str | None]

    def as_dict(self) -> dict[str, Any]:
        """As a plain dict."""
        return dataclasses.asdict(self)


def gather(root: Path = Path("/")) -> Facts:
    """Looks at the machine.

    Args:
        root: Where ``sys``, ``proc`` and ``dev`` are; tests make their own.
    """
    memory = psutil.virtual_memory()
    # The group that has the least left.
    limits = cgroups.memory_limits(root)
    tightest = min(limits, key=lambda each: each.limit - each.used, default=None)
    shm = _disk(root / "dev" / "shm")
    soft, hard = _rlimit("RLIMIT_NOFILE")
    processes = [n for n in (_rlimit("RLIMIT_NPROC")[0], cgroups.process_limit(root)) if n]
    return Facts(
        platform=f"{platform.system()} {platform.release()}, {platform.machine()}",
        cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        cpu_quota=cgroups.cpu_quota(root),
        start_methods=multiprocessing.get_all_start_methods(),
        memory_total=memory.total,
        memory_free=memory.available,
        memory_limit=None if tightest is None else tightest.limit,
        memory_used=None if tightest is None else tightest.used,
        shm_total=shm[0],
        shm_free=shm[1],
        fd_soft=soft,
        fd_hard=hard,
        process_limit=min(processes, default=None),
        blas={name: os.environ[name] for name in _BLAS if name in os.environ},
        versions=versions(_PACKAGES),
    )


def _rlimit(name: str) -> tuple[int | None, int | None]:
    number = getattr(resource, name, None)
    if number is None:
        return None, None
    soft, hard = resource.getrlimit(number)
    return tuple(None if n == resource.RLIM_INFINITY else n for n in (soft, hard))  # type: ignore[return-value]


def _disk(path: Path) -> tuple[int | None, int | None]:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None, None
    return usage.total, usage.free
