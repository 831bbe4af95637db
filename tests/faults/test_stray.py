"""Envs that fork: what they have forked is no worker, whichever way it leaves the env's code."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from functools import partial

import psutil
import pytest

from envmgr import create_env_manager
from tests.helpers import envs
from tests.helpers.managers import actions_for, in_processes, in_start_methods, wait_ready
from tests.helpers.sync import Log, wait_until

ENDS = {"sys.exit": 3, "raise": 1, "return": -signal.SIGSEGV}


class ForkingEnv(envs.CounterEnv):
    """Forks in every call, waits for the child, and keeps how it ended."""

    def __init__(self, env_id=0, end="sys.exit", where="step", log=None):
        super().__init__(env_id, log=log)
        self.end, self.where, self.codes = end, where, []

    def _fork(self, where, value):
        if self.where != where:
            return value
        child = os.fork()
        if child == 0:
            if self.end == "sys.exit":
                sys.exit(3)
            elif self.end == "raise":
                raise RuntimeError("in a child of the env")
            faulthandler.disable()  # its report on stderr is not what is tested
            return value
        self.codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return value

    def step(self, action):
        return self._fork("step", super().step(action))

    def reset(self, **kwargs):
        return self._fork("reset", super().reset(**kwargs))

    def close(self):
        self._fork("close", None)
        if self.where == "close":
            self.log.add("code", self.codes.pop())
        super().close()

    def forks(self):
        """Calls too."""
        return self._fork("call", None)


@pytest.mark.case("F16")
@pytest.mark.parametrize("per_worker", [1, 2])
@pytest.mark.parametrize("where", ["step", "reset", "call", "close"])
@pytest.mark.parametrize("end", ENDS)
@in_processes
def test_a_fork_of_an_env_never_goes_on_as_a_worker(make, end, where, per_worker, tmp_path):
    """It went on as a second worker on the same rows, which mixed steps up without a word."""
    log = Log(tmp_path / "log")
    fns = [partial(ForkingEnv, i, end, where, log) for i in range(2)]
    manager = make.launched(fns, envs_per_worker=per_worker)
    for t in range(1, 4):
        told = manager.step(actions_for(range(2)))
        assert {i: ts.obs.tolist() for i, ts in told.items()} == {i: [i, 0, t] for i in range(2)}
        if where == "call":
            assert manager.forks() == [None, None]
    messages = where in ("call", "close")  # nothing there is in rows
    expected = 1 if messages and end == "return" else ENDS[end]
    if where == "close":
        manager.close()
        assert log.lines("code") == [["code", str(expected)]] * 2
        assert len(log.lines("close")) == 2
        return
    codes = manager.codes
    assert all(codes) and {code for env in codes for code in env} == {expected}


def forks(end):
    """An env_fn that does."""
    child = os.fork()
    if child == 0:
        if end == "sys.exit":
            sys.exit(3)
        elif end == "raise":
            raise RuntimeError("in a child of the env_fn")
        return envs.CounterEnv()
    env = envs.CounterEnv()
    env.code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return env


@pytest.mark.case("F16")
@pytest.mark.parametrize("end", ENDS)
@in_processes
def test_nor_does_a_fork_of_an_env_fn(make, end):
    manager = make.launched([partial(forks, end)] * 2)
    assert manager.code == [{"sys.exit": 3}.get(end, 1)] * 2
    assert manager.step(actions_for(range(2)))[1].obs.tolist() == [0, 0, 1]


def keeps_pipes(log):
    """An env that has left a process running, in a session of its own, with all that it inherited."""
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
    log.add("left", child)
    return envs.CounterEnv()


@pytest.mark.case("F03", "F16")
@in_start_methods
def test_processes_that_outlive_their_worker_keep_nobody_from_learning_how_it_ended(make, tmp_path):
    log = Log(tmp_path / "log")
    manager = make.launched([partial(keeps_pipes, log)] * 2, on_error="reset")
    try:
        os.kill(manager.where_pid[0], signal.SIGKILL)
        told = manager.step(actions_for(range(2)))
        assert "was killed by SIGKILL" in str(told[0].info["err"])
        wait_ready(manager)
        manager.close()
    finally:
        for _, pid in log.lines("left"):
            os.kill(int(pid), signal.SIGKILL)


def lingers(log, gate):
    """From the second time on it fails, and leaves a thread that keeps its interpreter alive."""
    import threading

    if not envs.first_time(gate):
        threading.Thread(target=threading.Event().wait).start()
        log.add("failed", os.getpid())
        raise envs.Boom("no build")
    return envs.CounterEnv()


@pytest.mark.case("F15")
def test_a_worker_whose_env_fn_failed_and_that_lives_on_is_ended(make_one, tmp_path):
    log = Log(tmp_path / "log")
    manager = make_one(
        [partial(lingers, log, str(tmp_path / "gate"))], on_error="reset", max_retry=100, max_renewals=100,
        retry_waiting_time=0.01,
    )  # fmt: skip
    manager.launch()
    wait_ready(manager)
    os.kill(manager.where_pid[0], signal.SIGKILL)
    manager.step({0: 0})
    failed = log.wait("failed", 3, 40)
    wait_until(lambda: not [1 for _, pid in failed[:2] if psutil.pid_exists(int(pid))], "two to go")


def fails_once(gate):
    """The second time that it is called it fails."""
    if not envs.first_time(f"{gate}-1") and envs.first_time(f"{gate}-2"):
        raise envs.Boom("no build")
    return envs.CounterEnv()


@pytest.mark.case("S04")
def test_nothing_is_kept_of_a_worker_whose_env_fn_failed(make_one, tmp_path):
    """It may still be going when its successor is asked for; when it has gone, so has its descriptor."""
    manager = make_one(
        [partial(fails_once, str(tmp_path / "gate"))], on_error="reset", retry_waiting_time=0.01
    )
    manager.launch()
    wait_ready(manager)
    before = len(os.listdir("/proc/self/fd"))
    os.kill(manager.where_pid[0], signal.SIGKILL)
    manager.step({0: 0})
    wait_ready(manager)
    wait_until(lambda: len(os.listdir("/proc/self/fd")) == before, "its descriptor to be closed")


@pytest.fixture
def make_one():
    from tests.helpers.managers import making

    yield from making("subprocess-spawn")


class ManagingEnv(envs.CounterEnv):
    """Has a manager of its own, in processes or, in a helper that it forks, in that."""

    def __init__(self, kind, helper):
        super().__init__()
        self.kind, self.helper = kind, helper

    def _inner(self):
        inner = [partial(envs.FaultyEnv, step_fault="raise", at_step=2)]
        with create_env_manager({"type": self.kind, "on_error": "reset"}, inner) as manager:
            manager.launch()
            good, bad = manager.step({0: 0})[0], manager.step({0: 0})[0]
            return 5 if good.obs[-1] == 1 and bad.info["abnormal"] else 6

    def step(self, action):
        self.told = None
        if not self.helper:
            self.told = self._inner()
        else:
            child = os.fork()
            if child == 0:
                os._exit(self._inner())
            self.told = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return super().step(action)


@pytest.mark.case("F16")
@pytest.mark.parametrize("kind", ["base", "subprocess"])
@pytest.mark.parametrize("helper", [False, True])
@in_processes
def test_an_env_may_have_a_manager_of_its_own(make, kind, helper):
    manager = make.launched([partial(ManagingEnv, kind, helper)])
    assert manager.step({0: 0})[0].obs.tolist() == [0, 0, 1]
    assert manager.told == [5]
