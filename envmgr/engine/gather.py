"""When a gather has enough: one pure rule for sync and async alike."""

from __future__ import annotations


def enough(
    *,
    arrived: int,
    unfinished: int,
    pending: int,
    wait_num: int | None,
    window_over: bool,
) -> bool:
    """Whether a gather may return.

    Args:
        arrived: Results in hand.
        unfinished: Those of them whose episode goes on.
        pending: Steps that are still under way.
        wait_num: Results that are asked for; None for all. Capped by what there is.
        window_over: Whether the time to wait for more has passed.

    Returns:
        True when everything is in; or when ``wait_num`` are in, the window is over and at least
        one of them is of an env that can be stepped again.
    """
    if pending == 0:
        return True
    if wait_num is None:
        return False
    return arrived >= min(wait_num, arrived + pending) and window_over and unfinished > 0


def sleep_for(*, arrived: int, unfinished: int, pending: int, wait_num: int | None) -> int:
    """How many further replies are worth waking up for."""
    if wait_num is None:
        return pending
    if arrived < wait_num:
        return min(wait_num - arrived, pending)
    return 1 if unfinished == 0 else pending
