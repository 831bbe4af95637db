"""The arena's rows by other ways: the cells of one type, and the bytes that are compared at once."""

from __future__ import annotations

import contextlib
import dataclasses
import signal

import numpy as np
import pytest

from envmgr.memory.arena import Arena, ArenaPlan, fence
from envmgr.memory.layout import layout_of_shapes
from tests.helpers.sync import within


@pytest.fixture
def arena() -> Arena:
    obs, action = layout_of_shapes((3,), np.float32), layout_of_shapes((), np.int64)
    return Arena.private(ArenaPlan(5, 2, obs, action, "float64", ()))


@pytest.mark.parametrize(
    ("name", "code"),
    [("flag", "B"), ("cmd", "B"), ("status", "B"), ("terminated", "B"), ("truncated", "B"), ("seq", "I"),
     ("reply_seq", "I"), ("reward", "d"), ("step_time", "d"), ("running", "i"), ("need", "q")],
)  # fmt: skip
def test_a_cell_is_an_item_of_its_array(arena: Arena, name: str, code: str) -> None:
    cells, array = arena.cells(code), getattr(arena, name)
    for i in range(len(array)):
        cells[arena.place(name, i)] = 1
        assert array.tolist() == [1] * (i + 1) + [0] * (len(array) - i - 1)
    array[:] = 0
    assert not any(cells), "nothing else was written"


def test_the_verdict_is_flag_cmd_status_and_ends(arena: Arena) -> None:
    before = bytes(arena.verdict())
    for name in ("flag", "cmd", "status", "terminated", "truncated"):
        getattr(arena, name)[4] = 1
        assert bytes(arena.verdict()) != before, name
        getattr(arena, name)[4] = 0
    arena.seq[:] = 7
    arena.reward[:] = 7
    assert bytes(arena.verdict()) == before


def test_observations_that_are_not_shared_are_rows_of_each_side() -> None:
    shared = ArenaPlan(
        5, 2, layout_of_shapes((3,), np.float32), layout_of_shapes((), np.int64), "float64", ()
    )
    plan = dataclasses.replace(shared, obs=dataclasses.replace(shared.obs, shared=False))
    assert plan.nbytes < shared.nbytes
    one = Arena.shared(plan)
    other = Arena(plan, one.block)
    one.action[0][1], one.obs[0][1], one.final[0][1] = 7, 7, 8
    assert other.action[0][1] == 7
    assert not other.obs[0].any() and not other.final[0].any()
    assert (one.obs[0][1] == 7).all() and one.final[0].shape == one.obs[0].shape == (5, 3)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="interval timers are POSIX's")
def test_a_fence_that_is_broken_off_holds_up_nobody() -> None:
    """Wherever a Ctrl-C hits it: a lock that it had taken would be taken for ever."""
    hits = 0

    class Hit(Exception):  # noqa: N818
        pass

    def hit(*_: object) -> None:
        nonlocal hits
        hits += 1
        raise Hit

    before = signal.signal(signal.SIGVTALRM, hit)
    try:
        while hits < 100:
            with contextlib.suppress(Hit):
                signal.setitimer(signal.ITIMER_VIRTUAL, 5e-5)
                while True:
                    fence()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    within(20, fence)
