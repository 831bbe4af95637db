"""How much memory there is for shared buffers, and the error when it is too little.

Found out before anything is allocated: a process that touches a page of shared memory that the
system cannot back is killed with SIGBUS, or by the out-of-memory killer, without a word.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from envmgr.errors import ShmError

_GROUP = Path("/sys/fs/cgroup")
_PAIRS = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)


def available_bytes() -> int:
    """Bytes that could be allocated now: of the machine, or of the container where that has less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    for limit_name, usage_name, stat_name in _PAIRS:
        with contextlib.suppress(OSError, ValueError):
            limit = int((_GROUP / limit_name).read_text())
            usage = int((_GROUP / usage_name).read_text()) - _reclaimable(_GROUP / stat_name)
            free = min(free, max(0, limit - usage))
    return free


def _reclaimable(stat: Path) -> int:
    """Bytes of file cache that the kernel would give back."""
    for line in stat.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def temp_bytes() -> int:
    """Bytes that are free where temporary files go."""
    import psutil

    return int(psutil.disk_usage(tempfile.gettempdir()).free)


def require(nbytes: int, what: str, free: int | None = None) -> None:
    """Raises ShmError when there is not room for ``nbytes``.

    Args:
        nbytes: Bytes that are needed.
        what: What for, for the message.
        free: Bytes that there are; None: ask the system.
    """
    have = available_bytes() if free is None else free
    if nbytes <= have:
        return
    raise ShmError(
        f"{what} needs {readable(nbytes)} of shared memory, {readable(have)} are free. Use fewer envs, or smaller "
        "observations (uint8 rather than float32); in a container raise its memory limit (docker run --memory=...)"
    )


def readable(nbytes: int) -> str:
    """Bytes in units that a person reads."""
    size = float(nbytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{nbytes} bytes"
