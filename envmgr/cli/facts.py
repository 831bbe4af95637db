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

from envmgr.observe.run_report import versions
from envmgr.workers.cores import usable_cores

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_PACKAGES = ("numpy", "torch", "gymnasium", "gym", "cloudpickle", "pydantic", "psutil", "ray")
_BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_NO_LIMIT = 2**60
"""What cgroup v1 gives as a memory limit when there is none is above this."""


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
    group = _Cgroup(root)
    limit, used = group.memory()
    shm = _disk(root / "dev" / "shm")
    soft, hard = _rlimit("RLIMIT_NOFILE")
    processes = [n for n in (_rlimit("RLIMIT_NPROC")[0], group.number("pids.max", "pids/pids.max")) if n]
    return Facts(
        platform=f"{platform.system()} {platform.release()}, {platform.machine()}",
        cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        cpu_quota=group.cpu_quota(),
        start_methods=multiprocessing.get_all_start_methods(),
        memory_total=memory.total,
        memory_free=memory.available,
        memory_limit=limit,
        memory_used=used,
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


class _Cgroup:
    """The limits of the container, or of the session: those of this process's own cgroup and all above it."""

    def __init__(self, root: Path) -> None:
        self._base = root / "sys" / "fs" / "cgroup"
        self._paths = self._own_paths(root / "proc" / "self" / "cgroup")

    def _own_paths(self, table: Path) -> dict[str, str]:
        """The path of this process's group per controller; '' is the one of version 2."""
        paths = {"": "/"}
        try:
            lines = table.read_text().splitlines()
        except OSError:
            return paths
        for line in lines:
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            for controller in controllers.split(","):
                paths[controller] = path
        return paths

    def number(self, name: str, old_name: str) -> int | None:
        """A limit, in version 2 or version 1: the smallest of this group and those above it."""
        found = [_number(text) for _, text in self._texts(name, old_name)]
        return min((n for n in found if n is not None), default=None)

    def memory(self) -> tuple[int | None, int | None]:
        """Limit and use, in bytes, of the group that has the least left."""
        tightest: tuple[int | None, int | None] = (None, None)
        least = None
        for limit_file, use_file in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            for directory, text in self._texts(limit_file, f"memory/{limit_file}"):
                limit, used = _number(text), _number(_read(directory / use_file) or "")
                if limit is None or limit >= _NO_LIMIT:
                    continue
                left = limit - (used or 0)
                if least is None or left < least:
                    least, tightest = left, (limit, used)
        return tightest

    def cpu_quota(self) -> float | None:
        """Cores' worth of time, or None without a limit."""
        quotas = []
        for directory, text in self._texts("cpu.max", "cpu/cpu.cfs_quota_us"):
            quota, _, period = text.partition(" ")
            micros = _number(quota)
            if micros is not None and micros > 0:
                period = period or _read(directory / "cpu.cfs_period_us") or ""
                quotas.append(micros / (_number(period) or 100_000))
        return min(quotas, default=None)

    def _texts(self, name: str, old_name: str) -> list[tuple[Path, str]]:
        """What a file says in each group that has it, and where that group is."""
        controller, _, file = old_name.partition("/")
        candidates = [self._base / part / name for part in _upwards(self._paths.get("", "/"))]
        candidates += [
            self._base / controller / part / file for part in _upwards(self._paths.get(controller, "/"))
        ]
        found = [(path.parent, _read(path)) for path in candidates]
        return [(directory, text) for directory, text in found if text is not None]


def _upwards(path: str) -> list[str]:
    """``/a/b`` as ``['a/b', 'a', '']``."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return ["/".join(parts[:k]) for k in range(len(parts), -1, -1)]


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:  # 'max'
        return None
