"""How a stuck worker is killed: asked for its stack first, and nobody waits for that with the lock."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from envmgr.engine import events as e
from envmgr.engine.troubles import Troubles

NEVER = float("inf")
STUCK = "env 1 did not come back after it was interrupted"


class Pool:
    """Writes one part of a stack per look, and then nothing."""

    def __init__(self, parts: list[str], can_be_asked: bool = True) -> None:
        self.parts, self.can_be_asked = parts, can_be_asked
        self.kills = self.asked = 0
        self.envs_of = [range(2)]

    def ask_stack(self, worker: int) -> bool:
        self.asked += 1
        return self.can_be_asked

    def take_stack(self, worker: int) -> str:
        return self.parts.pop(0) if self.parts else ""

    def pid(self, worker: int) -> int:
        return 4711

    def kill(self, worker: int) -> None:
        self.kills += 1

    def handle(self, ready: list[Any]) -> list[Any]:
        return []


def troubles_of(pool: Pool, failure: Any = None, interrupted: Any = "it is in a step") -> Troubles:
    machine = SimpleNamespace(
        next_due=lambda: None, op=None, handle=lambda *_: [], interrupted=lambda i: interrupted if i else None
    )
    deadlines = SimpleNamespace(earliest=NEVER, overdue=lambda *_: [])
    core: Any = SimpleNamespace(
        pool=pool, machine=machine, deadlines=deadlines, failure=failure, arena=None, obey=lambda _: None
    )
    nothing: Any = None
    return Troubles(core, nothing, nothing, nothing, {})


@pytest.mark.parametrize("parts", [[], ["", "", "late"], ["", "first", "second"], ["at once"]])
def test_it_is_killed_when_its_stack_is_whole_or_does_not_come(
    parts: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    whole = "".join(parts)
    pool = Pool(parts)
    troubles = troubles_of(pool)
    troubles.kill(e.Kill(0, 1))
    assert pool.kills == 0, "that would be a wait with the lock"
    begin, looks = troubles.next_look(), 0
    while not pool.kills:
        looks += 1
        assert looks < 10
        now = troubles.next_look()
        troubles.look_after([], now)
    assert now - begin <= 0.35
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == f"worker 0 (process 4711) is killed: {STUCK}\n{whole}".rstrip()


def test_who_cannot_be_asked_is_killed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool([], can_be_asked=False)
    troubles_of(pool).kill(e.Kill(0, 1))
    assert pool.kills == 1


def test_who_is_not_stuck_has_no_stack_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool(["it waits for work"])
    troubles_of(pool, interrupted=None).kill(e.Kill(0, 1, renewal=True))
    assert (pool.kills, pool.asked) == (1, 0)
    assert not caplog.records, "its end is told soon, with the reason"


def test_it_is_killed_again_while_nobody_has_told_of_its_end(caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool([], can_be_asked=False)
    troubles = troubles_of(pool)
    troubles.kill(e.Kill(0, 1))
    troubles.look_after([], troubles.next_look())
    assert pool.kills == 2
    assert len(caplog.records) == 1


def test_it_is_killed_while_a_failure_waits_for_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool([])
    troubles = troubles_of(pool, failure=RuntimeError("of another env"))
    assert troubles.next_look() == NEVER
    troubles.kill(e.Kill(0, 1))
    for _ in range(10):
        troubles.look_after([], troubles.next_look())
    assert pool.kills
