"""A step that takes too long: interrupted, or killed and renewed; the others never wait for it."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from functools import partial

import psutil
import pytest

from envmgr import EnvTimeoutError
from envmgr.workers.hygiene import INTERRUPT_SIGNAL
from envmgr.workers.watchdog import WATCHDOG_NAME
from tests.helpers import envs
from tests.helpers.managers import (
    actions_for,
    in_async,
    in_base,
    in_processes,
    in_start_methods,
    many,
    state_of,
    step_until,
    wait_ready,
)
from tests.helpers.sync import Background, Log, wait_until, within

HANGS = ["sleep", "stubborn", "hang_gil", "sigstop"]


def one_hangs(kind, n=3, who=1, at_step=2, **kwargs):
    fns = many(envs.CounterEnv, n)
    fns[who] = partial(envs.FaultyEnv, who, step_fault=kind, at_step=at_step, **kwargs)
    return fns


@pytest.mark.parametrize("kind", HANGS)
@in_start_methods
def test_raise(make, kind, caplog):
    manager = make.launched(one_hangs(kind), step_timeout=0.5, interrupt_grace=0.3, close_grace=0.5)
    pids = manager.where_pid
    manager.step(actions_for(range(3)))
    with pytest.raises(EnvTimeoutError) as caught:
        within(20, manager.step, actions_for(range(3)))
    error = caught.value
    assert error.env_id == 1 and error.limit == 0.5 and isinstance(error, TimeoutError)
    assert "0.5" in str(error) and "step_timeout" in str(error)
    if kind in ("stubborn", "hang_gil"):  # who is stopped writes nothing, who sleeps is not killed
        assert "in hang_" in error.child_traceback, "the stack of where it hung"
    killed = [r for r in caplog.records if "is killed" in r.getMessage()]
    assert len(killed) == (kind != "sleep")
    assert manager.closed
    wait_until(lambda: not any(psutil.pid_exists(p) for p in pids), "all workers to be gone", 5)


@pytest.mark.parametrize("kind", HANGS)
@in_processes
def test_reset(make, kind, tmp_path):
    log = Log(tmp_path / "log")
    manager = make.launched(
        one_hangs(kind, log=log, once=str(tmp_path / "once")),
        step_timeout=0.5,
        on_error="reset",
        interrupt_grace=0.3 if kind != "sleep" else 10.0,
    )
    pids = manager.where_pid
    manager.step(actions_for(range(3)))
    result = within(20, step_until, manager, actions_for(range(3)))
    assert {i: result[i].obs.tolist() for i in (0, 2)} == {0: [0, 0, 2], 2: [2, 0, 2]}
    ts = result[1]
    assert ts.obs.tolist() == [1, 0, 1] and float(ts.reward) == 0.0 and ts.done and ts.truncated
    assert ts.info["abnormal"] is True and isinstance(ts.info["err"], EnvTimeoutError)
    obs = wait_ready(manager)
    now = manager.where_pid
    if kind == "sleep":
        assert obs[1].tolist() == [1, 1, 0] and now == pids, "interrupted inside the worker"
        assert len(log.lines("init")) == 1
    else:
        assert obs[1].tolist() == [1, 0, 0] and now[1] != pids[1], "killed and renewed"
        wait_until(lambda: not psutil.pid_exists(pids[1]), "the stuck worker to be gone", 5)
    row = manager.stats()[1]
    assert (row["timeouts"], row["failures"]) == (1, 1)
    assert step_until(manager, actions_for(range(3)))[1].obs.tolist()[2] == 1
    assert step_until(manager, actions_for(range(3)))[1].obs.tolist()[2] == 2


@in_base
def test_base_interrupts_where_it_can(make):
    manager = make.launched(one_hangs("sleep"), step_timeout=0.3)
    manager.step(actions_for(range(3)))
    with pytest.raises(EnvTimeoutError) as caught:
        manager.step({1: 0})
    assert caught.value.env_id == 1
    assert not manager.closed and state_of(manager, 1) == "ERROR"
    assert manager.step({0: 0})[0].obs.tolist() == [0, 0, 2]
    row = manager.stats()[1]
    assert (row["timeouts"], row["failures"]) == (1, 1)


@in_base
def test_base_with_reset(make):
    manager = make.launched(one_hangs("sleep"), step_timeout=0.3, on_error="reset")
    manager.step(actions_for(range(3)))
    result = manager.step(actions_for(range(3)))
    assert isinstance(result[1].info["err"], EnvTimeoutError) and result[1].obs.tolist() == [1, 0, 1]
    assert result[2].obs.tolist() == [2, 0, 2]
    assert wait_ready(manager)[1].tolist() == [1, 1, 0]


@in_base
def test_base_has_one_watchdog_and_leaves_the_signal_as_it_was(make):
    """A thread per call would cost more than the call."""
    before, signal_before = set(threading.enumerate()), signal.getsignal(INTERRUPT_SIGNAL)
    manager = make.launched(
        one_hangs("sleep", at_step=52), step_timeout=0.3, reset_timeout=60, on_error="reset"
    )
    seen = set()
    for _ in range(51):
        manager.step(actions_for(range(3)))
        seen |= set(threading.enumerate()) - before
    assert len(seen) == 1
    assert isinstance(manager.step(actions_for(range(3)))[1].info["err"], EnvTimeoutError)
    assert wait_ready(manager)[1].tolist() == [1, 1, 0]
    assert manager.step({1: 0})[1].obs.tolist() == [1, 1, 1]
    assert set(threading.enumerate()) - before == seen
    manager.close()
    assert set(threading.enumerate()) == before
    assert signal.getsignal(INTERRUPT_SIGNAL) == signal_before


@in_base
def test_in_another_thread_than_the_main_one_base_has_no_watchdog(make):
    manager = make(many(envs.CounterEnv, 1), step_timeout=0.3)
    before = set(threading.enumerate())
    call = Background(lambda: (manager.launch(), manager.step({0: 0}), set(threading.enumerate())))
    _, result, seen = call.result()
    assert result[0].obs.tolist() == [0, 0, 1]
    assert [t.name for t in seen - before if t.name == WATCHDOG_NAME] == []


@in_processes
def test_the_stack_of_the_stuck_child_is_in_the_log(make, tmp_path, caplog):
    manager = make.launched(
        one_hangs("stubborn", once=str(tmp_path / "once"), at_step=1),
        step_timeout=0.5,
        on_error="reset",
        interrupt_grace=0.3,
    )
    with caplog.at_level(logging.DEBUG, logger="envmgr"):
        assert within(20, step_until, manager, {1: 0})[1].info["abnormal"]
        wait_ready(manager)
    text = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("envmgr"))
    assert "hang_stubbornly" in text


@in_async
def test_others_are_not_held_up(make, signals):
    """Env 1 hangs; env 0 is stepped a hundred times before anything happens to env 1."""
    fns = one_hangs("sleep", n=2, at_step=1, before=signals("before"))
    manager = make.launched(
        fns,
        step_timeout=60,
        on_error="reset",
        wait_num=1,
        step_wait_timeout=0,
        close_grace=0.3,
        interrupt_grace=0.3,
    )
    got = manager.step({0: 0, 1: 0})
    signals("before").wait()
    for t in range(2, 102):
        assert set(got) == {0}
        got = manager.step({0: 0})
        assert got[0].obs.tolist() == [0, 0, t]


@in_async
def test_a_late_one_does_not_fail_the_others(make, tmp_path):
    manager = make.launched(
        one_hangs("stubborn", n=2, at_step=1, once=str(tmp_path / "once")),
        step_timeout=0.5,
        interrupt_grace=0.3,
        on_error="reset",
        wait_num=1,
        step_wait_timeout=0,
    )
    t, late = 0, None
    actions = {0: 0, 1: 0}
    while late is None:
        for i, ts in manager.step(actions).items():
            if i == 0:
                t += 1
                assert ts.obs.tolist() == [0, 0, t]
            else:
                late = ts
        actions = {0: 0}
    assert isinstance(late.info["err"], EnvTimeoutError)
    assert wait_ready(manager)[1].tolist() == [1, 0, 0]


@pytest.mark.case("O20")
@in_processes
def test_one_deadline_fails_only_those_that_are_late(make, tmp_path):
    fns = many(envs.CounterEnv, 5)
    for who, kind in ((1, "sleep"), (3, "stubborn")):
        fns[who] = partial(envs.FaultyEnv, who, step_fault=kind, once=str(tmp_path / f"once{who}"))
    manager = make.launched(fns, step_timeout=0.5, interrupt_grace=0.3, on_error="reset")
    result = within(20, step_until, manager, actions_for(range(5)))
    assert {i: result[i].obs.tolist() for i in (0, 2, 4)} == {i: [i, 0, 1] for i in (0, 2, 4)}
    for i in (1, 3):
        assert isinstance(result[i].info["err"], EnvTimeoutError) and result[i].info["err"].env_id == i
    wait_ready(manager)
    result = step_until(manager, actions_for(range(5)))
    assert [result[i].obs.tolist()[2] for i in range(5)] == [2, 1, 2, 1, 2]


@pytest.mark.case("O17")
@pytest.mark.parametrize("face", ["dict", "arrays"])
@in_processes
def test_a_late_reply_from_before_a_kill_is_never_taken_for_a_fresh_one(make, face, tmp_path):
    """The hung env would answer with t = 2; what comes after its renewal counts from 1 again."""
    fns = one_hangs("hang_gil", n=2, once=str(tmp_path / "once"))
    manager = make(fns, step_timeout=0.4, interrupt_grace=0.2, on_error="reset")
    manager.launch()
    if face == "dict":
        wait_ready(manager)
        step_until(manager, {0: 0, 1: 0})
        assert step_until(manager, {0: 0, 1: 0})[1].info["abnormal"]
        wait_ready(manager)
        for t in range(1, 30):
            result = step_until(manager, {0: 0, 1: 0})
            assert [result[i].obs.tolist()[2] for i in (0, 1)] == [t + 2, t]
    else:
        manager.reset_arrays()
        manager.step_arrays([0, 0])
        assert manager.step_arrays([0, 0]).info[1]["abnormal"]
        for t in range(1, 30):
            out = manager.step_arrays([0, 0])
            assert sorted(out.obs[:, 2].tolist()) == sorted([t + 2, t])


@pytest.mark.case("O17")
@in_start_methods
def test_nothing_of_before_a_relaunch_is_taken_for_fresh(make, signals):
    gate, entered = signals("gate"), signals("entered")
    manager = make.launched(
        many(envs.CounterEnv, 2, gate=gate, entered=entered), close_grace=0.2, interrupt_grace=0.2
    )
    call = Background(manager.step, {0: 0, 1: 0})
    entered.wait(2)
    within(15, manager.close)
    with pytest.raises(Exception, match="closed"):
        call.result()
    manager.launch()
    wait_ready(manager)
    for t in range(1, 4):
        gate.post(2)
        result = manager.step({0: 0, 1: 0})
        assert {i: ts.obs.tolist() for i, ts in result.items()} == {i: [i, 0, t] for i in (0, 1)}


@pytest.mark.case("O14")
class TestLimits:
    @pytest.mark.parametrize("step_timeout", [0.5, None, 5])
    def test_a_step_within_the_limit(self, make, step_timeout):
        manager = make.launched(many(envs.CounterEnv, 2), step_timeout=step_timeout)
        for t in range(1, 20):
            assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 0, t]

    @in_processes
    def test_a_step_that_takes_longer_than_the_connect_timeout(self, make, signals):
        manager = make.launched(
            many(envs.CounterEnv, 2, gate=signals("gate"), entered=signals("entered")),
            connect_timeout=2.0,
            reset_timeout=2.0,
            step_timeout=None,
        )
        call = Background(manager.step, {0: 0, 1: 0})
        signals("entered").wait(2)
        with pytest.raises(AssertionError, match="did not come back"):
            call.result(2.5)
        signals("gate").post(2)
        assert {i: ts.obs.tolist() for i, ts in call.result().items()} == {i: [i, 0, 1] for i in (0, 1)}

    @in_start_methods
    def test_sigalrm_belongs_to_the_env(self, make):
        manager = make.launched(many(envs.AlarmEnv, 2), step_timeout=20)
        for t in range(1, 6):
            assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 0, t]
        assert manager.alarms == [5, 5]
        assert manager.handler_is_mine == [True, True]

    @in_processes
    def test_sigalrm_is_the_envs_after_an_interrupt_too(self, make, tmp_path):
        fns = [partial(envs.FaultyAlarmEnv, 0, step_fault="sleep", at_step=3, once=str(tmp_path / "once"))]
        manager = make.launched(fns, step_timeout=1.0, interrupt_grace=10.0, on_error="reset")
        for _ in range(2):
            step_until(manager, {0: 0})
        assert step_until(manager, {0: 0})[0].info["abnormal"]
        wait_ready(manager)
        step_until(manager, {0: 0})
        assert manager.handler_is_mine == [True]
        assert manager.alarms == [3]


@pytest.mark.case("O18")
@in_processes
def test_a_long_wait_does_not_deepen_the_stack(make, signals):
    """An older design called itself at each look: a hundred seconds reached the recursion limit."""
    manager = make.launched(
        many(envs.CounterEnv, 1, gate=signals("gate"), entered=signals("entered")), step_timeout=None
    )
    call = Background(manager.step, {0: 0})
    signals("entered").wait()

    def depth():
        frame, n = sys._current_frames().get(call.ident), 0
        while frame is not None:
            frame, n = frame.f_back, n + 1
        return n

    wait_until(lambda: depth() > 3, "the call to wait")
    early = depth()
    with pytest.raises(AssertionError, match="did not come back"):
        call.result(1.5)
    assert depth() <= early + 3
    signals("gate").post()
    call.result()


@in_processes
def test_two_stuck_workers_each_write_their_own_stack(make, tmp_path):
    fns = [
        partial(envs.FaultyEnv, i, step_fault=kind, once=str(tmp_path / kind))
        for i, kind in enumerate(["stubborn", "hang_gil"])
    ]
    manager = make.launched(fns, step_timeout=0.5, interrupt_grace=0.2, on_error="reset")
    result = step_until(manager, {0: 0, 1: 0})
    stacks = [result[i].info["err"].child_traceback for i in (0, 1)]
    assert ["hang_stubbornly" in stack for stack in stacks] == [True, False]
    assert ["hang_in_c" in stack for stack in stacks] == [False, True]
