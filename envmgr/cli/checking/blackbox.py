"""What survives a worker that takes everything with it: which call it was in, and where.

A small file, mapped by the worker and read by the parent when the worker is gone or stuck. The call is noted
always. The line is noted only while ``trace`` is on, which makes Python code many times slower: it is
for a second run, after a first one has ended without a word (``os._exit``, a signal, the kernel).
"""

from __future__ import annotations

import mmap
import os
import site
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any

_CALL, _OWN, _ANY = (0, 128), (128, 2048), (2176, 2048)  # offset and size
_SIZE = 4224
_HERE = str(Path(__file__).parents[2]) + os.sep


def is_ours(file: str) -> bool:
    """Whether a file is envmgr's own, or none at all."""
    return file.startswith((_HERE, "<"))


def is_users(file: str) -> bool:
    """Whether a file is the user's own: not envmgr's, not Python's, not an installed package's."""
    return not file.startswith(("<", *_FOREIGN))


def _foreign() -> tuple[str, ...]:
    paths = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {*site.getsitepackages(), site.getusersitepackages()}
    return (_HERE, *(os.path.join(path, "") for path in sorted(paths) if path))


_FOREIGN = _foreign()


class BlackBox:
    """The file.

    Args:
        path: Where it is; made when it is not there.
    """

    def __init__(self, path: str) -> None:
        with open(path, "a+b") as file:
            file.truncate(_SIZE)
            self._map = mmap.mmap(file.fileno(), _SIZE)

    def close(self) -> None:
        """Lets go of the file."""
        self._map.close()

    def entered(self, op: str, count: int) -> None:
        """Notes that a call begins; an empty ``op``: that none runs."""
        self._put(_CALL, f"{op} {count}" if op else "")

    @property
    def call(self) -> tuple[str, int]:
        """The call that runs, or ran when everything ended; ``('', 0)`` for none."""
        op, _, count = self._get(_CALL).partition(" ")
        return op, int(count or 0)

    @property
    def place(self) -> str:
        """The last line that ran: the user's own if there was any."""
        return self._get(_OWN) or self._get(_ANY)

    def trace(self) -> None:
        """Notes every line that this thread runs, from now on."""
        kinds: dict[str, tuple[int, int] | None] = {}

        def local(frame: FrameType, event: str, arg: Any) -> Any:
            code = frame.f_code
            slot = kinds[code.co_filename]
            if slot is not None:
                self._put(slot, f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}")
            return local

        def entered(frame: FrameType, event: str, arg: Any) -> Any:
            file = frame.f_code.co_filename
            if file not in kinds:
                kinds[file] = None if is_ours(file) else _OWN if is_users(file) else _ANY
            return None if kinds[file] is None else local(frame, event, arg)

        sys.settrace(entered)

    def _put(self, slot: tuple[int, int], text: str) -> None:
        offset, size = slot
        data = text.encode()[: size - 1]
        self._map[offset : offset + len(data) + 1] = data + b"\0"

    def _get(self, slot: tuple[int, int]) -> str:
        offset, size = slot
        return self._map[offset : offset + size].partition(b"\0")[0].decode(errors="replace")
