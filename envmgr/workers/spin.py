"""How long to poll before going to sleep: a short while, where that has paid lately.

To be woken costs 20 to 50 microseconds on a virtual machine, and as much for whoever rings. A caller whose
results come within such a time does better to look again and again. It does worse where it takes the core
from the very worker that it waits for, so that by default nobody polls unless two cores are left over; and
where results take longer, all polling is for nothing. So the length of the last waits decides, whether they
were polled or slept.

Nothing here polls anything: the condition and the clock are handed in.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

MOST = 200e-6
"""Seconds that a wait is polled for at the most, where the config gives no number."""
SPARE = 2
"""Cores beside those of the workers that 'auto' wants: the caller's, and one for everything else."""
_MEMORY = 0.25  # of the newest wait in the mean of them all


def spin_seconds(setting: bool | float | str, workers: int, cores: int | None = None) -> float:
    """What the config key ``spin`` means here.

    Args:
        setting: ``'auto'``, True, False, or seconds.
        workers: How many workers there are.
        cores: How many cores this process may use; None asks the system.

    Returns:
        Seconds to poll at the most; 0.0 for not at all.
    """
    if setting == "auto":
        return MOST if (usable_cores() if cores is None else cores) - workers >= SPARE else 0.0
    if isinstance(setting, bool):
        return MOST if setting else 0.0
    return float(setting)


def usable_cores() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Spinner:
    """Polls a condition for as long as the last waits say that it pays.

    Args:
        most: Seconds to poll at the most.
        clock: Gives seconds.
    """

    __slots__ = ("_began", "_clock", "_mean", "_most")

    def __init__(self, most: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._most = most
        self._clock = clock
        self._mean = 0.0
        self._began = 0.0

    @property
    def patience(self) -> float:
        """Seconds that the next wait is polled for: some twice the mean of the last."""
        return min(self._most, 2 * self._mean + self._most / 8) if self._mean < self._most else 0.0

    def holds(self, condition: Callable[[], bool]) -> bool:
        """Polls, and says whether the condition came true; if not, call ``slept`` after the sleep."""
        clock = self._clock
        self._began = now = clock()
        until = now + self.patience
        while now < until:
            if condition():
                self._learn(clock() - self._began)
                return True
            now = clock()
        return False

    def slept(self) -> None:
        """The sleep that followed is over."""
        self._learn(self._clock() - self._began)

    def _learn(self, waited: float) -> None:
        # One wait of a second must not keep the next thousand from being polled.
        self._mean += _MEMORY * (min(waited, 2 * self._most) - self._mean)
