"""The process-wide random generators, kept apart for envs that share a process.

An env that draws from ``random`` or ``numpy.random`` gives the same numbers wherever it lives only
if nobody else draws in between. With one env per worker that is so; where several share one, their
states are swapped around each call (``isolate_rng``), which costs some microseconds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any


class GlobalRng:
    """One env's own state of every global generator that is loaded."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state: tuple[Any, Any, Any] | None = None

    @staticmethod
    def _read() -> tuple[Any, Any, Any]:
        numpy: Any = sys.modules.get("numpy")
        torch: Any = sys.modules.get("torch")
        return (
            random.getstate(),
            None if numpy is None else numpy.random.get_state(),
            None if torch is None or not hasattr(torch, "get_rng_state") else torch.get_rng_state(),
        )

    @staticmethod
    def _write(state: tuple[Any, Any, Any]) -> None:
        random.setstate(state[0])
        if state[1] is not None:
            sys.modules["numpy"].random.set_state(state[1])
        if state[2] is not None:
            sys.modules["torch"].set_rng_state(state[2])

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, run with this env's states; the others' come back afterwards."""

        def isolated(*args: Any, **kwargs: Any) -> Any:
            outside = self._read()
            if self._state is not None:
                self._write(self._state)
            try:
                return function(*args, **kwargs)
            finally:
                self._state = self._read()
                self._write(outside)

        return isolated
