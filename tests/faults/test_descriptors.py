"""File descriptors run out, or processes do: said in words, nothing stays, nobody is waited for in vain."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from functools import partial

import pytest

from envmgr import EnvInitError, EnvManagerError
from envmgr.workers import closing, descriptors
from envmgr.workers.process import ProcessPool
from tests.helpers import envs
from tests.helpers.managers import actions_for, in_processes, in_sync, many, wait_ready
from tests.helpers.sync import Log, wait_until, within

TAKEN = 400  # more than envmgr asks for of itself, so that it does not raise the limit


@contextlib.contextmanager
def crowded():
    """Every descriptor below ``TAKEN`` is taken; gives what sets how many more there may be."""
    held = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        while not held or held[-1] < TAKEN - 1:
            held.append(os.open(os.devnull, os.O_RDONLY))

        @contextlib.contextmanager
        def room(for_so_many):
            resource.setrlimit(resource.RLIMIT_NOFILE, (TAKEN + for_so_many, limits[1]))
            try:
                yield
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)

        yield room
    finally:
        for fd in held:
            os.close(fd)


def open_fds():
    return set(os.listdir("/proc/self/fd"))


def fails_in_the_background(manager):
    """The error that the manager's next call raises, once it does; the manager is closed by that."""
    with pytest.raises(EnvManagerError) as caught:
        wait_until(lambda: manager.ready_obs is None, "the background to fail")
    return str(caught.value)


@in_sync
def test_too_few_for_a_launch_are_counted_before_anything_starts(make):
    with crowded() as room:
        before = open_fds()
        for k in (0, 10, 20):
            manager = make(many(envs.CounterEnv, 2))
            with room(k), pytest.raises(EnvInitError, match=r"2 workers need 24 .* left .*ulimit -n"):
                manager.launch()
            assert open_fds() == before
        manager = make(many(envs.CounterEnv, 2))
        with room(25):  # what was asked for is enough
            manager.launch()
            wait_ready(manager)
            assert manager.step({0: 0})[0].obs.tolist() == [0, 0, 1]


@pytest.mark.parametrize("k", range(6, 13))
def test_when_they_run_out_half_way_nothing_stays_open(k, monkeypatch):
    """The nursery takes six for a moment and keeps three; then come bells, the wait, sockets."""
    monkeypatch.setattr(descriptors, "check", lambda _: None)
    pool = ProcessPool([partial(envs.CounterEnv, i) for i in range(2)], [range(1), range(1, 2)], "fork", {})
    with crowded() as room:
        before = open_fds()
        with room(k), pytest.raises(EnvInitError, match=r"Too many open files.*ulimit -n"):
            pool.open()
        within(20, pool.close, 60)
        assert open_fds() == before


@in_processes
def test_none_for_a_renewal(make):
    with crowded() as room:
        manager = make.launched(many(envs.CounterEnv, 2), on_error="reset", close_grace=60)
        pids = manager.where_pid
        with room(0):
            os.kill(pids[1], signal.SIGKILL)
            text = fails_in_the_background(manager)
    assert "worker 1" in text and "Too many open files" in text and "ulimit -n" in text
    assert "bug" not in text
    assert manager.closed


@in_processes
def test_a_worker_that_the_system_refuses_is_not_waited_for(make):
    manager = make.launched(many(envs.CounterEnv, 2), on_error="reset", close_grace=600)
    pids = manager.where_pid
    resource.prlimit(manager._engine.pool._family.nursery.pid, resource.RLIMIT_NOFILE, (4, 4))
    os.kill(pids[1], signal.SIGKILL)
    text = within(20, fails_in_the_background, manager)
    assert "no process for worker 1" in text and "Too many open files" in text and "num_workers" in text


@in_sync
def test_a_forked_child_of_the_callers_lets_go_of_every_descriptor(make, tmp_path):
    """But of the rows, and of two pipes by which multiprocessing sees that the nursery lives."""
    before = open_fds()
    make.launched(many(envs.CounterEnv, 3))
    assert len(open_fds() - before) > 12
    log = Log(tmp_path / "log")
    child = os.fork()
    if child == 0:
        kinds = []
        for fd in open_fds() - before:
            with contextlib.suppress(OSError):  # that of the listing
                kinds.append(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0])
        log.add("kinds", *kinds)
        os._exit(0)
    os.waitpid(child, 0)
    (kinds,) = log.lines("kinds")
    assert sorted(set(kinds)) == ["/memfd", "kinds", "pipe"]
    assert kinds.count("pipe") == 2


@in_sync
def test_close_does_not_spin_when_the_nursery_is_dead(make, signals, monkeypatch):
    manager = make.launched(many(envs.CloseHangsEnv, 2), close_grace=0.6, interrupt_grace=0.3)
    looks = []
    look = closing.still_there
    monkeypatch.setattr(closing, "still_there", lambda *a: looks.append(1) or look(*a))
    nursery = manager._engine.pool._family.nursery
    os.kill(nursery.pid, signal.SIGKILL)
    assert nursery.exitcode() == -9
    within(20, manager.close)
    assert len(looks) < 20


@in_sync
def test_a_worker_of_a_dead_nursery_is_not_waited_for_when_there_is_a_new_one(make):
    manager = make.launched(many(envs.CounterEnv, 2), on_error="reset", close_grace=600)
    pids = manager.where_pid
    os.kill(manager._engine.pool._family.nursery.pid, signal.SIGKILL)
    os.kill(pids[1], signal.SIGKILL)
    assert manager.step(actions_for(range(2)))[1].info["abnormal"]
    wait_ready(manager)
    within(20, manager.close)
