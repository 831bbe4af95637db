"""What goes wrong while workers come up: a bad env_fn, a slow one, a dead one, a lock held, no memory."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces

from envmgr import EnvInitError, EnvManagerError, EnvTimeoutError, ShmError, WorkerDied, create_env_manager
from tests.helpers import envs, locked
from tests.helpers.managers import (
    in_every_process_kind,
    in_processes,
    in_start_methods,
    kinds,
    launch_all,
    many,
    step_until,
    wait_ready,
)
from tests.helpers.scripts import alive
from tests.helpers.sync import Background, Log, first_time, within


def fails_when_renewed(kind, here):
    """An env_fn that works once, and then never comes back."""
    if not first_time(here):
        envs.do_fault(kind)
    return envs.CounterEnv()


def dies_when_built(kind, log):
    """An env_fn that says in which process it is, and takes it with it."""
    log.add("pid", os.getpid())
    envs.do_fault(kind)


@pytest.mark.case("F15")
@pytest.mark.parametrize(("kind", "line"), [("sleep", "time.sleep(600)"), ("stubborn", "in hang_stubbornly")])
class TestAWorkerThatIsSlowToComeUp:
    """It is interrupted first, then killed; where it was stuck is told."""

    @in_start_methods
    def test_at_launch(self, make, kind, line):
        limit = 3.0 if make.context == "fork" else 12.0  # a busy machine takes its time over an interpreter
        manager = make(
            [partial(envs.CounterEnv, 0), partial(envs.failing_env_fn, kind)],
            connect_timeout=limit, interrupt_grace=0.3, close_grace=0.3,
        )  # fmt: skip
        with pytest.raises(EnvInitError, match=r"env 1: its worker .* connect_timeout=(3|12) s") as caught:
            within(40, manager.launch)
        assert isinstance(caught.value, EnvTimeoutError)
        assert caught.value.env_id == 1
        assert line in str(caught.value)

    @in_processes
    def test_at_a_renewal(self, make, kind, line, tmp_path, caplog):
        manager = make.launched(
            [partial(fails_when_renewed, kind, str(tmp_path / "built"))],
            on_error="reset", max_retry=1, connect_timeout=3.0, interrupt_grace=0.3,
        )  # fmt: skip
        os.kill(manager.where_pid[0], signal.SIGKILL)
        assert manager.step({0: 0})[0].info["abnormal"]
        with pytest.raises(EnvManagerError, match=r"connect_timeout=3 s") as caught:
            within(30, wait_ready, manager)
        assert line in str(caught.value)
        assert (line in caplog.text) == (kind == "stubborn"), "of one that is killed it is in the log, too"


def workers():
    """This process's children that are not multiprocessing's own helpers."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            command = " ".join(child.cmdline())
        except psutil.NoSuchProcess:
            continue
        if "resource_tracker" not in command and "forkserver" not in command.split("spawn_main")[0]:
            found.append(child)
    return alive(found)


@pytest.mark.case("F15")
class TestEnvFn:
    @in_every_process_kind
    def test_raises_and_the_others_are_closed(self, make, tmp_path):
        log = Log(tmp_path / "log")
        fns = [*many(envs.CounterEnv, 2, log=log), envs.failing_env_fn]
        manager = make(fns, close_grace=60.0)  # or those that are slow to come up would be broken off
        with pytest.raises(EnvInitError, match="boom in user code") as caught:
            manager.launch()
        assert caught.value.env_id == 2
        assert isinstance(caught.value.__cause__, envs.Boom)
        assert {words[1] for words in log.lines("close")} == {words[1] for words in log.lines("init")}

    @kinds("base", "subprocess-spawn")
    def test_an_unknown_id_is_the_start_method_s_matter_only_where_the_script_is_not_run(self, make):
        with pytest.raises(EnvInitError, match="NameNotFound") as caught:
            make([partial(gymnasium.make, "NoSuchEnv-v0")]).launch()
        assert ("register the env inside its env_fn" in str(caught.value)) is not make.is_base

    @pytest.mark.case("F19")
    @pytest.mark.parametrize("kind", ["system_exit", "keyboard_interrupt"])
    @in_processes
    def test_exits(self, make, kind):
        manager = make([partial(envs.failing_env_fn, kind)])
        with pytest.raises(EnvInitError) as caught:
            manager.launch()
        assert caught.value.env_id == 0

    @pytest.mark.case("F03")
    @pytest.mark.parametrize(
        ("kind", "exitcode", "signal_name", "told"),
        [
            ("exit", envs.FAULT_EXIT_CODE, None, "ended with exit code 7"),
            ("exit0", 0, None, "ended with exit code 0"),
            ("sigkill", -signal.SIGKILL, "SIGKILL", "was killed by SIGKILL"),
            ("sigsegv", -signal.SIGSEGV, "SIGSEGV", "was killed by SIGSEGV"),
        ],
    )
    @in_start_methods
    def test_dies(self, make, kind, exitcode, signal_name, told, tmp_path):
        log = Log(tmp_path / "log")
        manager = make([partial(envs.CounterEnv, 0), partial(dies_when_built, kind, log)])
        with pytest.raises(WorkerDied) as caught:
            within(30, manager.launch)
        error, [[_, pid]] = caught.value, log.lines("pid")
        assert (error.env_id, error.pid, error.env_ids) == (1, int(pid), (1,))
        assert (error.exitcode, error.signal_name) == (exitcode, signal_name)
        assert f"env 1: its worker died while it was built: process {pid} {told}" in str(error)
        assert manager.closed and not workers()

    @in_processes
    def test_a_launch_that_failed_can_be_repeated(self, make, tmp_path):
        once = str(tmp_path / "once")

        def build():
            if first_time(once):
                envs.raise_boom("only the first time")
            return envs.CounterEnv(0)

        manager = make([build])
        with pytest.raises(EnvInitError, match="only the first time"):
            manager.launch()
        assert not workers()
        manager.launch()
        assert wait_ready(manager)[0].tolist() == [0, 0, 0]

    @in_processes
    def test_one_of_several_in_a_worker(self, make):
        fns = [*many(envs.CounterEnv, 3), envs.no_env]
        manager = make(fns, envs_per_worker=4)
        with pytest.raises(EnvInitError, match=r"(?i)none") as caught:
            manager.launch()
        assert caught.value.env_id == 3

    @pytest.mark.parametrize("context", ["spawn", "forkserver"])
    def test_an_env_fn_that_does_not_pickle_says_so(self, context):
        lock = threading.Lock()
        with create_env_manager(
            {"type": "subprocess", "context": context}, [partial(envs.CounterEnv, 0), lambda: (lock, 1)]
        ) as manager:
            with pytest.raises(EnvManagerError, match=r"(?i)pickle") as caught:
                within(20, manager.launch)
            assert caught.value.env_id == 1


@pytest.mark.case("F16")
@in_start_methods
def test_an_env_that_starts_a_process_of_its_own(make):
    manager = make.launched(many(envs.SpawningEnv, 2))
    assert manager.answer == [42, 42]
    assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 0, 1]


@pytest.mark.case("F17")
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_a_thread_of_the_parent_holds_a_lock_at_launch(context):
    """The env takes the lock in its reset. No deadlock, and none that a retry on a fresh worker hides."""
    holding, release = threading.Event(), threading.Event()

    def hold():
        with locked.LOCK:
            holding.set()
            release.wait(60)

    holder = Background(hold)
    cfg = {"type": "subprocess", "context": context, "reset_timeout": 3.0, "connect_timeout": 20.0}
    cfg |= {"max_retry": 2, "retry_type": "renew", "interrupt_grace": 0.3, "close_grace": 0.3}
    try:
        assert holding.wait(10)
        with create_env_manager(cfg, many(envs.LockTakingEnv, 2)) as manager:
            obs = within(30, launch_all, manager)
            assert obs[1].tolist() == [1, 0, 0]
            for row in manager.stats().values():
                assert [row[what] for what in ("timeouts", "failures", "retries", "renewals")] == [0] * 4
    finally:
        release.set()
        holder.result()


@pytest.mark.case("S03")
class TestMemory:
    def fns(self, n=128):
        space = spaces.Box(-np.inf, np.inf, (4, 84, 84), np.float32)
        return many(envs.ObsEnv, n, space=space, observations=[np.zeros((4, 84, 84), np.float32)])

    def test_too_little_is_said_before_the_first_step(self, monkeypatch):
        from envmgr.memory import budget

        monkeypatch.setattr(budget, "available_bytes", lambda: 4 << 20)
        with create_env_manager({"type": "subprocess", "num_workers": 2}, self.fns()) as manager:
            with pytest.raises(ShmError, match=r"(?is)need.*free|free.*need") as caught:
                manager.launch()
            text = str(caught.value)
            assert "shm" in text.lower(), "what to do in a container"
            assert isinstance(caught.value, OSError)

    def test_128_envs_of_four_frames_run(self):
        with create_env_manager({"type": "subprocess", "num_workers": 2}, self.fns()) as manager:
            manager.launch()
            obs, _ = manager.reset_arrays()
            assert obs.shape == (128, 4, 84, 84)
            assert manager.step_arrays(np.zeros(128, np.int64)).obs.shape == (128, 4, 84, 84)


@pytest.mark.case("F19")
@in_start_methods
def test_an_env_that_prints_ten_megabytes(make, capfd):
    manager = make.launched(many(envs.PrintingEnv, 2))
    for t in range(1, 4):
        assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 0, t]
    manager.close()
    assert capfd.readouterr().out.count("x") == 2 * 10 * 1024 * 1023
