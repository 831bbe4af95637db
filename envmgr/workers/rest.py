"""How the caller waits for results: it polls for as long as that pays, then it sleeps.

``need`` is a row of the arena: for how many results its workers shall ring. While the caller polls it is
zero, so nobody rings (see ``spin``).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from envmgr.memory.arena import Arena, fence
from envmgr.workers.bells import Bell
from envmgr.workers.contract import Flag
from envmgr.workers.spin import Spinner

_RECHECK = 0.05  # seconds: the caller looks again, should a ring ever be missed
_IN = int(Flag.IN)


class Rest:
    """The waits of one caller.

    Args:
        arena: The rows.
        bell: What workers ring.
        spin: Seconds that it polls for at the most, 0.0 for never.
    """

    def __init__(self, arena: Arena, bell: Bell, spin: float) -> None:
        self._flag = arena.bytes_of("flag")
        self._need = arena.bytes_of("need").cast("q")
        self._bell = bell
        self._spinner = Spinner(spin) if spin > 0 else None

    def until(
        self, need: int, timeout: float | None, listen: Callable[[float], object] | None = None
    ) -> None:
        """Waits until so many results are in the rows, somebody rings, or the time is over.

        Args:
            need: How many.
            timeout: Seconds; None for as long as it takes. Either way it may return early.
            listen: What to sleep in where more than the bell is to be heard; then nothing is polled.
        """
        flag, spinner = self._flag, self._spinner
        timeout = _RECHECK if timeout is None else min(timeout, _RECHECK)
        if spinner is None or listen is not None:
            self._sleep(need, timeout, listen or self._bell.listen)
        elif not spinner.holds(lambda: flag.tobytes().count(_IN) >= need, timeout):
            rang = self._sleep(need, max(0.0, timeout - spinner.since()), self._bell.listen)
            if flag.tobytes().count(_IN) >= need:
                spinner.slept()
            elif not rang and spinner.patience < timeout == _RECHECK:  # a part of a long wait
                spinner.learn(math.inf)

    def _sleep(self, need: int, timeout: float, listen: Callable[[float], object]) -> bool:
        self._need[0] = need
        fence()
        try:
            return self._flag.tobytes().count(_IN) >= need or bool(listen(timeout))
        finally:
            self._need[0] = 0
