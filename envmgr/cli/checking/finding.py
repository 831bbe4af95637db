"""One thing that was found, and numbers as people read them."""

from __future__ import annotations

import dataclasses
import enum


class Level(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    SKIPPED = "skipped"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes:
        level: How bad it is.
        check: What was looked at: ``'spaces'``, ``'seeds'``, ...
        what: What is so, in plain words.
        do: What to do about it; empty when there is nothing to.
        place: The user's own file and line, where there is one.
    """

    level: Level
    check: str
    what: str
    do: str = ""
    place: str = ""


def seconds(value: float) -> str:
    """A time for people: ``3.1 us``, ``20 ms``, ``1.5 s``."""
    for unit, scale in (("us", 1e-6), ("ms", 1e-3)):
        if value < 1000 * scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} s"


def size(value: float) -> str:
    """Bytes for people: ``16 bytes``, ``28.2 kB``."""
    for unit, scale in (("bytes", 1.0), ("kB", 1e3), ("MB", 1e6)):
        if value < 1000 * scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e9:.3g} GB"
