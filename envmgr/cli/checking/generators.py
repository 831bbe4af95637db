"""Which of the process's global random generators a call has drawn from, or seeded.

Their states are compared before and after: some 20 microseconds a call, which is no part of what is timed.
"""

from __future__ import annotations

import random
import sys
from typing import Any


class GlobalGenerators:
    """Watches ``random``, ``numpy.random`` and, where it is loaded, torch.

    Attributes:
        used: ``(generator, call)`` for each that changed in a call.
    """

    def __init__(self) -> None:
        self.used: list[tuple[str, str]] = []
        self._before = _states()

    def mark(self) -> None:
        """Says that a call of the env begins."""
        self._before = _states()

    def look(self, op: str) -> None:
        """Says that it has ended.

        Args:
            op: The call: ``'step'``, ``'reset'``, ``'env_fn'``.
        """
        now = _states()
        for name, state in now.items():
            # One that was not there before was loaded by the call itself.
            if name in self._before and self._before[name] != state and (name, op) not in self.used:
                self.used.append((name, op))
        self._before = now


def _states() -> dict[str, Any]:
    states: dict[str, Any] = {"random": random.getstate()}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        state = numpy.random.get_state(legacy=False)
        inner = state["state"]
        states["numpy.random"] = (
            {key: value.tobytes() if hasattr(value, "tobytes") else value for key, value in inner.items()},
            state.get("has_gauss"),
            state.get("gauss"),
        )
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states
