"""Files that are replaced as a whole or not at all, and numbers that JSON can hold."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path beside ``path`` to write to, which takes its place when the block ends well.

    Whoever is interrupted while writing leaves the old file as it was, and nothing half written.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON; see :func:`plain`."""
    with replacing(path) as temporary:
        text = json.dumps(plain(value), indent=2, allow_nan=False)
        temporary.write_text(f"{text}\n", encoding="utf-8")


def plain(value: Any) -> Any:
    """A value in what JSON has: infinities as text, NaN as null, whatever else is unknown as its repr."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return repr(value)
