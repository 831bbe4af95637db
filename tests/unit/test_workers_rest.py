"""The caller's waits, with a bell that says what it was rung for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from envmgr.memory.arena import Arena, ArenaPlan
from envmgr.memory.layout import layout_of_shapes
from envmgr.workers.rest import Rest

IN = 2


class FakeBell:
    """Each sleep notes for how many results somebody would ring, and lets so many more come in."""

    def __init__(self, arena: Arena, comes: list[int]) -> None:
        self.arena = arena
        self.comes = comes
        self.slept_for: list[int] = []

    def listen(self, timeout: float | None) -> bool:
        self.slept_for.append(int(self.arena.need[0]))
        let_in(self.arena, self.comes.pop(0))
        return True


def let_in(arena: Arena, more: int) -> None:
    start = int(np.count_nonzero(arena.flag == IN))
    arena.flag[start : start + more] = IN


@pytest.fixture
def arena() -> Arena:
    obs, action = layout_of_shapes((4,), np.float32), layout_of_shapes((), np.int64)
    return Arena.private(ArenaPlan(8, 4, obs, action, "float64", ()))


def never(_timeout: float | None) -> bool:
    raise AssertionError("it slept")


def test_what_is_here_is_not_waited_for(arena: Arena) -> None:
    bell = FakeBell(arena, [])
    arena.flag[:] = IN
    Rest(arena, bell, 0.01).until(8, None)  # type: ignore[arg-type]
    Rest(arena, bell, 0.0).until(8, None)  # type: ignore[arg-type]
    assert bell.slept_for == []


def test_without_polling_it_sleeps_for_all(arena: Arena) -> None:
    bell = FakeBell(arena, [8])
    Rest(arena, bell, 0.0).until(8, None)  # type: ignore[arg-type]
    assert bell.slept_for == [8]
    assert arena.need[0] == 0


def test_where_polling_is_for_nothing_it_sleeps(arena: Arena) -> None:
    bell = FakeBell(arena, [8])
    Rest(arena, bell, 1e-9).until(8, None)  # type: ignore[arg-type]
    assert bell.slept_for == [8]
    assert arena.need[0] == 0


def test_nobody_is_to_ring_while_it_polls(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = Rest(arena, FakeBell(arena, []), 0.01)  # type: ignore[arg-type]
    looks: list[int] = []

    def polled(condition: Callable[[], bool], _limit: float) -> bool:
        looks.append(int(arena.need[0]))
        let_in(arena, 8)
        return condition()

    monkeypatch.setattr(rest, "_spinner", SimpleNamespace(holds=polled))
    rest.until(8, None)
    assert looks == [0]


def test_a_ring_for_something_else_ends_the_wait(arena: Arena) -> None:
    bell = FakeBell(arena, [3])
    Rest(arena, bell, 1e-9).until(8, None)  # type: ignore[arg-type]
    assert bell.slept_for == [8]
    assert arena.need[0] == 0


def test_where_more_is_heard_than_the_bell_nothing_is_polled(arena: Arena) -> None:
    bell = FakeBell(arena, [])
    heard: list[tuple[int, float]] = []
    rest = Rest(arena, bell, 0.01)  # type: ignore[arg-type]
    rest.until(8, 0.01, lambda timeout: heard.append((int(arena.need[0]), timeout)))
    assert heard == [(8, 0.01)]


def test_an_exception_in_the_sleep_leaves_nobody_ringing(arena: Arena) -> None:
    rest = Rest(arena, FakeBell(arena, []), 0.0)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="slept"):
        rest.until(8, None, never)
    assert arena.need[0] == 0
