"""The nursery takes every worker with it, whoever knows of it."""

from __future__ import annotations

import socket
from functools import partial

import psutil
import pytest

from envmgr.workers.nursery_client import NurseryClient
from tests.helpers import envs
from tests.helpers.managers import CONTEXTS
from tests.helpers.scripts import signal_at, wait_gone

__all__ = ["signal_at"]


def stuck(before):
    """An env_fn that never comes back, whatever it is told."""
    before.post()
    envs.hang_stubbornly()


@pytest.mark.case("F15", "O03")
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_worker_of_which_nobody_has_heard_goes_with_its_nursery(context, signal_at, tmp_path):
    """An orphan was found on a slow machine: closed before the nursery could say what it had started."""
    before = signal_at(tmp_path / "before")
    nursery = NurseryClient([partial(stuck, before)], [range(1)], context, [None])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            assert nursery.start_worker(0, 1, theirs)
            before.wait(deadline=40)
            family = psutil.Process(nursery.pid).children(recursive=True)
            assert family
        finally:
            nursery.close()
    wait_gone(family)
