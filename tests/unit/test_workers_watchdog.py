"""The watchdog of `base`: it bites in time, wakes rarely, and goes."""

from __future__ import annotations

import os
import queue
import threading

import pytest

from envmgr.workers.nursery_client import _others
from envmgr.workers.watchdog import WATCHDOG_NAME, Watchdog

LONG = 3600.0


@pytest.fixture
def bites():
    return queue.Queue()


@pytest.fixture
def dog(bites):
    dog = Watchdog(bites.put)
    yield dog
    dog.close()
    assert not threads()


def threads():
    return [t for t in threading.enumerate() if t.name == WATCHDOG_NAME]


def test_there_is_no_thread_before_there_is_a_limit(dog):
    assert not threads()


def test_a_call_that_is_late_is_bitten_once(dog, bites):
    dog.arm(0.01, 7)
    assert bites.get(timeout=20) == 7
    assert dog.disarm()
    dog.arm(LONG, 8)
    assert not dog.disarm()
    assert bites.empty()


def test_one_limit_wakes_nobody_between_calls(dog, monkeypatch):
    dog.arm(LONG, 0)
    dog.disarm()
    monkeypatch.setattr(dog._changed, "notify", lambda: pytest.fail("woken for nothing"))
    for k in range(1000):
        dog.arm(LONG, k)
        assert not dog.disarm()
    monkeypatch.undo()
    assert len(threads()) == 1


def test_a_shorter_limit_than_the_one_that_is_slept_for(dog, bites):
    dog.arm(LONG, 0)
    dog.disarm()
    dog.arm(0.01, 1)
    assert bites.get(timeout=20) == 1


def test_the_deadline_that_is_slept_for_passes_while_a_later_call_runs(dog, bites):
    """It wakes, finds the deadline moved, and plans anew."""
    dog.arm(0.05, 0)
    dog.disarm()
    dog.arm(0.2, 1)
    assert bites.get(timeout=20) == 1
    assert bites.empty()


def test_it_idles_without_a_plan_and_is_woken_from_that(dog, bites):
    for k in range(3):
        dog.arm(0.01, k)
        assert bites.get(timeout=20) == k


def test_a_limit_that_no_clock_can_hold(dog):
    dog.arm(1e300, 0)
    assert not dog.disarm()


def test_after_close_nothing_bites_and_nothing_starts(dog):
    dog.arm(LONG, 0)
    dog.close()
    assert not threads()
    dog.arm(0.0, 1)
    assert not dog.disarm()
    assert not threads()
    dog.close()


def test_a_forked_child_may_close_whoever_held_the_lock(dog):
    dog.arm(LONG, 0)
    with dog._changed:
        child = os.fork()
        if child == 0:
            dog.close()
            os._exit(42)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert len(threads()) == 1


def test_it_does_not_keep_another_manager_from_forking(dog):
    before = _others()
    dog.arm(LONG, 0)
    assert len(threads()) == 1
    assert _others() == before
