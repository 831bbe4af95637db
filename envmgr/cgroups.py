"""Control groups of Linux: what a container may use of memory, processor time and processes.

Version 1 has a tree of directories per controller, version 2 one for all. Each bounds a process by its own
group and by all above it. Where there is none, nothing is limited.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")
"""Where ``sys`` and ``proc`` are; tests make their own."""
_NO_LIMIT = 1 << 60
"""What version 1 gives as a memory limit when there is none is above this."""
_MEMORY = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


class Memory(NamedTuple):
    """A limit on memory, in bytes.

    Attributes:
        limit: At the most.
        used: Of it.
        cache: Of what is used: file cache that the kernel would give back.
    """

    limit: int
    used: int
    cache: int


def memory_limits(root: Path | None = None) -> list[Memory]:
    """The limits on memory that hold for this process; none where nothing is limited."""
    found = []
    for group, version in _groups("memory", root):
        limit_name, used_name, cache_name = _MEMORY[version]
        limit = _number(group / limit_name)
        if limit is not None and limit < _NO_LIMIT:
            used = _number(group / used_name) or 0
            found.append(Memory(limit, used, _line(group / "memory.stat", cache_name)))
    return found


def cpu_quota(root: Path | None = None) -> float | None:
    """How many cores' worth of time this process gets; None without a quota.

    A quota is a bound on time: a process may run on more cores than that, until its share is used up.
    """
    quotas = []
    for group, version in _groups("cpu", root):
        if version == 2:
            quota, _, period = _text(group / "cpu.max").partition(" ")
        else:
            quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(quota) and int(period):  # not 'max', not -1
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def process_limit(root: Path | None = None) -> int | None:
    """How many processes there may be; None without a limit."""
    limits = [_number(group / "pids.max") for group, _ in _groups("pids", root)]
    return min((n for n in limits if n is not None), default=None)


def _groups(controller: str, root: Path | None) -> Iterator[tuple[Path, int]]:
    """(directory, version) of this process's groups and of all above them."""
    root = ROOT if root is None else root
    base = root / "sys" / "fs" / "cgroup"
    paths = {base: "/", base / controller: "/"}
    for line in _text(root / "proc" / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not controllers and colon:
            paths[base] = path
        elif controller in controllers.split(","):
            paths[base / controller] = path
    for top, path in paths.items():
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for k in range(len(parts), -1, -1):
            yield top.joinpath(*parts[:k]), 2 if top == base else 1


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None


def _line(path: Path, name: str) -> int:
    """The number of one line of a file of names and numbers; 0 where there is none."""
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0
