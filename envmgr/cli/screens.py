"""What ``envmgr run`` shows while it collects: a bar on a terminal, lines elsewhere, or nothing.

Nothing here starts a thread: the bar is drawn by the loop itself, a few times a second.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

if TYPE_CHECKING:
    from envmgr.cli.collecting import Collection

_BAR_EVERY = 0.1  # seconds
_LINE_EVERY = 5.0  # seconds
_MEAN_OVER = 50
_ROOMY = 100  # columns of a terminal; with fewer, the bar needs the room that words would take


class Screen:
    """Shows nothing; the others derive from it.

    Args:
        every: Seconds between two updates.
        clock: Gives seconds.
    """

    def __init__(self, every: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._clock = clock
        self._next = clock() + every
        self._speed: deque[tuple[float, int]] = deque(maxlen=20)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the display."""

    def __call__(self, collection: Collection) -> None:
        """Takes notice of a step; shows it when it is time to."""
        now = self._clock()
        if now >= self._next:
            self._next = now + self._every
            self._show(collection)

    def _show(self, collection: Collection) -> None:
        """Shows how far it is."""

    def _numbers(self, collection: Collection) -> tuple[float, str]:
        """Steps per second since a while ago, and the mean return as text."""
        self._speed.append((collection.elapsed, collection.recorder.steps))
        (since, before), (now, steps) = self._speed[0], self._speed[-1]
        if now <= since:
            since, before = 0.0, 0
        speed = (steps - before) / (now - since) if now > since else 0.0
        last = collection.recorder.episodes[-_MEAN_OVER:]
        return speed, f"{sum(e.total for e in last) / len(last):,.1f}" if last else "-"


class Lines(Screen):
    """A plain line every few seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(_LINE_EVERY, clock)
        self._console = console

    def _show(self, collection: Collection) -> None:
        speed, mean = self._numbers(collection)
        self._console.print(
            f"{len(collection.recorder.episodes)}/{collection.wanted} episodes, "
            f"{collection.recorder.steps:,} steps, {speed:,.0f} steps/s, mean return {mean}",
            highlight=False,
        )


class Bar(Screen):
    """A live bar; in a narrow terminal without the name, which stands on the line above it already."""

    def __init__(self, console: Console, name: str, wanted: int) -> None:
        super().__init__(_BAR_EVERY)
        roomy = console.width >= _ROOMY
        columns: list[ProgressColumn] = [
            *([SpinnerColumn(), TextColumn("{task.description}", markup=False)] if roomy else []),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            *([TextColumn("episodes")] if roomy else []),
            TextColumn("[cyan]{task.fields[speed]}[/] steps/s"),
            TextColumn("return [green]{task.fields[mean]}[/]"),
            TimeElapsedColumn(),
        ]
        self._progress = Progress(*columns, console=console, auto_refresh=False, expand=True)
        self._task = self._progress.add_task(name, total=wanted, speed="-", mean="-")
        self._last: Collection | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        self._progress.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._last is not None:
            self._show(self._last)
        self._progress.stop()

    def __call__(self, collection: Collection) -> None:
        """Takes notice of a step; remembers it for the last look."""
        self._last = collection
        super().__call__(collection)

    def _show(self, collection: Collection) -> None:
        speed, mean = self._numbers(collection)
        done = len(collection.recorder.episodes)
        self._progress.update(self._task, completed=done, speed=f"{speed:,.0f}", mean=mean)
        self._progress.refresh()
