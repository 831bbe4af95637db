"""How a worker waits: it polls, it sleeps on its bell, and it overhears neither a step nor a message."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from envmgr.memory.arena import Arena, ArenaPlan
from envmgr.memory.layout import layout_of_shapes
from envmgr.workers.contract import Bell
from envmgr.workers.doze import make_doze, make_sleep
from envmgr.workers.spin import Spinner
from envmgr.workers.views import Views

WORK, MESSAGE = bytes([Bell.WORK]), bytes([Bell.MESSAGE])


class Worker:
    """The rows of worker 1, which hosts envs 2 and 3, and its bell."""

    def __init__(self) -> None:
        obs, action = layout_of_shapes((4,), np.float32), layout_of_shapes((), np.int64)
        self.arena = Arena.private(ArenaPlan(4, 2, obs, action, "float64", ()))
        self.views = Views(self.arena, 1, range(2, 4))
        self.bell, self.ring = os.pipe()
        self.sleep = make_sleep(self.views, self.bell)

    def doze(self, spin: float) -> bytes:
        return make_doze(self.views, self.bell, self.sleep, Spinner(spin) if spin else None)()


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    os.close(made.bell)
    os.close(made.ring)


@pytest.mark.parametrize("spin", [0.0, 30.0])
def test_a_command_that_is_there_needs_no_ring(worker: Worker, spin: float) -> None:
    worker.arena.cmd[3] = 1
    assert worker.doze(spin) == WORK
    assert worker.arena.awake.tolist() == [0, 1]


def test_commands_of_another_worker_are_not_its_own(worker: Worker) -> None:
    worker.arena.cmd[1] = 1
    os.write(worker.ring, MESSAGE)
    assert worker.doze(0.001) == MESSAGE


def test_it_says_that_it_sleeps_and_wakes_at_a_ring(worker: Worker) -> None:
    heard: list[bytes] = []
    thread = threading.Thread(target=lambda: heard.append(worker.doze(0.001)))
    thread.start()
    while worker.arena.awake[1]:  # bounded by the test's own limit
        os.sched_yield()
    os.write(worker.ring, WORK)
    thread.join(30)
    assert heard == [WORK]
    assert worker.arena.awake.tolist() == [0, 1]


def test_while_it_polls_a_command_is_seen_without_a_ring(worker: Worker) -> None:
    heard: list[bytes] = []
    thread = threading.Thread(target=lambda: heard.append(worker.doze(60.0)))
    thread.start()
    worker.arena.cmd[2] = 2
    thread.join(30)
    assert heard == [WORK]


@pytest.mark.parametrize("spin", [0.0, 60.0])
def test_a_message_is_heard_before_the_next_command(worker: Worker, spin: float) -> None:
    os.write(worker.ring, MESSAGE)
    worker.arena.mail[1] = 1
    worker.arena.cmd[2] = 2
    assert worker.doze(spin) == MESSAGE
    assert worker.arena.mail[1] == 0
    assert worker.doze(spin) == WORK


@pytest.mark.parametrize("spin", [0.0, 60.0])
def test_a_hint_that_comes_late_is_passed_over(worker: Worker, spin: float) -> None:
    worker.arena.mail[1] = 1
    worker.arena.cmd[2] = 2
    assert worker.doze(spin) == WORK
    assert worker.arena.mail[1] == 0


def test_rings_of_many_messages_are_taken_at_once(worker: Worker) -> None:
    os.write(worker.ring, 100 * MESSAGE)
    worker.arena.mail[1] = 1
    assert worker.doze(60.0) == 100 * MESSAGE


def test_the_end_of_the_bell_is_heard(worker: Worker) -> None:
    os.close(worker.ring)
    assert worker.doze(0.001) == b""
    worker.ring = os.open(os.devnull, os.O_RDONLY)  # for the fixture to close
