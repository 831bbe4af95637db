"""Control groups: the directories of Linux that say what a container may use. Nothing but where they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def groups(controller: str) -> Iterator[tuple[Path, int]]:
    """The groups that bound this process: its own and all above it.

    Args:
        controller: ``'memory'``, ``'cpu'``, ...

    Yields:
        (directory, version): files have other names in version 1 than in version 2.
    """
    paths = {ROOT: "/", ROOT / controller: "/"}
    with contextlib.suppress(OSError):
        for line in OWN.read_text().splitlines():
            _, _, rest = line.partition(":")
            controllers, colon, path = rest.partition(":")
            if not controllers and colon:
                paths[ROOT] = path
            elif controller in controllers.split(","):
                paths[ROOT / controller] = path
    for root, path in paths.items():
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for k in range(len(parts), -1, -1):
            yield root.joinpath(*parts[:k]), 2 if root == ROOT else 1
