"""The process-wide random generators, kept apart for envs that share a process.

An env that draws from ``random`` or ``numpy.random`` gives the same numbers wherever it lives only
if nobody else draws in between. With one env per worker that is so; where several share one, their
states are swapped around each call (``isolate_rng``). numpy's generator is swapped as an object, in
half a microsecond; ``random`` has only its state, some 50 microseconds a call.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any


class GlobalRng:
    """One env's own state of every global generator that is loaded."""

    __slots__ = ("_numpy", "_random", "_torch")

    def __init__(self) -> None:
        self._random: Any = None
        self._numpy: Any = None
        self._torch: Any = None

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, run with this env's states; the others' come back afterwards."""

        def isolated(*args: Any, **kwargs: Any) -> Any:
            numpy, torch = _loaded("numpy", "random"), _loaded("torch", "get_rng_state")
            outside = random.getstate()
            outside_numpy = None if numpy is None else numpy.random.get_bit_generator()
            outside_torch = None if torch is None else torch.get_rng_state()
            if self._random is not None:
                random.setstate(self._random)
            if numpy is not None:
                if self._numpy is None:
                    self._numpy = _copy_of(outside_numpy)
                numpy.random.set_bit_generator(self._numpy)
            if torch is not None and self._torch is not None:
                torch.set_rng_state(self._torch)
            try:
                return function(*args, **kwargs)
            finally:
                self._random = random.getstate()
                random.setstate(outside)
                if numpy is not None:
                    numpy.random.set_bit_generator(outside_numpy)
                if torch is not None:
                    self._torch = torch.get_rng_state()
                    torch.set_rng_state(outside_torch)

        return isolated


def _loaded(name: str, mark: str) -> Any:
    """A module that is loaded as a whole, or None."""
    module = sys.modules.get(name)
    return module if module is not None and hasattr(module, mark) else None


def _copy_of(generator: Any) -> Any:
    """Another generator of the same kind in the same state."""
    copy = type(generator)()
    copy.state = generator.state
    return copy
