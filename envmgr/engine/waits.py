"""Every wait of the caller: for results, and for states.

A wait sleeps in ``pool.wait`` without the lock, is bounded by the limits of the calls that it waits for, and
looks at what the keeper has met. Without a keeper (the pool has no background) it looks after deaths and
timers itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from envmgr.engine.core import Core
from envmgr.engine.gather import enough, sleep_for
from envmgr.engine.inbox import Inbox
from envmgr.engine.replies import Replies


class Owner(Protocol):
    """What a wait asks of the engine that it belongs to."""

    def check(self) -> None:
        """Raises what the keeper has met."""

    def look_after(self, ready: list[Any], now: float) -> None:
        """Deaths, deadlines, timers."""

    def next_look(self) -> float | None:
        """When there is something to look after; None for never."""


class Waits:
    """The caller's waits.

    Args:
        core: What the parts share.
        inbox: Where results are waited for.
        replies: Takes them in.
        engine: Whose part this is.
    """

    def __init__(self, core: Core, inbox: Inbox, replies: Replies, engine: Owner) -> None:
        self._core = core
        self._inbox = inbox
        self._replies = replies
        self._engine = engine
        self._pool = core.pool

    def gather(self, wait_num: int | None, window: float | None) -> None:
        """Sleeps until enough results are in. Bounded by the calls' own limits.

        Args:
            wait_num: How many; None for all that are pending.
            window: Seconds that the gather goes on for more than ``wait_num``; None for as long as it takes.
        """
        if window is None:
            wait_num = None
        end = None if window is None else time.monotonic() + window
        core, inbox, pool = self._core, self._inbox, self._pool
        if pool.background:
            self._await_first(wait_num)
        while True:
            if not pool.background:
                self._look_myself()
            with self._core.lock:
                core.midway = True
                if self._pool.sending:
                    self._pool.exchange()
                self._replies.collect()
                core.midway = False
                if core.failure is not None or core.closing:
                    break
                if inbox.whole:
                    return
                arrived, pending, unfinished = inbox.count, inbox.out - inbox.count, inbox.unfinished
                if not pending:
                    break
                talking, unusable = self._talk(), self._unusable()
            left = None if end is None else end - time.monotonic()
            over = left is not None and left <= 0
            if enough(
                arrived=arrived, unfinished=unfinished, pending=pending, wait_num=wait_num, window_over=over
            ):
                break
            need = sleep_for(arrived=arrived, unfinished=unfinished, pending=pending, wait_num=wait_num)
            timeout = None if over or arrived < (wait_num or 0) else left
            pool.wait(need + unusable, self._until_next_look(timeout), talking)
        if core.failure is not None or core.closing:
            self._engine.check()

    def _await_first(self, wait_num: int | None) -> None:
        """One wait for as many as are wanted, that takes nothing in meanwhile: that is what costs."""
        core, inbox = self._core, self._inbox
        if core.troubled or core.failure is not None or core.closing or self._replies.talking:
            return
        pending = inbox.out - inbox.count
        missing = pending if wait_num is None else min(wait_num - inbox.count, pending)
        if missing > 0 and not inbox.held and not self._pool.sending:
            self._pool.wait(missing, None)

    def _talk(self) -> Sequence[int]:
        talking, sending = self._replies.talking, self._pool.sending
        return [*talking, *sending] if talking or sending else ()

    def _unusable(self) -> int:
        """Replies that are in their rows and wait for their message: no reason to wake up."""
        return self._replies.waiting() if self._replies.talking else 0

    def wait_until(self, condition: Callable[[], bool], limit: float | None) -> bool:
        """Sleeps until a condition over the states holds; False when ``limit`` seconds are over."""
        core = self._core
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            if not self._pool.background:
                self._look_myself()
            with self._core.lock:
                core.midway = True
                if self._pool.sending:
                    self._pool.exchange()
                self._replies.collect()
                core.midway = False
                self._core.warn()
                if core.failure is None and not core.closing and condition():
                    return True
                talking = self._talk()
                # A reset that went out just now may have its reply there already: that one is to be used.
                unusable = self._unusable() if core.has_rows else 0
            self._engine.check()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._pool.wait(unusable + 1, self._until_next_look(left), talking)

    def _look_myself(self) -> None:
        """Where there is no keeper, the caller looks after deaths, timers and new workers."""
        self._pool.raise_pressed()
        if self._pool.news or self._core.machine.next_due() is not None:
            self._engine.look_after(self._pool.poll(0), time.monotonic())

    def _until_next_look(self, left: float | None) -> float | None:
        """How long the caller may sleep where there is no keeper that would wake it."""
        if self._pool.background:
            return left
        due = self._engine.next_look()
        if due is None:
            return left
        wait = max(0.0, due - time.monotonic())
        return wait if left is None else min(left, wait)
