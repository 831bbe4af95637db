"""An env that fails in ``reset``: attempts, renewals, deaths, hangs; what is reported in the end."""

from __future__ import annotations

import logging
import os
import signal
import time
from functools import partial

import psutil
import pytest

from envmgr import EnvResetError, EnvTimeoutError, WorkerDied
from tests.helpers import envs
from tests.helpers.managers import (
    everywhere,
    in_base,
    in_every_process_kind,
    in_processes,
    in_start_methods,
    launch_all,
    many,
    step_until,
    wait_ready,
)
from tests.helpers.sync import Log, wait_until, within


def causes(error):
    """An error and all that it came from."""
    while error is not None:
        yield error
        error = error.__cause__


def one_faulty(kind, n=2, who=1, **kwargs):
    fns = many(envs.CounterEnv, n, length=2)
    fns[who] = partial(envs.FaultyEnv, who, reset_fault=kind, length=2, **kwargs)
    return fns


@pytest.mark.case("F14")
class TestRaises:
    @pytest.mark.parametrize("max_retry", [1, 3])
    @everywhere
    def test_max_retry_attempts_in_all_and_the_original_error(self, make, max_retry, tmp_path):
        log = Log(tmp_path / "log")
        manager = make(one_faulty("raise", log=log), max_retry=max_retry, retry_waiting_time=0.01)
        with pytest.raises(EnvResetError, match="boom in user code") as caught:
            launch_all(manager)
        assert caught.value.env_id == 1
        assert isinstance(caught.value.__cause__, envs.Boom)
        assert "raise_boom" in str(caught.value)
        assert len(log.lines("fault")) == max_retry
        assert len(log.lines("init")) == 1, "retry_type 'reset' tries the same env again"
        assert manager.closed

    def test_renew_tries_on_a_new_env(self, make, tmp_path):
        log = Log(tmp_path / "log")
        manager = make(one_faulty("raise", log=log), max_retry=3, retry_waiting_time=0.01, retry_type="renew")
        with pytest.raises(EnvResetError) as caught:
            launch_all(manager)
        assert isinstance(caught.value.__cause__, envs.Boom)
        assert len(log.lines("fault")) == 3
        assert len(log.lines("init")) == 3
        if not make.is_base:
            assert len({words[2] for words in log.lines("init")}) == 3, "each on a new worker"

    @in_processes
    def test_a_renewal_is_in_the_log_with_the_error_and_the_reason(self, make, tmp_path, caplog):
        once = str(tmp_path / "once")
        manager = make(one_faulty("raise", once=once), retry_waiting_time=0.01, retry_type="renew")
        launch_all(manager)
        why, said = [r.getMessage() for r in caplog.records if r.name.startswith("envmgr")]
        assert why.startswith("env 1: reset, attempt 1 of 5, is tried again: env 1 raised in reset: Boom")
        assert "raise_boom" in why, "its traceback"
        assert said.startswith("worker 1 is gone: envmgr ended process")
        assert said.endswith(": env 1 is renewed, because its reset failed; its envs: [1]")

    @in_processes
    def test_a_renewal_that_costs_a_sibling_its_episode_says_what_to_set(self, make):
        fns = [partial(envs.FreshOnlyEnv, 0, length=1), partial(envs.CounterEnv, 1)]
        cfg = {"retry_type": "renew", "retry_waiting_time": 0.01, "envs_per_worker": 2}
        manager = make.launched(fns, **cfg)
        step_until(manager, {0: 0})
        wait_until(lambda: manager.stats()[1]["renewals"], "the worker to be renewed")
        with pytest.raises(WorkerDied) as caught:
            manager.step({1: 0})
        text = str(caught.value)
        assert caught.value.env_id == 1 and "env 0 is renewed, because its reset failed" in text
        assert "a worker of its own" in text and "retry_type='reset'" in text

    @everywhere
    def test_a_second_attempt_that_succeeds_is_no_error(self, make, tmp_path):
        manager = make(one_faulty("raise", once=str(tmp_path / "once")), max_retry=2, retry_waiting_time=0.01)
        assert launch_all(manager)[1].tolist() == [1, 0, 0]
        assert manager.stats()[1]["retries"] == 1 and manager.stats()[0]["retries"] == 0

    @everywhere
    def test_each_attempt_that_is_tried_again_is_a_warning_with_its_traceback(self, make, caplog):
        manager = make(one_faulty("raise"), max_retry=3, retry_waiting_time=0.01)
        with pytest.raises(EnvResetError):
            launch_all(manager)
        said = [r for r in caplog.records if "is tried again" in r.getMessage()]
        assert [r.levelno for r in said] == [logging.WARNING] * 2, "the last one is the error"
        for k, text in enumerate((r.getMessage() for r in said), 1):
            assert text.startswith(f"env 1: reset, attempt {k} of 3, is tried again: env 1 raised in reset")
            assert "raise_boom" in text
        row = manager.stats()[1]
        assert (row["failures"], row["retries"]) == (3, 2)
        assert manager.stats()[0]["failures"] == 0

    @pytest.mark.case("F19")
    @pytest.mark.parametrize("kind", ["system_exit", "keyboard_interrupt"])
    @in_processes
    def test_exits_are_errors_like_any_other(self, make, kind):
        manager = make(one_faulty(kind), max_retry=1)
        with pytest.raises(EnvResetError) as caught:
            launch_all(manager)
        assert caught.value.env_id == 1

    def test_in_an_explicit_reset(self, make):
        manager = make.launched(one_faulty("raise", at_reset=2), max_retry=2, retry_waiting_time=0.01)

        def reset():
            manager.reset()
            wait_ready(manager)

        with pytest.raises(EnvResetError) as caught:
            reset()
        assert caught.value.env_id == 1 and isinstance(caught.value.__cause__, envs.Boom)
        assert manager.closed

    @in_processes
    def test_in_an_automatic_reset_it_is_raised_in_the_next_call_and_the_others_results_come_first(
        self, make
    ):
        manager = make.launched(one_faulty("raise", at_reset=2), max_retry=1)
        step_until(manager, {0: 0, 1: 0})
        result = step_until(manager, {0: 0, 1: 0})
        assert result[1].done and result[1].obs.tolist() == [1, 0, 2]

        def go_on():
            for _ in range(100):
                wait_ready(manager)

        with pytest.raises(EnvResetError, match="boom") as caught:
            go_on()
        assert caught.value.env_id == 1
        assert manager.closed


@pytest.mark.case("F13")
@everywhere
class TestOnlyAFreshInstanceCanBeReset:
    def test_renew_succeeds(self, make, tmp_path):
        log = Log(tmp_path / "log")
        manager = make.launched(
            many(envs.FreshOnlyEnv, 2, length=1, log=log),
            retry_type="renew",
            max_retry=3,
            retry_waiting_time=0.01,
        )
        for _ in range(2):
            result = step_until(manager, {0: 0, 1: 0})
            assert all(ts.done for ts in result.values())
            assert {i: o.tolist() for i, o in wait_ready(manager).items()} == {0: [0, 0, 0], 1: [1, 0, 0]}
        assert len(log.lines("init")) == 6

    def test_reset_fails_after_max_retry(self, make, tmp_path):
        log = Log(tmp_path / "log")
        manager = make.launched(
            many(envs.FreshOnlyEnv, 1, length=1, log=log),
            retry_type="reset",
            max_retry=3,
            retry_waiting_time=0.01,
        )

        def episode():
            step_until(manager, {0: 0})
            wait_ready(manager)

        with pytest.raises(EnvResetError, match="cannot be reset twice"):
            episode()
        assert len(log.lines("refused")) == 3
        assert len(log.lines("init")) == 1


class BuiltOnce:
    """Builds an env that exits in its first step; later ones are not built: ``how`` says why."""

    def __init__(self, how, log) -> None:
        self.how, self.log = how, log

    def __call__(self):
        self.log.add("build")
        if len(self.log.lines("build")) > 1:
            envs.do_fault(self.how)
        return envs.FaultyEnv(0, step_fault="exit")


@pytest.mark.case("F14", "F15")
class TestARenewalThatCannotBuild:
    def reset_in_vain(self, make, how, tmp_path):
        log = Log(tmp_path / "log")
        cfg = {"max_retry": 2, "retry_waiting_time": 0.01, "on_error": "reset"}
        manager = make.launched([BuiltOnce(how, log)], **cfg)
        step_until(manager, {0: 0})
        with pytest.raises(EnvResetError) as caught:
            wait_ready(manager)
        assert len(log.lines("build")) == 3
        assert manager.stats()[0]["failures"] == 3, "a step, and two attempts at a reset"
        return caught.value

    @in_start_methods
    def test_because_it_exits_says_that_it_was_built(self, make, tmp_path, caplog):
        error = self.reset_in_vain(make, "exit", tmp_path)
        assert "env 0 could not be reset: env 0: its worker died while it was built: process" in error.message
        assert "in reset" not in error.message
        assert isinstance(error.__cause__, WorkerDied) and error.__cause__.exitcode == 7
        (said,) = [r.getMessage() for r in caplog.records if "is tried again" in r.getMessage()]
        assert said.startswith("env 0: reset, attempt 1 of 2, is tried again: env 0: its worker died while")

    @in_processes
    def test_because_it_raises_is_logged_with_its_traceback(self, make, tmp_path, caplog):
        error = self.reset_in_vain(make, "raise", tmp_path)
        assert isinstance(error.__cause__, envs.Boom)
        (said,) = [r.getMessage() for r in caplog.records if "is tried again" in r.getMessage()]
        assert said.startswith("env 0: reset, attempt 1 of 2, is tried again: env 0 could not be built: Boom")
        assert "raise_boom" in said

    @in_processes
    def test_while_nobody_waits_for_a_reset_too(self, make, tmp_path, caplog):
        log = Log(tmp_path / "log")
        manager = make.launched([BuiltOnce("raise", log)], retry_waiting_time=0.01, max_renewals=2)
        os.kill(manager.where_pid[0], signal.SIGKILL)
        log.wait("build", 3)
        wait_until(lambda: "built again: env 0 could not be built" in caplog.text, "it to be told")
        assert "raise_boom" in caplog.text


@pytest.mark.case("F14")
class TestABudgetThatResetsUseUp:
    """Attempts would be left, renewals are not: the error is the first reset's own, not envmgr's kill."""

    def used_up(self, make, fns, go_on=lambda manager: None, **cfg):
        cfg = {"max_retry": 50, "max_renewals": 2, "retry_waiting_time": 0.01, "interrupt_grace": 0.2, **cfg}
        manager = make(fns, **cfg)

        def go():
            launch_all(manager)
            go_on(manager)

        with pytest.raises(EnvResetError) as caught:
            within(40, go)
        assert caught.value.env_id == len(fns) - 1
        assert "would be the 3rd renewal within renewal_window; max_renewals=2" in caught.value.message
        assert "in step" not in caught.value.message and "by envmgr" not in caught.value.message
        assert manager.closed
        return caught.value

    @in_start_methods
    def test_raised_and_renewed(self, make):
        error = self.used_up(make, one_faulty("raise"), retry_type="renew")
        assert "env 1 raised in reset: Boom: boom in user code" in error.message
        assert isinstance(error.__cause__, envs.Boom) and "raise_boom" in str(error)

    @in_processes
    def test_raised_in_one_of_several_in_a_worker(self, make):
        cfg = {"retry_type": "renew", "envs_per_worker": 3}
        error = self.used_up(make, one_faulty("raise", n=3, who=2), **cfg)
        assert isinstance(error.__cause__, envs.Boom)

    @in_processes
    def test_by_envs_that_can_be_reset_but_once(self, make):
        def go_on(manager):
            for _ in range(20):
                step_until(manager, {0: 0})
                wait_ready(manager)

        cfg = {"retry_type": "renew", "on_error": "reset"}
        error = self.used_up(make, many(envs.FreshOnlyEnv, 1, length=1), go_on, **cfg)
        assert "cannot be reset twice" in error.message
        assert isinstance(error.__cause__, envs.Boom)

    @in_processes
    def test_died(self, make):
        error = self.used_up(make, one_faulty("exit"))
        assert "env 1: its worker died in reset" in error.message
        assert isinstance(error.__cause__, WorkerDied) and error.__cause__.exitcode == 7

    @in_processes
    def test_hung(self, make):
        error = self.used_up(make, one_faulty("hang_gil"), reset_timeout=0.3)
        assert "reset took longer than reset_timeout=0.3 s" in error.message
        assert isinstance(error.__cause__, EnvTimeoutError)


@pytest.mark.case("F03")
class TestDies:
    @pytest.mark.parametrize("kind", ["exit", "sigkill", "sigsegv"])
    @in_start_methods
    def test_once_it_is_renewed(self, make, kind, tmp_path):
        log = Log(tmp_path / "log")
        manager = make(
            one_faulty(kind, once=str(tmp_path / "once"), log=log), max_retry=2, retry_waiting_time=0.01
        )
        assert launch_all(manager)[1].tolist() == [1, 0, 0]
        assert len(log.lines("init")) == 2
        assert manager.stats()[1]["renewals"] == 1
        assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 0, 1]

    @pytest.mark.parametrize("kind", ["exit", "sigkill"])
    @in_start_methods
    def test_always_each_death_is_an_attempt(self, make, kind, tmp_path):
        log = Log(tmp_path / "log")
        manager = make(one_faulty(kind, log=log), max_retry=3, retry_waiting_time=0.01)
        with pytest.raises((EnvResetError, WorkerDied)) as caught:
            within(40, launch_all, manager)
        assert caught.value.env_id == 1
        died = [e for e in causes(caught.value) if isinstance(e, WorkerDied)]
        assert died and died[0].pid is not None
        assert (died[0].signal_name == "SIGKILL") if kind == "sigkill" else (died[0].exitcode == 7)
        assert len(log.lines("fault")) == 3
        assert manager.closed

    @in_processes
    def test_in_a_worker_with_several_envs_the_one_that_was_reset_is_blamed(self, make):
        manager = make.launched(one_faulty("exit", n=3, at_reset=2), envs_per_worker=3, max_retry=1)
        with pytest.raises(EnvResetError, match="env 1: its worker died in reset") as caught:
            manager.reset()
        assert caught.value.env_id == 1

    @in_processes
    def test_in_an_automatic_reset(self, make, tmp_path):
        manager = make.launched(
            one_faulty("exit", at_reset=2, once=str(tmp_path / "once")), max_retry=2, retry_waiting_time=0.01
        )
        step_until(manager, {0: 0, 1: 0})
        result = step_until(manager, {0: 0, 1: 0})
        assert result[1].done and result[1].obs.tolist() == [1, 0, 2]
        assert not result[1].info.get("abnormal", False)
        obs = wait_ready(manager)
        assert obs[0].tolist() == [0, 1, 0] and obs[1].tolist() == [1, 0, 0]

    @in_processes
    def test_killed_from_outside_in_a_reset(self, make, signals, tmp_path):
        log = Log(tmp_path / "log")
        manager = make.launched(
            many(envs.CounterEnv, 2, length=1, reset_gate=signals("gate"), log=log),
            max_retry=2,
            retry_waiting_time=0.01,
        )
        pid = manager.where_pid[0]
        step_until(manager, {0: 0})
        log.wait("reset", 3)
        psutil.Process(pid).kill()
        assert wait_ready(manager)[0].tolist() == [0, 0, 0], "a new instance's first reset has no gate"
        assert step_until(manager, {1: 0})[1].obs.tolist() == [1, 0, 1]


class TestHangs:
    @pytest.mark.case("O14")
    @in_start_methods
    def test_a_python_sleep_is_interrupted_and_tried_again_on_the_same_env(self, make, tmp_path):
        log = Log(tmp_path / "log")
        fns = one_faulty("sleep", once=str(tmp_path / "once"), log=log)
        manager = make(fns, reset_timeout=0.5, max_retry=2, retry_waiting_time=0.01, interrupt_grace=10.0)
        assert launch_all(manager)[1].tolist() == [1, 0, 0]
        assert len(log.lines("init")) == 1, "interrupted inside the worker first"
        assert manager.stats()[1]["timeouts"] == 1

    @in_base
    def test_in_base_too(self, make, tmp_path):
        fns = one_faulty("sleep", once=str(tmp_path / "once"))
        manager = make(fns, reset_timeout=0.3, max_retry=2, retry_waiting_time=0.01)
        assert launch_all(manager)[1].tolist() == [1, 0, 0]
        row = manager.stats()[1]
        assert (row["timeouts"], row["failures"], row["retries"]) == (1, 1, 1)

    @pytest.mark.case("F18")
    @in_start_methods
    def test_one_that_ignores_everything_is_killed_and_renewed_and_its_stack_logged(
        self, make, tmp_path, caplog
    ):
        log = Log(tmp_path / "log")
        fns = one_faulty("stubborn", once=str(tmp_path / "once"), log=log)
        manager = make(fns, reset_timeout=0.5, max_retry=2, retry_waiting_time=0.01, interrupt_grace=0.3)
        with caplog.at_level(logging.DEBUG, logger="envmgr"):
            assert within(30, launch_all, manager)[1].tolist() == [1, 0, 0]
        assert len(log.lines("init")) == 2
        text = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("envmgr"))
        assert "hang_stubbornly" in text and "envs.py" in text
        assert manager.stats()[1]["renewals"] == 1
        first, second = (int(words[2]) for words in log.lines("init"))
        assert first != second
        wait_until(lambda: not psutil.pid_exists(first), "the stuck worker to be gone", 5)

    @pytest.mark.parametrize("kind", ["hang_gil", "sigstop"])
    @in_processes
    def test_a_hung_c_call_and_a_stopped_process_are_killed_and_renewed(self, make, kind, tmp_path):
        fns = one_faulty(kind, once=str(tmp_path / "once"))
        manager = make(fns, reset_timeout=0.5, max_retry=2, retry_waiting_time=0.01, interrupt_grace=0.3)
        assert within(30, launch_all, manager)[1].tolist() == [1, 0, 0]
        assert manager.stats()[1]["renewals"] == 1

    @in_start_methods
    def test_always_it_ends_with_the_timeout(self, make):
        manager = make(
            one_faulty("sleep"), reset_timeout=0.3, max_retry=2, retry_waiting_time=0.01, interrupt_grace=0.3
        )
        with pytest.raises((EnvResetError, EnvTimeoutError)) as caught:
            within(30, launch_all, manager)
        assert caught.value.env_id == 1
        late = [e for e in causes(caught.value) if isinstance(e, EnvTimeoutError)]
        assert late and "0.3" in str(late[0])
        assert isinstance(late[0], TimeoutError)
        assert manager.closed

    @pytest.mark.case("O19")
    @in_every_process_kind
    def test_a_slow_automatic_reset_is_bounded_by_reset_timeout_not_by_step_timeout(
        self, make, signals, tmp_path
    ):
        log = Log(tmp_path / "log")
        fns = [
            partial(envs.CounterEnv, 0, length=1, reset_gate=signals("gate"), log=log),
            partial(envs.FaultyEnv, 1, step_fault="raise", at_step=10**9),
        ]
        manager = make.launched(fns, step_timeout=0.5, reset_timeout=30, close_grace=0.5)
        assert step_until(manager, {0: 0})[0].done
        log.wait("reset", 2)
        t, end = 0, time.monotonic() + 1.5  # three step_timeouts go by while the other env steps
        while time.monotonic() < end:
            t += 1
            assert step_until(manager, {1: 0})[1].obs.tolist() == [1, 0, t]
        signals("gate").post()
        assert wait_ready(manager)[0].tolist() == [0, 1, 0]
        stats = manager.stats()[0]
        assert (stats["timeouts"], stats["renewals"], stats["retries"]) == (0, 0, 0)

    @in_processes
    def test_a_hang_in_an_automatic_reset_holds_nobody_up(self, make, tmp_path):
        fns = one_faulty("stubborn", at_reset=2, once=str(tmp_path / "once"))
        manager = make.launched(
            fns, reset_timeout=0.5, interrupt_grace=0.3, max_retry=2, retry_waiting_time=0.01
        )
        step_until(manager, {1: 0})
        assert step_until(manager, {1: 0})[1].done
        episode, t = 0, 0
        while 1 not in manager.ready_obs:
            wait_ready(manager, [0])
            ts = step_until(manager, {0: 0})[0]
            t += 1
            assert ts.obs.tolist() == [0, episode, t]
            if ts.done:
                episode, t = episode + 1, 0
        assert manager.ready_obs[1].tolist() == [1, 0, 0]
        assert episode >= 1


@in_processes
def test_a_failed_reset_is_heard_of_while_the_caller_does_something_else(make):
    """Its message comes after the alarm, so who looks in between has to be rung for once more."""
    for _ in range(12):
        moves = []
        manager = make(many(envs.FaultyEnv, 2, reset_fault="raise", at_reset=2, length=1), max_retry=1)
        manager.launch()
        manager.on_state_change(lambda _i, _old, new, moves=moves: moves.append(new.name))
        step_until(manager, {0: 0, 1: 0})
        wait_until(lambda moves=moves: "ERROR" in moves, "the reset to fail", 5.0)
        manager.close()
