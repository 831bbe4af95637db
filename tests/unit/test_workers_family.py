"""The family of workers, where the order of events can be made by hand."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from envmgr.workers.family import Family
from envmgr.workers.nursery import STARTED
from envmgr.workers.nursery_client import Record


class Nursery:
    """Tells of one worker that was started."""

    def __init__(self, record):
        self.records = [record]

    def fileno(self):
        return 999_999

    def read(self):
        records, self.records = self.records, []
        return records, True


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="pidfds are Linux's")
@pytest.mark.parametrize("lives", [True, False])
def test_what_was_seen_of_an_old_worker_is_not_believed_of_the_new_one(lives):
    """Both had a pidfd of one number, one after the other; between the look and its use a renewal came."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pidfd = os.pidfd_open(child.pid)
    family = Family([int], [range(1)], "fork", [None])
    family.nursery = Nursery(Record(STARTED, 0, child.pid, 0, 0, pidfd))
    family._epoll = select.epoll()
    bells = [type("Bell", (), {"read_fd": 999_998 - k})() for k in range(2)]
    family.alarm, family._nudge = bells
    worker = family.links[0]
    worker.gone = False
    try:
        if not lives:
            child.kill()
            child.wait()
        family.handle([(999_999, select.EPOLLIN), (pidfd, select.EPOLLIN)])
        assert worker.pid == child.pid
        assert (worker.gone_since is None) == lives
    finally:
        worker.let_go()
        family._epoll.close()
        child.kill()
        child.communicate()
