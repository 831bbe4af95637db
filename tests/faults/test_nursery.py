"""No worker is left behind: not with its nursery, nor where it is taken for dead and lives."""

from __future__ import annotations

import os
import signal
import socket
from functools import partial

import psutil
import pytest

from envmgr.workers.nursery_client import NurseryClient
from tests.helpers import envs
from tests.helpers.managers import CONTEXTS, actions_for, in_processes, in_start_methods, many, wait_ready
from tests.helpers.scripts import signal_at, wait_gone
from tests.helpers.sync import wait_until, within

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
    with ours, theirs, open(os.devnull, "w") as stack:
        try:
            assert nursery.start_worker(0, 1, theirs, stack.fileno())
            before.wait(deadline=40)
            family = psutil.Process(nursery.pid).children(recursive=True)
            assert family
        finally:
            nursery.close()
    wait_gone(family)


@pytest.mark.case("F15", "F04")
@in_start_methods
def test_a_worker_that_is_taken_for_dead_and_lives_is_killed(make, tmp_path):
    """It has closed everything that it could be heard by; its successor must not share its rows with it."""
    once = str(tmp_path / "once")
    fns = many(envs.FaultyEnv, 2, step_fault="deaf", once=once)
    manager = make.launched(fns, on_error="reset", retry_type="renew", step_timeout=None)
    workers = [psutil.Process(manager.where_pid[i]) for i in range(2)]
    told = manager.step(actions_for(range(2)))
    (hit,) = [i for i, ts in told.items() if ts.info.get("abnormal")]
    wait_gone([workers[hit]])
    assert workers[1 - hit].is_running()
    wait_ready(manager)
    assert manager.where_pid[hit] != workers[hit].pid
    assert not any(ts.info.get("abnormal") for ts in manager.step(actions_for(range(2))).values())


@pytest.mark.case("F03")
@pytest.mark.parametrize("then", ["connect_timeout", "killed"])
@in_processes
def test_a_nursery_that_is_stopped_or_dies_while_it_should_start_a_worker(make, then):
    """Nobody ever told of a worker that it had not started; and a death before its own ended the run."""
    limit = 1.0 if then == "connect_timeout" else 60.0
    manager = make.launched(many(envs.CounterEnv, 2), on_error="reset", connect_timeout=limit)
    family = manager._engine.pool._family
    first = family.nursery.pid
    os.kill(first, signal.SIGSTOP)
    os.kill(manager.where_pid[1], signal.SIGKILL)
    told = manager.step(actions_for(range(2)))
    assert told[1].info["abnormal"] and told[0].obs.tolist() == [0, 0, 1]
    if then == "killed":
        wait_until(lambda: family.links[1].generation == 2, "its successor to be asked for")
        os.kill(first, signal.SIGKILL)
    within(20, wait_ready, manager)
    assert family.nursery.pid != first
    assert manager.step(actions_for(range(2)))[1].obs.tolist() == [1, 0, 1]


@pytest.mark.case("F03", "F04")
@pytest.mark.parametrize("fault", ["exit", "stubborn", "sleep", "sigstop"])
@in_processes
def test_where_a_system_has_no_pidfds(make, fault, tmp_path, monkeypatch):
    """There a worker's end is seen on a pipe, and signals go by its number."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    fns = many(envs.FaultyEnv, 2, step_fault=fault, once=str(tmp_path / "once"))
    manager = make.launched(fns, on_error="reset", step_timeout=0.5, interrupt_grace=0.3)
    told = within(30, manager.step, actions_for(range(2)))
    assert sum(bool(ts.info.get("abnormal")) for ts in told.values()) == 1
    within(30, wait_ready, manager)
    pids = [psutil.Process(manager.where_pid[i]) for i in range(2)]
    assert len(manager.step(actions_for(range(2)))) == 2
    manager.close()
    wait_gone(pids)
