"""How much memory there is for shared buffers, and the error when it is too little.

Found out before anything is allocated: a process that touches a page of shared memory that the
system cannot back is killed with SIGBUS, or by the out-of-memory killer, without a word.
"""

from __future__ import annotations

import os
import tempfile

from envmgr import cgroups
from envmgr.errors import ShmError


def available_bytes() -> int:
    """Bytes that could be allocated now: of the machine, or of the container where that has less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    for limit, used, cache in cgroups.memory_limits():
        free = min(free, max(0, limit - used + cache))
    return free


def temp_bytes() -> int:
    """Bytes that are free where temporary files go."""
    stat = os.statvfs(tempfile.gettempdir())
    return stat.f_bavail * stat.f_frsize


def require(nbytes: int, what: str, free: int | None = None) -> None:
    """Raises ShmError when there is not room for ``nbytes``.

    Args:
        nbytes: Bytes that are needed.
        what: What for, for the message.
        free: Bytes that there are; None: ask the system.
    """
    have = available_bytes() if free is None else free
    if nbytes > have:
        raise too_little(nbytes, what, have)


def too_little(nbytes: int, what: str, free: int, cause: str = "") -> ShmError:
    """The error that says how much is needed, how much is free, and what to do."""
    return ShmError(
        f"{what} needs {readable(nbytes)} of shared memory, {readable(free)} are free"
        f"{f' ({cause})' if cause else ''}. Use fewer envs or smaller observations (uint8 rather than "
        "float32). In a container raise its memory limit (docker run --memory=...); --shm-size does not "
        "bound this memory. "
        f"Where there are no memory files, point TMPDIR (now {tempfile.gettempdir()}) to where there is room"
    )


def readable(nbytes: int) -> str:
    """Bytes in units that a person reads."""
    if nbytes < 1024:
        return f"{nbytes} bytes"
    size = float(nbytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"
