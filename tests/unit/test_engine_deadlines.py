"""Which call is too late: a limit bounds one call alone, and nobody is late too early."""

import math
from typing import Any

import numpy as np
import pytest

from envmgr.engine.deadlines import Deadlines
from envmgr.engine.machine import IDLE, RESETTING, STEPPING
from envmgr.workers.contract import Flag

NOBODY = -1


class FakeArena:
    """The four rows that are read here."""

    def __init__(self, envs: int, workers: int) -> None:
        self.flag = np.full(envs, Flag.IDLE, np.uint8)
        self.seq = np.zeros(envs, np.uint32)
        self.running = np.full(workers, NOBODY, np.int32)
        self.phase = np.zeros(workers, np.uint8)


class Desk:
    """Deadlines with the rows they look at, and workers that do one env after the other."""

    def __init__(self, sizes: tuple[int, ...], step: float | None = 10.0, reset: float | None = 60.0) -> None:
        envs_of = [range(sum(sizes[:w]), sum(sizes[: w + 1])) for w in range(len(sizes))]
        self.worker_of = [w for w, envs in enumerate(envs_of) for _ in envs]
        self.d = Deadlines(envs_of, step, reset)
        self.arena = FakeArena(sum(sizes), len(sizes))
        self.op = np.full(sum(sizes), IDLE, np.uint8)

    def send(self, ids: list[int], now: float, op: int = STEPPING) -> bool:
        self.arena.flag[ids] = Flag.PENDING
        self.arena.seq[ids] += 1
        self.op[ids] = op
        return self.d.begin(ids, now, op == RESETTING)

    def runs(self, env_id: int, phase: int = 0) -> None:
        self.arena.running[self.worker_of[env_id]] = env_id
        self.arena.phase[self.worker_of[env_id]] = phase

    def replies(self, env_id: int) -> None:
        self.arena.flag[env_id] = Flag.IN
        self.arena.running[self.worker_of[env_id]] = NOBODY

    def late(self, now: float) -> list[int]:
        return self.d.overdue(now, self.arena, self.op)  # type: ignore[arg-type]  # it reads four rows


def test_a_step_is_late_when_its_limit_is_over_and_not_before() -> None:
    desk = Desk((1,), step=10.0)
    desk.send([0], now=100.0)
    assert desk.late(109.9) == []
    assert desk.d.earliest == pytest.approx(110.0)
    assert desk.late(110.0) == [0]


def test_a_reset_has_its_own_limit() -> None:
    desk = Desk((1, 1), step=1.0, reset=60.0)
    desk.send([0], 0.0, RESETTING)
    desk.send([1], 0.0)
    assert desk.late(1.5) == [1]
    desk.replies(1)
    assert desk.late(59.9) == []
    assert desk.late(60.0) == [0]


@pytest.mark.case("O14")
def test_limits_are_fractions_too() -> None:
    desk = Desk((1,), step=0.05)
    desk.send([0], 0.0)
    assert desk.late(0.04) == []
    assert desk.late(0.051) == [0]


@pytest.mark.case("O14")
@pytest.mark.parametrize("sizes", [(1,), (2,)])
def test_none_is_no_limit(sizes: tuple[int, ...]) -> None:
    desk = Desk(sizes, step=None, reset=None)
    assert desk.send([0], 0.0) is False
    desk.runs(0)
    assert desk.late(1e9) == []
    assert desk.d.earliest == math.inf
    mixed = Desk((1, 1), step=None, reset=5.0)
    mixed.send([0], 0.0)
    mixed.send([1], 0.0, RESETTING)
    assert mixed.late(1e9) == [1]


@pytest.mark.case("O20")
def test_only_those_that_are_late_are_late() -> None:
    desk = Desk((1, 1, 1), step=10.0)
    desk.send([0, 2], 0.0)
    desk.send([1], 5.0)
    desk.replies(2)
    assert desk.late(10.0) == [0]
    desk.replies(0)
    assert desk.late(14.0) == []
    assert desk.late(15.0) == [1]


def test_what_came_back_or_was_never_sent_is_not_late() -> None:
    desk = Desk((1, 1), step=10.0)
    desk.send([0], 0.0)
    desk.replies(0)
    assert desk.late(1000.0) == []
    desk.arena.flag[1] = Flag.PENDING  # without an op: a row that nobody waits for
    assert desk.late(2000.0) == []


def test_begin_says_when_the_look_has_to_be_earlier() -> None:
    desk = Desk((1, 1), step=10.0)
    assert desk.send([0], 0.0) is True
    assert desk.d.earliest <= 10.0
    assert desk.send([1], 1.0) is False
    desk.late(1.0)
    assert desk.d.earliest == pytest.approx(10.0)


def test_begin_all_is_begin_for_all() -> None:
    one, all_ = Desk((1, 1), step=10.0), Desk((1, 1), step=10.0)
    first = one.send([0, 1], 3.0)
    all_.send([0, 1], 0.0)
    all_.d.earliest = math.inf
    assert all_.d.begin_all(3.0) is first is True
    assert all_.d.started.tolist() == one.d.started.tolist() == [3.0, 3.0]
    assert all_.d.earliest == one.d.earliest
    assert all_.d.begin_all(4.0) is False
    assert all_.late(13.9) == []
    assert all_.late(14.0) == [0, 1]


@pytest.mark.parametrize("sizes", [(1,), (2,)])
def test_whoever_looks_when_told_sees_it_in_time(sizes: tuple[int, ...]) -> None:
    """Late by a tenth of the limit at the most, and never too early."""
    desk = Desk(sizes, step=10.0, reset=30.0)
    ids = list(range(sum(sizes)))
    desk.send(ids, 0.0)
    desk.runs(0)
    looks = 0
    now = desk.d.earliest
    while not (late := desk.late(now)):
        assert now < desk.d.earliest < math.inf
        now = desk.d.earliest
        looks += 1
        assert looks < 50
    assert late == [0]
    assert 10.0 <= now <= 12.0


def test_with_nothing_under_way_it_looks_again_but_not_often() -> None:
    desk = Desk((1,), step=10.0)
    assert desk.late(100.0) == []
    assert 101.0 <= desk.d.earliest <= 110.0


# -- a worker with several envs -----------------------------------------------------------------------


@pytest.mark.case("O20")
def test_an_env_that_waits_for_its_turn_is_not_late() -> None:
    """All flags come at once, as for a sync face."""
    desk = Desk((3,), step=10.0)
    desk.send([0, 1, 2], 0.0)
    for i in range(3):  # each takes 6 s, and somebody looks every second
        desk.runs(i)
        for second in range(6):
            assert desk.late(6.0 * i + second) == []


def test_the_one_that_is_stuck_is_the_one_that_is_late() -> None:
    desk = Desk((3,), step=10.0)
    desk.send([0, 1, 2], 0.0)
    desk.runs(0)
    assert desk.late(1.0) == []
    desk.runs(1)
    assert desk.late(2.0) == []
    assert desk.late(11.9) == []
    assert desk.late(12.0) == [1]


def test_the_last_of_a_batch_counts_from_its_own_turn() -> None:
    """Each flag comes as its env is done, as for an async face: 6 s each of 10 s that each may take."""
    desk = Desk((2,), step=10.0)
    desk.send([0, 1], 0.0)
    desk.runs(0)
    for second in range(6):
        assert desk.late(float(second)) == []
    desk.replies(0)
    desk.runs(1)
    for second in range(6, 12):
        assert desk.late(float(second)) == [], f"late after {second - 6} s of its own"


def test_a_lone_call_of_a_worker_with_several_envs_began_when_it_was_sent() -> None:
    desk = Desk((2,), step=10.0)
    desk.send([1], 0.0)
    desk.runs(1)
    assert desk.late(9.0) == []
    assert desk.late(10.0) == [1]


def test_the_next_step_of_the_same_env_is_another_call() -> None:
    desk = Desk((2,), step=10.0)
    for k in range(5):
        desk.send([0, 1], 8.0 * k)
        desk.runs(0)
        assert desk.late(8.0 * k + 1) == []
        assert desk.late(8.0 * k + 7) == []
        desk.replies(0)
        desk.replies(1)


def test_a_stuck_worker_does_not_hide_another() -> None:
    desk = Desk((2, 2), step=10.0)
    desk.send([0, 1, 2, 3], 0.0)
    desk.runs(0)
    desk.runs(3)
    assert desk.late(0.0) == []
    assert desk.late(10.0) == [0, 3]


@pytest.mark.case("O19")
@pytest.mark.parametrize("sizes", [(1,), (2,)])
def test_a_reset_that_the_worker_does_after_a_step_has_the_resets_limit(sizes: tuple[int, ...]) -> None:
    desk = Desk(sizes, step=2.0, reset=30.0)
    desk.send([0], 0.0)
    desk.runs(0, phase=1)
    assert desk.late(1.0) == []
    assert desk.late(25.0) == []
    assert desk.late(31.0) == [0]


# -- grace --------------------------------------------------------------------------------------------


@pytest.mark.case("F18")
def test_a_grace_holds_whatever_the_limit_says() -> None:
    desk = Desk((1,), step=10.0)
    desk.send([0], 0.0)
    assert desk.late(10.0) == [0]
    desk.d.grant(0, 11.0)
    assert desk.d.earliest <= 11.0
    assert desk.late(10.9) == []
    assert desk.d.earliest == pytest.approx(11.0)
    assert desk.late(11.0) == [0]


def test_a_grace_ends_with_its_call() -> None:
    desk = Desk((1,), step=10.0)
    desk.send([0], 0.0)
    desk.d.grant(0, 11.0)
    desk.replies(0)
    desk.d.ended(0)
    desk.d.ended(0)
    desk.send([0], 20.0)
    assert desk.late(29.0) == []
    assert desk.late(30.0) == [0]


def test_siblings_of_an_env_in_grace_are_not_blamed() -> None:
    desk = Desk((2,), step=10.0)
    desk.send([0, 1], 0.0)
    desk.runs(0)
    desk.late(0.0)
    assert desk.late(10.0) == [0]
    desk.d.grant(0, 15.0)
    assert desk.late(14.0) == []
    assert desk.late(15.0) == [0]


def test_limits_are_arrays_of_the_right_size() -> None:
    desk: Any = Desk((2, 3))
    assert desk.d.started.shape == (5,)
    assert (desk.d.step_limit, desk.d.reset_limit) == (10.0, 60.0)
