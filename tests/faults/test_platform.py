"""What a worker's process is like, and what it leaves alone: BLAS threads, cores, start methods, warnings."""

from __future__ import annotations

import os
import sys

import psutil
import pytest

from envmgr import EnvInitError, EnvResetError, EnvTimeoutError
from tests.helpers import envs, platform_envs
from tests.helpers.managers import (
    in_async,
    in_start_methods,
    in_sync,
    kinds,
    many,
    step_until,
    wait_ready,
)
from tests.helpers.sync import Background, Log, within

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@pytest.mark.case("P01")
class TestBlasThreads:
    @in_start_methods
    def test_one(self, make, monkeypatch):
        for name in platform_envs.BLAS_AT_IMPORT:
            monkeypatch.delenv(name, raising=False)
        manager = make.launched(many(platform_envs.PlatformEnv, 1))
        (threads,) = manager.blas_threads
        assert threads and set(threads) == {1}
        if make.context == "spawn":
            assert set(manager.blas_at_import[0].values()) == {"1"}

    @kinds("subprocess-spawn")
    def test_the_user_may_want_more(self, make, monkeypatch):
        name = "OMP_NUM_THREADS"
        for other in platform_envs.BLAS_AT_IMPORT:
            monkeypatch.delenv(other, raising=False)
        monkeypatch.setenv(name, "2")
        manager = make.launched(many(platform_envs.PlatformEnv, 1))
        assert manager.blas_at_import[0][name] == "2"
        assert set(manager.blas_threads[0]) == {min(2, os.cpu_count())}


@pytest.mark.case("P02")
@kinds("subprocess-spawn")
def test_eight_workers_come_up_side_by_side(make, signals):
    """Each env_fn waits until all eight have been called: one after the other, none would come back."""
    arrived, gate = signals("arrived"), signals("gate")
    manager = make(many(platform_envs.built_together, 8, arrived=arrived, gate=gate))
    call = Background(manager.launch)
    arrived.wait(8, deadline=50)
    gate.post(8)
    call.result(50)
    assert sorted(wait_ready(manager)) == list(range(8))


NO_LIMITS = {"connect_timeout": None, "reset_timeout": None, "step_timeout": None}


@pytest.mark.case("P03")
class TestEachLimitReachesItsWait:
    """One limit, and something that takes for ever: what ends it names that limit."""

    @in_sync
    def test_connect_timeout(self, make):
        limits = {**NO_LIMITS, "connect_timeout": 0.75, "interrupt_grace": 0.1, "close_grace": 0.1}
        manager = make([envs_that_hang], **limits)
        with pytest.raises(EnvInitError, match=r"connect_timeout=0\.75"):
            within(30, manager.launch)

    @in_sync
    def test_reset_timeout(self, make):
        fns = many(envs.FaultyEnv, 1, reset_fault="sleep")
        manager = make(fns, **{**NO_LIMITS, "reset_timeout": 0.25}, max_retry=1)
        with pytest.raises(EnvResetError, match=r"reset_timeout=0\.25"):
            within(30, manager.launch)

    @in_async
    def test_step_timeout(self, make):
        fns = many(envs.FaultyEnv, 1, step_fault="sleep", at_step=1)
        manager = make.launched(fns, **{**NO_LIMITS, "step_timeout": 0.25})
        with pytest.raises(EnvTimeoutError, match=r"step_timeout=0\.25"):
            within(30, step_until, manager, {0: 0})

    @pytest.mark.parametrize("grace", [0.1, 600])
    @in_sync
    def test_close_grace(self, make, signals, tmp_path, grace):
        entered, gate, log = signals("entered"), signals("gate"), Log(tmp_path / "log")
        fns = many(platform_envs.ClosingSlowlyEnv, 1, entered=entered, gate=gate, log=log)
        manager = make.launched(fns, close_grace=grace)
        call = Background(manager.close)
        entered.wait()
        if grace > 1:
            gate.post()
        call.result(20)
        assert len(log.lines("through")) == (grace > 1)


def envs_that_hang():
    """An env_fn that does not come back."""
    return envs.failing_env_fn("sleep")


@pytest.mark.skipif(not CORES, reason="only Linux says where a process may run")
class TestCores:
    @pytest.mark.parametrize("affinity", ["spread", CORES[::-1], CORES[-1:]])
    @in_sync
    def test_workers_run_where_they_are_told_to(self, make, affinity):
        manager = make.launched(many(platform_envs.PlatformEnv, 3), cpu_affinity=affinity)
        cores = CORES if affinity == "spread" else affinity
        assert manager.cores == [[cores[i % len(cores)]] for i in range(3)]
        assert sorted(os.sched_getaffinity(0)) == CORES

    @in_start_methods
    def test_a_renewed_worker_too(self, make):
        fns = many(platform_envs.PlatformEnv, 2)
        manager = make.launched(fns, cpu_affinity=CORES[-1:], on_error="reset")
        before = manager.where_pid
        psutil.Process(before[1]).kill()
        assert step_until(manager, {1: 0})[1].info["abnormal"]
        wait_ready(manager)
        assert manager.where_pid[1] != before[1]
        assert manager.cores == [CORES[-1:]] * 2


START_METHOD = """
import multiprocessing

manager = make(many(envs.CounterEnv, 2), on_error="reset")
if BEFORE:
    multiprocessing.set_start_method(OTHER)
manager.launch()
if not BEFORE:
    multiprocessing.set_start_method(OTHER)
assert multiprocessing.get_start_method() == OTHER
os.kill(manager.where_pid[0], signal.SIGKILL)
assert manager.step({0: 0})[0].info["abnormal"]
while 0 not in manager.ready_obs:
    pass
assert manager.step({0: 0, 1: 0})[1].obs.tolist() == [1, 0, 1]
queue = multiprocessing.Queue()
process = multiprocessing.Process(target=queue.put, args=(OTHER,))
process.start()
log.add("got", queue.get())
process.join()
manager.close()
"""


@pytest.mark.case("P05")
@pytest.mark.parametrize(
    ("context", "other", "before"),
    [("fork", "spawn", False), ("spawn", "fork", False), ("fork", "spawn", True)],
)
def test_the_users_own_start_method_is_the_users(script, context, other, before):
    body = START_METHOD.replace("OTHER", repr(other)).replace("BEFORE", str(before))
    one = script(body, "subprocess", context)
    assert one.wait(50) == 0, one.err
    assert one.log.lines("got") == [["got", other]]


WARNED = """
import warnings

assert sys.warnoptions == ["error"]
with make(many(envs.CounterEnv, 2)) as manager:
    manager.launch()
    manager.reset()
    for _ in range(3):
        manager.step({0: 0, 1: 0})
log.add("through")
"""


@pytest.mark.case("P06")
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_no_warning_of_python_s_own(script, context, monkeypatch):
    """All warnings are errors, in the workers too: DeprecationWarning among them."""
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    one = script(WARNED, "subprocess", context)
    assert one.wait(50) == 0, one.err
    assert one.err == "" and one.log.lines("through"), sys.version
