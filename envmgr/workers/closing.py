"""The end of all workers: asked, waited for, interrupted, waited for, killed; bounded, whatever they do."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Sequence

from envmgr.workers import contract as c
from envmgr.workers import descriptors
from envmgr.workers.channel import pack, remaining
from envmgr.workers.family import Family
from envmgr.workers.links import Link
from envmgr.workers.nursery_client import EXITED, REFUSED, STARTED

_AFTER_KILL = 3.0  # seconds


def see_off(
    family: Family, grace: float, interrupt: Callable[[Sequence[Link]], None]
) -> dict[int, c.Failure]:
    """Ends every worker.

    Args:
        family: Of the workers.
        grace: Seconds until they are killed; at half of it they are interrupted.
        interrupt: Breaks off what some workers do.

    Returns:
        The failures of the envs' own ``close``, as far as workers could still tell.
    """
    start = time.monotonic()
    alive = [link for link in family.links if not link.gone and link.channel is not None]
    for link in alive:
        link.send(pack((c.CLOSE,)))
    if none_started(alive):
        alive = still_there(family, alive, 0.0)  # some may have, and it was not read yet
        if none_started(alive):
            call_off(family)

    def kill(links: Sequence[Link]) -> None:
        for link in links:
            link.signal(signal.SIGKILL)
        if any(link.pid is None for link in links):
            call_off(family)

    def give_up(_: Sequence[Link]) -> None:
        """What SIGKILL has not ended is the kernel's; the nursery goes on watching it."""

    for seconds, then in ((grace / 2, interrupt), (grace, kill), (grace + _AFTER_KILL, give_up)):
        while alive and time.monotonic() < start + seconds:
            alive = still_there(family, alive, remaining(start + seconds) or 0.0)
        then(alive)
    failures: dict[int, c.Failure] = {}
    for link in family.links:
        link.gone = link.gone or link not in alive
        failures.update(link.closed or {})
    return failures


def none_started(links: Sequence[Link]) -> bool:
    """Whether all of them were only asked for."""
    return bool(links) and all(link.pid is None and link.bell < 0 for link in links)


def call_off(family: Family) -> None:
    """Workers that were asked for and have not started are not wanted any more."""
    if family.nursery is not None and not family.nursery_gone:
        family.nursery.end()


def still_there(family: Family, links: list[Link], timeout: float) -> list[Link]:
    """Sleeps until something of these workers changes; those that are left."""
    poll = select.poll()
    nursery = None if family.nursery_gone else family.nursery
    if nursery is not None:
        poll.register(nursery.fileno(), select.POLLIN)
    for link in links:
        channel = link.channel
        if channel is not None and not channel.dead:
            poll.register(channel.fileno(), select.POLLIN | (select.POLLOUT if channel.wants_to_send else 0))
        if link.pidfd >= 0:
            poll.register(link.pidfd, select.POLLIN)
    poll.poll(max(1.0, timeout * 1000))
    exited = set()
    if nursery is not None:
        records, alive = nursery.read()
        for record in records:
            link = family.links[record.worker]
            if record.generation != link.generation:
                if record.fd >= 0:
                    os.close(record.fd)
            elif record.what == STARTED:
                link.has_started(record.pid, record.fd, bool(record.code))
            elif record.what in (EXITED, REFUSED):
                exited.add(record.worker)
        if not alive:
            family.nursery_ended()
    for link in links:
        link.pump()
        if link.pidfd >= 0 and descriptors.is_readable(link.pidfd):
            link.pump()  # what it said since, before it went
            exited.add(link.index)
        if link.orphan and (link.channel is None or link.channel.dead):
            exited.add(link.index)
    return [link for link in links if link.index not in exited]
