"""A step that takes too long: interrupted, or killed and renewed; the others never wait for it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from functools import partial

import psutil
import pytest

from envmgr import EnvTimeoutError, ManagerClosedError, WorkerDied
from envmgr.workers.hygiene import INTERRUPT_SIGNAL
from envmgr.workers.watchdog import WATCHDOG_NAME
from tests.helpers import envs
from tests.helpers.managers import (
    actions_for,
    in_async,
    in_base,
    in_every_process_kind,
    in_processes,
    in_start_methods,
    in_sync,
    kinds,
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
@in_every_process_kind
def test_one_deadline_fails_only_those_that_are_late(make, tmp_path):
    fns = many(envs.CounterEnv, 5)
    for who, kind in ((1, "sleep"), (3, "stubborn")):
        fns[who] = partial(envs.FaultyEnv, who, step_fault=kind, once=str(tmp_path / f"once{who}"))
    manager = make.launched(fns, step_timeout=1.0, interrupt_grace=0.3, on_error="reset")
    result = within(20, step_until, manager, actions_for(range(5)))
    assert {i: result[i].obs.tolist() for i in (0, 2, 4)} == {i: [i, 0, 1] for i in (0, 2, 4)}
    for i in (1, 3):
        assert isinstance(result[i].info["err"], EnvTimeoutError) and result[i].info["err"].env_id == i
    wait_ready(manager)
    result = step_until(manager, actions_for(range(5)))
    assert [result[i].obs.tolist()[2] for i in range(5)] == [2, 1, 2, 1, 2]


@pytest.mark.case("O20")
@pytest.mark.parametrize("face", ["dict", "arrays"])
@in_sync
def test_many_that_are_late_are_late_together(make, face, tmp_path):
    """One deadline after the other, with one grace after the other, would take 29 seconds."""
    n = 20
    fns = many(envs.CounterEnv, n)
    for i in range(1, n):
        kind = "stubborn" if i % 2 else "sleep"
        fns[i] = partial(envs.FaultyEnv, i, step_fault=kind, once=str(tmp_path / f"once{i}"))
    manager = make(fns, step_timeout=1.0, interrupt_grace=1.0, on_error="reset", close_grace=0.5)
    manager.launch()
    if face == "dict":
        wait_ready(manager)
        result = within(15, manager.step, actions_for(range(n)))
        good, errors = result[0].obs.tolist(), {i: ts.info.get("err") for i, ts in result.items()}
    else:
        manager.reset_arrays()
        out = within(15, manager.step_arrays, [0] * n)
        good, errors = out.obs[0].tolist(), {i: out.info.get(i, {}).get("err") for i in range(n)}
    assert good == [0, 0, 1] and errors.pop(0) is None
    assert {i: type(error) for i, error in errors.items()} == dict.fromkeys(range(1, n), EnvTimeoutError)
    assert [manager.stats()[i]["timeouts"] for i in range(n)] == [0] + [1] * (n - 1)


@pytest.mark.case("O08")
@kinds("subprocess-fork", "async_subprocess-spawn")
def test_siblings_of_one_that_hangs_are_not_given_what_nobody_was_told_of(make, tmp_path):
    """Env 0 had its step when its worker was killed, and lost it (unless it was announced before)."""
    manager = make.launched(
        one_hangs("stubborn", once=str(tmp_path / "once")),
        step_timeout=0.5,
        interrupt_grace=0.3,
        on_error="reset",
        num_workers=1,
    )
    step_until(manager, actions_for(range(3)))
    result = within(20, step_until, manager, actions_for(range(3)))
    if "abnormal" in result[0].info:
        assert result[0].obs.tolist() in ([0, 0, 1], [0, 0, 0])
    else:
        assert make.is_async and result[0].obs.tolist() == [0, 0, 2]
    assert {i: result[i].obs.tolist() for i in (1, 2)} == {1: [1, 0, 1], 2: [2, 0, 1]}
    assert [type(result[i].info["err"]) for i in (1, 2)] == [EnvTimeoutError, WorkerDied]
    assert [float(result[i].reward) for i in (1, 2)] == [0.0, 0.0]


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
@pytest.mark.parametrize("face", ["dict", "arrays"])
@kinds("subprocess-fork", "async_subprocess-spawn")
def test_a_step_that_swallows_the_interrupt_has_failed_all_the_same(make, face, tmp_path):
    """It comes back in time not to be killed, with what it has made of a call that was broken off."""
    fns = many(envs.CounterEnv, 2)
    fns[1] = partial(envs.SwallowingEnv, 1, once=str(tmp_path / "once"))
    manager = make(fns, step_timeout=0.5, interrupt_grace=60.0, on_error="reset")
    manager.launch()
    if face == "dict":
        wait_ready(manager)
        step_until(manager, {0: 0, 1: 0})
        result = within(20, step_until, manager, {0: 0, 1: 0})
        assert result[0].obs.tolist() == [0, 0, 2]
        ts = result[1]
        last, reward, error, abnormal = ts.obs, float(ts.reward), ts.info["err"], ts.info["abnormal"]
        assert ts.done and ts.truncated and wait_ready(manager)[1].tolist() == [1, 1, 0]
    else:
        manager.reset_arrays()
        manager.step_arrays([0, 0])
        out = within(20, manager.step_arrays, [0, 0])
        k = out.env_id.tolist().index(1)
        last, reward = out.final_obs[1], float(out.reward[k])
        error, abnormal = out.info[1]["err"], out.info[1]["abnormal"]
        assert out.truncated[k] and out.obs[k].tolist() == [1, 1, 0] and out.obs[1 - k].tolist() == [0, 0, 2]
    assert last.tolist() in ([1, 0, 1], [0, 0, 0]) and reward == 0.0 and abnormal is True
    assert type(error) is EnvTimeoutError and error.env_id == 1 and "was killed" not in str(error)
    for t in range(1, 20):
        if face == "dict":
            result = step_until(manager, {0: 0, 1: 0})
            got = {i: (ts.obs.tolist(), float(ts.reward), ts.done) for i, ts in result.items()}
        else:
            out = manager.step_arrays([0, 0])
            rows = zip(out.env_id.tolist(), out.obs.tolist(), out.reward.tolist(), strict=True)
            got = {i: (obs, reward, i in out.final_obs) for i, obs, reward in rows}
        assert got == {0: ([0, 0, t + 2], t + 2, False), 1: ([1, 1, t], 100 + t, False)}
    row = manager.stats()[1]
    assert [row[what] for what in ("timeouts", "failures", "renewals", "retries")] == [1, 1, 0, 0]


@pytest.mark.case("O17")
@kinds("subprocess-fork", "async_subprocess-spawn")
def test_a_step_that_swallows_the_interrupt_is_an_error(make, tmp_path):
    fns = [partial(envs.SwallowingEnv, 0, once=str(tmp_path / "once"))]
    manager = make.launched(fns, step_timeout=0.5, interrupt_grace=60.0)
    manager.step({0: 0})
    with pytest.raises(EnvTimeoutError) as caught:
        within(20, manager.step, {0: 0})
    assert caught.value.env_id == 0 and manager.closed


def one_reply_in(make, signals, **cfg):
    """A manager of two and its call that waits for env 0, while the result of env 1 is in and not taken."""
    gate, entered = signals("gate"), signals("entered")
    fns = [partial(envs.CounterEnv, 0, gate=gate, entered=entered), partial(envs.CounterEnv, 1)]
    manager = make.launched(fns, close_grace=0.5, interrupt_grace=0.2, **cfg)
    gate.post()
    step_until(manager, {0: 0, 1: 0})
    entered.wait()
    call = Background(manager.step, {0: 0, 1: 0})
    entered.wait()
    wait_until(lambda: manager._engine._replies.waiting() == 1, "the result of env 1 to be in")
    return manager, call


@pytest.mark.case("O17")
@kinds("subprocess-fork", "async_subprocess-spawn")
def test_a_reply_that_was_in_when_its_worker_was_killed_counts_once(make, signals):
    """What is renewed is told by the next step; nothing of the dead worker comes after that."""
    manager, call = one_reply_in(make, signals, on_error="reset")
    pid = manager._engine.pool.pid(1)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: manager._engine.pool.pid(1) not in (pid, None), "another worker")
    signals("gate").post(40)
    result = call.result()
    told = {i: (ts.obs.tolist(), float(ts.reward), ts.done) for i, ts in result.items()}
    assert told == {0: ([0, 0, 2], 2, False), 1: ([1, 0, 2], 102, False)}
    result = step_until(manager, {0: 0, 1: 0})
    assert result[0].obs.tolist() == [0, 0, 3]
    ts = result[1]
    assert ts.info["abnormal"] is True and type(ts.info["err"]) is WorkerDied and ts.info["err"].pid == pid
    assert ts.obs.tolist() == [1, 0, 2] and float(ts.reward) == 0.0 and ts.done and ts.truncated
    assert wait_ready(manager)[1].tolist() == [1, 0, 0]
    assert_counts_on(manager, {0: 3, 1: 0})
    assert manager.stats()[1]["renewals"] == 1


@pytest.mark.case("O17")
@kinds("subprocess-fork", "async_subprocess-spawn")
def test_a_reply_that_was_in_when_its_worker_was_stopped_counts_once(make, signals):
    manager, call = one_reply_in(make, signals, on_error="reset", step_timeout=2.0)
    pid = manager._engine.pool.pid(1)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "the worker to stop")
    signals("gate").post(40)
    result = call.result()
    told = {i: (ts.obs.tolist(), float(ts.reward), ts.done) for i, ts in result.items()}
    assert told == {0: ([0, 0, 2], 2, False), 1: ([1, 0, 2], 102, False)}
    result = within(20, step_until, manager, {0: 0, 1: 0})
    assert result[0].obs.tolist() == [0, 0, 3]
    ts = result[1]
    assert ts.info["abnormal"] is True and type(ts.info["err"]) is EnvTimeoutError
    assert ts.obs.tolist() == [1, 0, 2] and float(ts.reward) == 0.0 and ts.done and ts.truncated
    assert wait_ready(manager)[1].tolist() == [1, 0, 0]
    assert_counts_on(manager, {0: 3, 1: 0})
    wait_until(lambda: not psutil.pid_exists(pid), "the stopped worker to be gone", 5)


def assert_counts_on(manager, t, episode=0):
    """Steps both envs some times: each result is the one that follows."""
    for k in range(1, 20):
        told = {
            i: (ts.obs.tolist(), float(ts.reward), ts.done)
            for i, ts in step_until(manager, actions_for(t)).items()
        }
        assert told == {i: ([i, episode, t[i] + k], 100 * i + t[i] + k, False) for i in t}


@pytest.mark.case("O17")
@kinds("subprocess-fork", "async_subprocess-spawn")
def test_nothing_of_before_a_relaunch_is_taken_for_fresh(make, signals):
    """A result was in and not taken when everything was closed, and another step was under way."""
    manager, call = one_reply_in(make, signals)
    within(15, manager.close)
    with pytest.raises(ManagerClosedError) as caught:
        call.result()
    assert type(caught.value) is ManagerClosedError
    manager.launch()
    assert {i: obs.tolist() for i, obs in wait_ready(manager).items()} == {i: [i, 0, 0] for i in (0, 1)}
    assert manager.step({}) == {}
    signals("gate").post(40)
    assert_counts_on(manager, {0: 0, 1: 0})


@pytest.mark.case("O17")
@in_async
def test_nor_is_what_no_call_was_waiting_for(make, signals):
    gate = signals("gate")
    fns = [partial(envs.CounterEnv, 0), partial(envs.CounterEnv, 1, gate=gate)]
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0, close_grace=0.5)
    assert set(manager.step({0: 0, 1: 0})) == {0}
    gate.post()
    wait_until(lambda: manager._engine._replies.waiting() == 1, "the result of env 1 to be in")
    within(15, manager.close)
    manager.launch()
    assert {i: obs.tolist() for i, obs in wait_ready(manager).items()} == {i: [i, 0, 0] for i in (0, 1)}
    assert manager.step({}) == {}
    gate.post(40)
    assert_counts_on(manager, {0: 0, 1: 0})


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
@in_every_process_kind
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
