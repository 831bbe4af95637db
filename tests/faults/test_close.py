"""``close``: bounded, idempotent, complete, whatever the workers are doing (F06, O03)."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from functools import partial

import psutil
import pytest

from envmgr import (
    EnvInitError,
    EnvManagerError,
    EnvResetError,
    EnvStepError,
    EnvTimeoutError,
    IllegalStateError,
    ManagerClosedError,
    WorkerDied,
    create_env_manager,
)
from envmgr.engine.engine import Engine
from envmgr.workers.contract import Flag
from envmgr.workers.hygiene import INTERRUPT_SIGNAL
from tests.helpers import envs, platform_envs
from tests.helpers.managers import (
    CONTEXTS,
    actions_for,
    in_async,
    in_base,
    in_base_and_start_methods,
    in_processes,
    in_start_methods,
    kinds,
    many,
    step_until,
    wait_ready,
)
from tests.helpers.scripts import alive, wait_gone
from tests.helpers.sync import Background, Log, wait_until, within


@pytest.mark.case("F06")
@pytest.mark.parametrize("context", CONTEXTS)
def test_sixteen_workers_close_side_by_side_and_none_is_killed(context, signal_at, tmp_path):
    """How long it takes is measured by benchmarks/closing.py."""
    entered, gate = signal_at(tmp_path / "entered"), signal_at(tmp_path / "gate")
    log = Log(tmp_path / "log")
    fns = many(platform_envs.ClosingSlowlyEnv, 16, entered=entered, gate=gate, log=log)
    cfg = {"type": "subprocess", "context": context, "close_grace": 600.0}
    with create_env_manager(cfg, fns) as manager:
        manager.launch()
        wait_ready(manager)
        step_until(manager, actions_for(range(16)))
        pids = [psutil.Process(p) for p in manager.where_pid]
        links = manager._engine.pool._family.links
        closing = Background(manager.close)
        try:
            entered.wait(16)
            assert closing.running and log.lines("through") == []
        finally:
            gate.post(16)
        closing.result()
        assert manager.closed and not alive(pids)
        assert len(log.lines("through")) == 16
        assert [link.closed for link in links] == [{}] * 16, "each has said that it closed its env"


@pytest.mark.case("F09")
class TestAfterAnError:
    @pytest.mark.parametrize(
        ("fault", "kind_of_error", "closed"),
        [
            ("raise", EnvStepError, ["0", "1", "2"]),
            ("sleep", EnvTimeoutError, ["0", "1", "2"]),
            ("stubborn", EnvTimeoutError, ["0", "2"]),
            ("sigkill", WorkerDied, ["0", "2"]),
        ],
    )
    @in_processes
    def test_in_a_step_the_envs_that_are_left_are_closed(self, make, tmp_path, fault, kind_of_error, closed):
        log = Log(tmp_path / "log")
        fns = many(envs.CounterEnv, 3, log=log)
        fns[1] = partial(envs.FaultyEnv, 1, step_fault=fault, at_step=2, log=log)
        manager = make.launched(fns, step_timeout=0.5, interrupt_grace=0.3)
        step_until(manager, actions_for(range(3)))
        with pytest.raises(kind_of_error):
            within(20, step_until, manager, actions_for(range(3)))
        assert manager.closed
        assert sorted(words[1] for words in log.lines("close")) == closed

    @in_base_and_start_methods
    def test_in_a_reset_all_are_closed(self, make, tmp_path):
        log = Log(tmp_path / "log")
        fns = many(envs.CounterEnv, 3, log=log)
        fns[1] = partial(envs.FaultyEnv, 1, reset_fault="raise", at_reset=2, log=log)
        manager = make.launched(fns, max_retry=1, **({} if make.is_base else {"envs_per_worker": 2}))
        with pytest.raises(EnvResetError):
            within(20, lambda: manager.reset() or wait_ready(manager))
        assert manager.closed
        assert sorted(words[1] for words in log.lines("close")) == ["0", "1", "2"]

    @in_base_and_start_methods
    def test_in_a_launch_what_was_built_is_closed(self, make, tmp_path):
        log = Log(tmp_path / "log")
        fns = many(envs.CounterEnv, 3, log=log)
        fns[2] = envs.failing_env_fn
        manager = make(fns)
        with pytest.raises(EnvInitError):
            within(20, manager.launch)
        assert manager.closed
        built, closed = ([words[1] for words in log.lines(what)] for what in ("init", "close"))
        assert sorted(closed) == sorted(built)


@pytest.mark.case("O03")
class TestWhateverTheWorkersDo:
    def check(self, manager, pids):
        within(20, manager.close)
        assert manager.closed
        wait_gone(pids, 5)
        manager.close()

    @pytest.mark.parametrize("face", ["dict", "arrays"])
    @in_start_methods
    def test_nothing_pending(self, make, face):
        manager = make.launched(many(envs.CounterEnv, 3))
        if face == "arrays":
            manager.reset_arrays()
        self.check(manager, [psutil.Process(p) for p in manager.where_pid])

    @in_async
    @pytest.mark.parametrize("face", ["dict", "arrays"])
    def test_everything_pending(self, make, signals, face):
        fns = many(envs.CounterEnv, 3, gate=signals("gate"), entered=signals("entered"))
        manager = make.launched(fns, wait_num=1, step_wait_timeout=0, close_grace=0.5, interrupt_grace=0.3)
        pids = [psutil.Process(p) for p in manager.where_pid]
        if face == "arrays":
            manager.reset_arrays()
            manager.send([0, 0, 0])
        else:
            signals("gate").post()
            manager.step(actions_for(range(3)))
        signals("entered").wait(3)
        self.check(manager, pids)

    @in_processes
    def test_results_in_that_nobody_took(self, make):
        manager = make(many(envs.CounterEnv, 3))
        manager.launch()
        manager.reset_arrays()
        pids = [psutil.Process(p) for p in manager.where_pid]
        manager.send([0, 0, 0])
        flag = manager._engine._core.arena.flag
        wait_until(lambda: (flag == int(Flag.IN)).all(), "all results to be in")
        self.check(manager, pids)

    @kinds("subprocess-fork", "async_subprocess-spawn")
    def test_a_dead_a_hung_and_a_stopped_worker_at_once(self, make, signals):
        fns = many(envs.CounterEnv, 4)
        fns[1] = partial(envs.FaultyEnv, 1, step_fault="stubborn", before=signals("before"))
        manager = make.launched(fns, step_timeout=None, close_grace=0.5, interrupt_grace=0.3)
        pids = [psutil.Process(p) for p in manager.where_pid]
        call = Background(manager.step, {1: 0})
        signals("before").wait()
        pids[2].suspend()
        pids[0].kill()
        wait_gone(pids[:1])
        self.check(manager, pids)
        with pytest.raises(EnvManagerError, match=r"(?i)closed"):
            call.result(5)

    @in_start_methods
    def test_a_dead_worker(self, make):
        manager = make.launched(many(envs.CounterEnv, 3))
        pids = [psutil.Process(p) for p in manager.where_pid]
        pids[1].kill()
        wait_gone(pids[1:2])
        self.check(manager, pids)

    @in_start_methods
    def test_a_stopped_worker(self, make):
        manager = make.launched(many(envs.CounterEnv, 3), close_grace=0.5)
        pids = [psutil.Process(p) for p in manager.where_pid]
        pids[1].suspend()
        self.check(manager, pids)

    @pytest.mark.parametrize("kind", ["sleep", "stubborn", "hang_gil"])
    @in_start_methods
    def test_a_hung_worker(self, make, signals, kind):
        fns = many(envs.CounterEnv, 2)
        fns[1] = partial(envs.FaultyEnv, 1, step_fault=kind, before=signals("before"))
        manager = make.launched(fns, step_timeout=None, close_grace=0.5, interrupt_grace=0.3)
        pids = [psutil.Process(p) for p in manager.where_pid]
        call = Background(manager.step, {0: 0, 1: 0})
        signals("before").wait()
        self.check(manager, pids)
        with pytest.raises(EnvManagerError, match=r"(?i)closed"):
            call.result(5)

    @in_processes
    def test_during_an_automatic_reset(self, make, signals, tmp_path):
        log = Log(tmp_path / "log")
        fns = many(envs.CounterEnv, 2, length=1, reset_gate=signals("gate"), log=log)
        manager = make.launched(fns, close_grace=0.5, interrupt_grace=0.3)
        pids = [psutil.Process(p) for p in manager.where_pid]
        step_until(manager, {0: 0})
        log.wait("reset", 3)
        self.check(manager, pids)

    @in_processes
    def test_during_a_renewal(self, make):
        fns = many(envs.FaultyEnv, 2, step_fault="exit")
        manager = make.launched(fns, on_error="reset")
        step_until(manager, {0: 0, 1: 0})
        within(20, manager.close)
        assert manager.closed

    @in_processes
    def test_an_env_whose_close_raises(self, make):
        manager = make.launched(many(envs.CloseRaisesEnv, 2))
        self.check(manager, [psutil.Process(p) for p in manager.where_pid])

    @in_processes
    def test_an_env_whose_close_hangs(self, make):
        manager = make.launched(many(envs.CloseHangsEnv, 2), close_grace=0.5, interrupt_grace=0.3)
        self.check(manager, [psutil.Process(p) for p in manager.where_pid])

    @in_processes
    def test_twice_from_two_threads_while_hung(self, make, signals):
        fns = many(envs.FaultyEnv, 2, step_fault="stubborn", before=signals("before"))
        manager = make.launched(fns, step_timeout=None, close_grace=0.5, interrupt_grace=0.3)
        pids = [psutil.Process(p) for p in manager.where_pid]
        call = Background(manager.step, {0: 0, 1: 0})
        signals("before").wait(2)
        closes = [Background(manager.close), Background(manager.close)]
        for close in closes:
            close.result(20)
        wait_gone(pids)
        with pytest.raises(EnvManagerError):
            call.result(5)


class BuildsAtSecondTry:
    """An env_fn that never comes back, but for the instances after the first ``n``."""

    def __init__(self, entered, log, n) -> None:
        self.entered, self.log, self.n = entered, log, n

    def __call__(self):
        self.log.add("build", os.getpid())
        if len(self.log.lines("build")) <= self.n:
            self.entered.post()
            time.sleep(600)
        return envs.CounterEnv(0)


@pytest.mark.case("O03", "A10")
class TestWhileItIsLaunched:
    @in_start_methods
    def test_from_another_thread_all_goes_and_launch_says_so_and_works_again(self, make, signals, tmp_path):
        entered, log = signals("entered"), Log(tmp_path / "log")
        manager = make([BuildsAtSecondTry(entered, log, 2)] * 2, connect_timeout=None, close_grace=0.3)
        launch = Background(manager.launch)
        entered.wait(2)
        pids = [psutil.Process(int(words[1])) for words in log.lines("build")]
        within(20, manager.close)
        with pytest.raises(ManagerClosedError, match="closed while it was launched"):
            launch.result()
        assert manager.closed
        wait_gone(pids)
        manager.launch()
        assert wait_ready(manager)[1].tolist() == [0, 0, 0]

    @pytest.mark.parametrize("moment", ["at once", "coming up", "connected", "launched"])
    @in_start_methods
    def test_from_two_threads_at_any_moment(self, make, moment):
        come = {
            "at once": lambda: True,
            "coming up": lambda: manager._connecting or manager._engine,
            "connected": lambda: manager._engine,
            "launched": lambda: manager._launched,
        }
        manager = make(many(envs.CounterEnv, 2))
        launch = Background(manager.launch)
        wait_until(come[moment], moment)
        closes = [Background(manager.close), Background(manager.close)]
        for close in closes:
            close.result()
        with contextlib.suppress(ManagerClosedError):  # not where it was quicker than the launch
            launch.result()
        manager.close()
        assert manager.closed

    @in_processes
    def test_a_space_that_is_asked_for_is_given_up_too(self, make, signals, tmp_path):
        entered, log = signals("entered"), Log(tmp_path / "log")
        manager = make([BuildsAtSecondTry(entered, log, 1)], connect_timeout=None, close_grace=0.3)
        space = Background(lambda: manager.observation_space)
        entered.wait()
        within(20, manager.close)
        with pytest.raises(ManagerClosedError):
            space.result()

    def test_from_the_thread_that_launches(self, make, tmp_path):
        """An env_fn may do so in the caller, a signal handler anywhere."""
        manager = make(many(envs.CounterEnv, 2))
        if make.is_base:
            manager = make([partial(envs.CounterEnv, 0), lambda: manager.close() or envs.CounterEnv(1)])
        else:
            main = threading.main_thread().ident
            before = signal.signal(signal.SIGUSR1, lambda *_: manager.close())

            def press():
                wait_until(lambda: manager._connecting is not None, "the launch to begin")
                signal.pthread_kill(main, signal.SIGUSR1)

            pressing = Background(press)
        try:
            with pytest.raises(ManagerClosedError):
                manager.launch()
        finally:
            if not make.is_base:
                pressing.result()
                signal.signal(signal.SIGUSR1, before)
        assert manager.closed

    @pytest.mark.parametrize("context", CONTEXTS)
    def test_the_interpreter_exits_while_a_daemon_thread_launches(self, script, signal_at, context):
        run = script(
            """
            import threading
            from tests.faults.test_close import BuildsAtSecondTry

            entered = Signal(str(HERE / "entered"))
            manager = make([BuildsAtSecondTry(entered, log, 2)] * 2, connect_timeout=None, close_grace=0.3)
            threading.Thread(target=manager.launch, daemon=True).start()
            entered.wait(2, 40)
            Signal(str(HERE / "go on")).wait(1, 40)
            """,
            context=context,
        )
        pids = [psutil.Process(int(words[1])) for words in run.log.wait("build", 2, 40)]
        signal_at(run.here / "go on").post()
        assert run.wait(20) == 0
        wait_gone(pids)


@in_base
class TestInTheCaller:
    def test_an_env_whose_close_does_not_come_back_is_broken_off(self, make, caplog):
        fns = [partial(WaitsInClose, 0), partial(envs.CounterEnv, 1), partial(WaitsInClose, 2)]
        manager = make.launched(fns, close_grace=0.2)
        handler = signal.getsignal(INTERRUPT_SIGNAL)
        with caplog.at_level("WARNING", logger="envmgr"):
            manager.close()  # in the main thread: only there it can be broken off
        for i in (0, 2):
            assert f"env {i} raised in close: TimeoutError: it took longer than close_grace" in caplog.text
        assert "env 1" not in caplog.text
        assert signal.getsignal(INTERRUPT_SIGNAL) == handler

    def test_one_that_takes_its_time_is_left_to_it(self, make, caplog):
        manager = make.launched(many(envs.CounterEnv, 2), close_grace=60.0)
        with caplog.at_level("WARNING", logger="envmgr"):
            manager.close()
        assert not caplog.records


class WaitsInClose(envs.CounterEnv):
    """Its ``close`` waits for what never happens."""

    def close(self) -> None:
        threading.Event().wait(600)


@pytest.mark.case("F07")
@in_processes
def test_an_exception_in_a_with_block_closes_and_passes(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    pids = [psutil.Process(p) for p in manager.where_pid]

    def work():
        with manager:
            raise envs.Boom("in the caller")

    with pytest.raises(envs.Boom, match="in the caller"):
        work()
    assert manager.closed
    wait_gone(pids)


@pytest.mark.case("F07")
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("stepping", [False, True])
def test_garbage_collection_closes(context, stepping, recwarn):
    cfg = {"type": "async_subprocess", "context": context, "wait_num": 1, "step_wait_timeout": 0}
    manager = create_env_manager(cfg, many(envs.CounterEnv, 2))
    manager.launch()
    wait_ready(manager)
    pids = [psutil.Process(p) for p in manager.where_pid]
    if stepping:
        manager.step({0: 0, 1: 0})
    del manager
    gc.collect()
    wait_gone(pids)


@in_processes
def test_a_forked_child_of_the_callers_may_call_close(make, tmp_path):
    manager = make.launched(many(envs.CounterEnv, 2))
    log = Log(tmp_path / "log")
    child = os.fork()
    if child == 0:  # the child must leave through os._exit whatever happens, or it would run pytest on
        code = 1
        try:
            manager.close()
            log.add("closed", manager.closed)
            code = 0
        finally:
            os._exit(code)
    process = psutil.Process(child)
    assert process.wait(20) == 0
    assert log.lines("closed")
    for t in range(1, 20):
        assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 0, t]


@in_processes
def test_a_forked_child_that_just_ends_disturbs_nobody(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        del manager
        gc.collect()
        os._exit(0)
    assert psutil.Process(child).wait(30) == 0
    assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 0, 1]


@in_processes
def test_a_child_forked_while_another_thread_is_in_step_is_told_so_in_every_call(make, signals, tmp_path):
    log, entered, gate = Log(tmp_path / "log"), signals("entered"), signals("gate")
    manager = make.launched(many(envs.CounterEnv, 1, entered=entered, gate=gate))
    stepping = Background(manager.step, {0: 0})
    entered.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        calls = {
            "step": lambda: manager.step({0: 0}),
            "ready_obs": lambda: manager.ready_obs,
            "reset": manager.reset,
            "launch": manager.launch,
            "seed": lambda: manager.seed(1),
            "replay": lambda: manager.enable_save_replay(str(tmp_path)),
            "attribute": lambda: manager.steps,
            "get": lambda: manager.get_env_attr("steps"),
            "spaces": lambda: manager.action_space,
            "stats": manager.stats,
        }
        try:
            for name, call in calls.items():
                try:
                    call()
                except IllegalStateError as error:
                    log.add(name, "another process" in str(error))
        finally:
            os._exit(0)
    assert psutil.Process(child).wait(30) == 0
    gate.post()
    stepping.result()
    assert [words[1] for words in log.lines()] == ["True"] * 10


@kinds("base", "subprocess-fork")
def test_a_close_that_comes_right_before_the_launch_connects(make, tmp_path, monkeypatch):
    """Nothing is built for nobody, and then never closed."""
    log = Log(tmp_path / "log")
    manager = make(many(envs.CounterEnv, 2, log=log))
    connect = Engine.connect

    def close_first(engine):
        manager.close()
        connect(engine)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "connect", close_first)
        with pytest.raises(ManagerClosedError, match="while it was launched"):
            manager.launch()
    assert log.lines("init") == []
    manager.launch()
    wait_ready(manager)
    manager.close()
    assert len(log.lines("close")) == 2
