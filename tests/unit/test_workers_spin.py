"""How long to poll before going to sleep, with a clock that is moved by hand."""

from __future__ import annotations

import math
import sys
import threading

import pytest

from envmgr.workers.spin import MOST, Spinner, spin_seconds


@pytest.mark.parametrize(
    ("setting", "granted", "seconds"),
    [
        ("auto", math.inf, MOST),
        ("auto", 9.0, MOST),  # the caller and its workers
        ("auto", 8.5, 0.0),
        ("auto", 0.5, 0.0),
        (True, 0.5, MOST),
        (False, math.inf, 0.0),
        (0, math.inf, 0.0),
        (0.001, 0.5, 0.001),
    ],
)
def test_what_the_key_means(setting: bool | float | str, granted: float, seconds: float) -> None:
    assert spin_seconds(setting, workers=8, cores=64, granted=granted) == seconds


def test_no_more_time_is_wanted_than_there_are_cores() -> None:
    assert spin_seconds("auto", workers=8, cores=2, granted=2.0) == MOST
    assert spin_seconds("auto", workers=8, cores=2, granted=1.9) == 0.0


def test_between_two_looks_it_gives_way() -> None:
    happened: list[str] = []
    spinner = Spinner(MOST, iter([k * MOST / 50 for k in range(50)]).__next__, lambda: happened.append("way"))

    def is_in() -> bool:
        happened.append("look")
        return len(happened) > 3

    assert spinner.holds(is_in, 60.0)
    assert happened == ["look", "way", "look", "way", "look"]


def test_another_thread_runs_while_it_polls() -> None:
    ran = threading.Event()
    switch = sys.getswitchinterval()
    sys.setswitchinterval(60)  # so that only who gives the interpreter up lets another thread run
    try:
        thread = threading.Thread(target=ran.set)
        thread.start()
        assert Spinner(30.0).holds(ran.is_set, 60.0)
    finally:
        sys.setswitchinterval(switch)
    thread.join(10)


class World:
    """A clock that goes on by a tenth of ``MOST`` with each look, and a result that is in after a while."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due = 0.0
        self.looks = 0
        self.spinner = Spinner(MOST, lambda: self.now)

    def is_in(self) -> bool:
        self.looks += 1
        self.now += MOST / 10
        return self.now >= self.due

    def wait(self, seconds: float) -> bool:
        """One wait for a result that comes in after so long; whether polling caught it."""
        self.due = self.now + seconds
        if self.spinner.holds(self.is_in, 60.0):
            return True
        self.now = max(self.now, self.due)
        self.spinner.slept()
        return False


def test_short_waits_are_polled_through() -> None:
    world = World()
    for _ in range(30):
        world.wait(MOST / 3)
    assert all(world.wait(MOST / 3) for _ in range(10))


def test_long_waits_are_slept_through_from_the_first_moment() -> None:
    world = World()
    for _ in range(30):
        world.wait(5 * MOST)
    world.looks = 0
    assert not world.wait(5 * MOST)
    assert world.looks == 0 and world.spinner.patience == 0.0


def test_what_changes_is_learnt_both_ways() -> None:
    world = World()
    for _ in range(30):
        world.wait(1.0)
    assert not world.wait(MOST / 3)
    for _ in range(10):
        world.wait(MOST / 3)
    assert world.wait(MOST / 3)
    for _ in range(10):
        world.wait(1.0)
    assert world.spinner.patience == 0.0


def test_one_long_wait_among_short_ones_is_forgotten_soon() -> None:
    world = World()
    for _ in range(30):
        world.wait(MOST / 3)
    world.wait(60.0)
    assert world.wait(MOST / 3)


def test_it_never_polls_longer_than_the_most() -> None:
    world = World()
    for seconds in (0.2, 0.9, 0.5, 3.0, 0.1, 0.9, 0.9, 0.9):
        assert world.spinner.patience <= MOST
        begin, world.due = world.now, world.now + seconds * MOST
        if not world.spinner.holds(world.is_in, 60.0):
            assert world.now - begin <= MOST * 1.11
            world.spinner.slept()


def test_a_wait_that_must_be_short_is_polled_no_longer() -> None:
    world = World()
    for _ in range(30):
        world.wait(MOST / 3)
    world.looks, world.due = 0, world.now + MOST
    assert not world.spinner.holds(world.is_in, 0.25 * MOST)
    assert 1 <= world.looks <= 3
    assert not world.spinner.holds(world.is_in, 0.0)
