"""How long to poll before going to sleep: a short while, where that has paid lately.

To be woken costs 20 to 50 microseconds on a virtual machine, and as much for whoever rings. A caller whose
results, or a worker whose next step, come within such a time does better to look again and again, as long
as it takes the core from nobody: between two looks it gives way to whatever else wants to run there, the
very process that it waits for first of all, and to the other threads of its own process. Where it takes
longer, all polling is for nothing. So the length of the last waits decides, polled or slept.

Nothing here knows what is waited for: the condition and the clock are handed in.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

MOST = 1e-3
"""Seconds that a wait is polled for at the most, where the config gives no number."""
_MEMORY = 0.25  # of the newest wait in the mean of them all


def spin_seconds(setting: bool | float | str, *, workers: int, cores: int, granted: float) -> float:
    """What the config key ``spin`` means: seconds to poll at the most, 0.0 for not at all.

    Args:
        setting: ``'auto'``, True, False, or seconds.
        workers: How many processes poll beside the caller.
        cores: On how many cores they may run.
        granted: How many cores' worth of time they get (``cores.granted_cores``). Giving way helps only who
            wants the same core: on more cores than are paid for, those who poll use up everybody's time.
    """
    if setting == "auto":
        return MOST if granted >= min(workers + 1, cores) else 0.0
    if isinstance(setting, bool):
        return MOST if setting else 0.0
    return float(setting)


def _sleep_nothing() -> None:
    time.sleep(0)


# Lets others run on this core and, as it releases the GIL, other threads of this process.
give_way: Callable[[], None] = getattr(os, "sched_yield", _sleep_nothing)


class Spinner:
    """Polls a condition for as long as the last waits say that it pays.

    Args:
        most: Seconds to poll at the most.
        clock: Gives seconds.
        pause: What is done between two looks.

    Attributes:
        patience: Seconds that the next wait is polled for: some twice the mean of the last.
    """

    __slots__ = ("_began", "_clock", "_mean", "_most", "_pause", "patience")

    def __init__(
        self,
        most: float,
        clock: Callable[[], float] = time.perf_counter,
        pause: Callable[[], None] = give_way,
    ) -> None:
        self._most = most
        self._clock = clock
        self._pause = pause
        self._mean = 0.0
        self._began = 0.0
        self.patience = most / 8

    def holds(self, condition: Callable[[], bool], limit: float) -> bool:
        """Polls, and says whether the condition came true; if not, call ``slept`` after the sleep.

        Args:
            condition: What is waited for.
            limit: Seconds to poll at the most, whatever its patience.
        """
        clock, pause, patience = self._clock, self._pause, self.patience
        self._began = now = clock()
        until = now + (patience if patience < limit else limit)
        while now < until:
            if condition():
                self.learn(now - self._began)
                return True
            pause()
            now = clock()
        return False

    def since(self) -> float:
        """Seconds since polling began."""
        return self._clock() - self._began

    def slept(self) -> None:
        """The sleep that followed is over."""
        self.learn(self._clock() - self._began)

    def learn(self, waited: float) -> float:
        """Takes the length of a wait (seconds) into account, and gives the new ``patience``."""
        most = self._most
        if waited > 2 * most:  # one wait of a second must not keep the next thousand from being polled
            waited = 2 * most
        self._mean = mean = self._mean + _MEMORY * (waited - self._mean)
        patience = 2 * mean + most / 8
        self.patience = patience = 0.0 if mean >= most else patience if patience < most else most
        return patience
