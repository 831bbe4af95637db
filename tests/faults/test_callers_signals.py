"""What the caller's own program has done to signals is none of the workers' business."""

from __future__ import annotations

import signal
from functools import partial

import pytest

from envmgr import WorkerDied
from tests.helpers import envs
from tests.helpers.managers import in_every_process_kind, in_processes, step_until, wait_ready


@pytest.fixture
def all_blocked():
    """As programs do that take their signals by ``sigwait``."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.fixture
def no_sigchld():
    """As servers do that never ask how their children ended."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


def one_bad(fault, **kwargs):
    return [partial(envs.FaultyEnv, 0, step_fault=fault, at_step=2, **kwargs), partial(envs.CounterEnv, 1)]


@pytest.mark.case("F18", "O14")
@in_every_process_kind
def test_a_call_is_interrupted_where_the_caller_blocks_signals(all_blocked, make):
    manager = make.launched(one_bad("sleep"), on_error="reset", step_timeout=0.5)
    step_until(manager, {0: 0})
    info = step_until(manager, {0: 0})[0].info
    assert "step_timeout=0.5" in str(info["err"]) and "was killed" not in str(info["err"])
    assert manager.stats()[0]["renewals"] == 0


@pytest.mark.case("F18")
@in_every_process_kind
def test_a_stuck_child_writes_its_stack_where_the_caller_blocks_signals(all_blocked, make, caplog):
    manager = make.launched(one_bad("stubborn"), on_error="reset", step_timeout=0.3, interrupt_grace=0.2)
    step_until(manager, {0: 0})
    assert "was killed" in str(step_until(manager, {0: 0})[0].info["err"])
    assert "hang_stubbornly" in caplog.text


@pytest.mark.case("F03")
@in_every_process_kind
def test_an_exit_code_is_told_where_the_caller_ignores_sigchld(no_sigchld, make):
    manager = make.launched(one_bad("exit"), on_error="reset")
    step_until(manager, {0: 0})
    error = step_until(manager, {0: 0})[0].info["err"]
    assert error.exitcode == envs.FAULT_EXIT_CODE and f"exit code {envs.FAULT_EXIT_CODE}" in str(error)
    wait_ready(manager)


@pytest.mark.case("F03", "F15")
@in_processes
def test_so_it_is_of_one_that_dies_at_launch(no_sigchld, make):
    manager = make([partial(envs.failing_env_fn, "exit")])
    with pytest.raises(WorkerDied, match=f"exit code {envs.FAULT_EXIT_CODE}"):
        manager.launch()
