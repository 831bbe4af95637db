"""``envmgr.testing.faults`` in managers: each kind is noticed as what it is, and once is once."""

from __future__ import annotations

import pytest

from envmgr import EnvResetError, EnvStepError, EnvTimeoutError, SpaceMismatchError, WorkerDied
from envmgr.testing.faults import EXIT_CODE, KINDS, Fault, FaultError, Ledger, with_faults
from tests.helpers.managers import (
    START_METHODS,
    in_start_methods,
    in_sync,
    kinds,
    launch_all,
    step_until,
    wait_ready,
)
from tests.helpers.sync import within

LIMITS = {"step_timeout": 0.5, "interrupt_grace": 0.2, "retry_waiting_time": 0.01}

NOTICED = {
    "raise": (EnvStepError, "raised on purpose"),
    "system_exit": (EnvStepError, "SystemExit"),
    "keyboard_interrupt": (EnvStepError, "KeyboardInterrupt"),
    "sleep": (EnvTimeoutError, "step_timeout=0.5"),
    "hang": (EnvTimeoutError, "killed"),
    "hang_in_c": (EnvTimeoutError, "killed"),
    "stop": (EnvTimeoutError, "killed"),
    "exit": (WorkerDied, str(EXIT_CODE)),
    "segfault": (WorkerDied, "SIGSEGV"),
    "kill": (WorkerDied, "SIGKILL"),
    "rubbish": (EnvStepError, "None"),
    "misfit": (SpaceMismatchError, "shape"),
}
"""The error that a kind leads to in a step, and something of its text."""

AMOUNTS = {"slow": 0.01, "leak_memory": 1.0, "leak_fds": 2.0, "print": 0.1}


def test_every_kind_is_tried():
    harmless = {name for name, kind in KINDS.items() if kind.harmless}
    assert set(AMOUNTS) == harmless
    assert {*NOTICED, *harmless, "abnormal"} == set(KINDS)


@pytest.mark.parametrize("kind", NOTICED)
@in_sync
def test_a_kind_in_a_step(make, kind, tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    fault = Fault(kind, at_step=2, times=1)
    manager = make.launched(with_faults([None] * 2, [fault], ledger=ledger), on_error="reset", **LIMITS)
    assert sorted(within(20, step_until, manager, {0: 0, 1: 0})) == [0, 1]
    result = within(20, step_until, manager, {0: 0, 1: 0})
    (record,) = ledger.records("fault")
    assert (record.kind, record.where, record.episode, record.step) == (kind, "step", 0, 2)
    i = record.env_id
    assert result[1 - i].obs.tolist() == [1 - i, 0, 2]
    error, told = NOTICED[kind]
    assert result[i].info["abnormal"] is True and isinstance(result[i].info["err"], error)
    assert told in str(result[i].info["err"])
    assert result[i].obs.tolist() == [i, 0, 1]
    wait_ready(manager)
    assert step_until(manager, {0: 0, 1: 0})[i].obs[2] == 1
    assert step_until(manager, {0: 0, 1: 0})[i].obs[2] == 2, "once is once, in a renewed worker too"


@pytest.mark.parametrize("kind", AMOUNTS)
@in_sync
def test_a_harmless_kind(make, kind, capfd):
    fault = Fault(kind, at_step=1, amount=AMOUNTS[kind])
    manager = make.launched(with_faults([None] * 2, [fault]))
    for t in range(1, 4):
        assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 0, t]
    manager.close()
    assert capfd.readouterr().out.count("x") == (2 * 102 * 1023 if kind == "print" else 0)


@in_sync
def test_abnormal_is_what_the_env_says_itself(make):
    manager = make.launched(with_faults([None], [Fault("abnormal", at_step=2)]))
    assert not step_until(manager, {0: 0})[0].info
    result = step_until(manager, {0: 0})[0]
    assert result.info["abnormal"] is True and result.obs.tolist() == [0, 0, 2]
    manager.reset({0: None})
    assert wait_ready(manager)[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("kind", ["raise", "exit", "segfault", "stop", "misfit"])
@in_sync
def test_a_kind_in_a_reset(make, kind, tmp_path):
    """A misfit is not tried again; all others are, and once is not often enough to fail."""
    fault = Fault(kind, where="reset", in_episode=0, times=1)
    fns = with_faults([None] * 2, [fault], ledger=tmp_path / "ledger")
    manager = make(fns, max_retry=2, reset_timeout=0.5, interrupt_grace=0.2, retry_waiting_time=0.01)
    if kind == "misfit":
        with pytest.raises((SpaceMismatchError, EnvResetError), match="shape"):
            within(20, launch_all, manager)
        return
    obs = within(20, launch_all, manager)
    assert {i: o.tolist() for i, o in obs.items()} == {0: [0, 0, 0], 1: [1, 0, 0]}
    assert sum(row["retries"] for row in manager.stats().values()) == 1


@pytest.mark.parametrize(
    ("make", "kind"),
    [("subprocess-fork", "raise"), *((name, "exit") for name in START_METHODS)],
    indirect=["make"],
)
def test_a_renewal_that_cannot_be_built_is_tried_again(make, kind, tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    faults = [Fault("exit", at_step=1, in_instance=0), Fault(kind, where="build", in_instance={1, 2})]
    manager = make.launched(
        with_faults([None], faults, ledger=ledger), on_error="reset", max_retry=5, retry_waiting_time=0.01
    )
    assert isinstance(within(20, step_until, manager, {0: 0})[0].info["err"], WorkerDied)
    assert wait_ready(manager)[0].tolist() == [0, 0, 0]
    assert step_until(manager, {0: 0})[0].obs.tolist() == [0, 0, 1]
    assert [(r.where, r.instance) for r in ledger.records("fault")] == [
        ("step", 0),
        ("build", 1),
        ("build", 2),
    ]


@in_start_methods
def test_a_death_after_a_renewal_that_could_not_be_built_is_noticed_too(make, tmp_path):
    """The one that could not be built is replaced before it has ended, and its end is nobody's news."""
    faults = [Fault("exit", at_step=1, in_instance={0, 2}), Fault("raise", where="build", in_instance=1)]
    manager = make.launched(
        with_faults([None], faults, ledger=tmp_path / "ledger"), on_error="reset", retry_waiting_time=0.0
    )
    for _ in range(2):
        assert isinstance(within(20, step_until, manager, {0: 0})[0].info["err"], WorkerDied)
        assert wait_ready(manager)[0].tolist() == [0, 0, 0]
    assert step_until(manager, {0: 0})[0].obs.tolist() == [0, 0, 1]


@pytest.mark.parametrize("kind", ["raise", "exit"])
@in_sync
def test_a_close_that_fails_is_still_a_close(make, kind):
    manager = make.launched(with_faults([None] * 2, [Fault(kind, where="close")]))
    within(20, manager.close)
    assert manager.closed


@kinds("base", "async_subprocess-spawn", "subprocess-forkserver")
def test_the_original_error_is_the_cause(make):
    manager = make.launched(
        with_faults([None] * 2, [Fault("raise", at_step=1, in_episode=0)]), on_error="reset"
    )
    result = step_until(manager, {0: 0, 1: 0})
    for i in (0, 1):
        assert isinstance(result[i].info["err"].__cause__, FaultError)
        assert result[i].info["err"].env_id == i
    assert {i: o.tolist() for i, o in wait_ready(manager).items()} == {0: [0, 1, 0], 1: [1, 1, 0]}
