"""Attributes of envs through the manager, and what Python itself asks of an object."""

from __future__ import annotations

import copy
import os
import pickle
import signal
from functools import partial

import pytest

from envmgr import ConfigError, EnvManagerError, EnvTimeoutError, WorkerDied
from tests.helpers import envs
from tests.helpers.managers import (
    error_of,
    in_base,
    in_base_and_start_methods,
    in_every_process_kind,
    in_processes,
    in_start_methods,
    many,
    step_until,
    wait_ready,
)
from tests.helpers.sync import Background, Log, wait_until, within


def goes_on(manager, t=1):
    """The manager is usable, and no env was stepped meanwhile."""
    assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 0, t]


@in_base_and_start_methods
def test_any_other_attribute_is_a_list(make):
    manager = make.launched(many(envs.AttributeEnv, 2))
    assert manager.colour == ["colour-0", "colour-1"]
    assert manager.env_id == [0, 1]
    goes_on(manager)


@pytest.mark.case("A02", "O21")
@in_start_methods
def test_an_attribute_that_does_not_pickle_is_an_error_and_the_worker_lives(make):
    manager = make.launched(many(envs.AttributeEnv, 2))
    pids = manager.where_pid
    with pytest.raises(EnvManagerError, match=r"(?is)lock.*pickle|pickle.*lock"):
        _ = manager.lock
    assert manager.where_pid == pids
    goes_on(manager)


def test_an_attribute_that_raises_gives_the_envs_error(make):
    manager = make.launched(many(envs.AttributeEnv, 2))
    with pytest.raises(EnvManagerError, match="this property is broken") as caught:
        _ = manager.broken
    assert ("--- in the worker ---" in str(caught.value)) is not make.is_base
    goes_on(manager)


@pytest.mark.case("F03", "A02")
@in_start_methods
def test_a_call_whose_worker_dies_tells_how_and_owes_nothing_to_the_next(make):
    manager = make.launched(many(DyingInACallEnv, 3))
    pids = manager.where_pid
    with pytest.raises(WorkerDied, match=r"in a call of 'die': process \d+ ended with exit code 4") as caught:
        manager.die()
    assert (caught.value.env_id, caught.value.pid, caught.value.exitcode) == (1, pids[1], 4)
    assert within(20, manager.reset) is None
    assert {i: obs.tolist() for i, obs in wait_ready(manager).items()}[1] == [1, 0, 0]
    wait_until(lambda: not manager._engine.pool.sending, "no answer to be owed")
    assert manager.where_pid[1] != pids[1]
    assert step_until(manager, {0: 0, 1: 0, 2: 0})[1].obs.tolist() == [1, 0, 1]


@in_processes
def test_a_call_whose_worker_is_killed_names_the_one_that_was_asked(make, signals):
    manager = make.launched(many(DyingInACallEnv, 1, entered=signals("entered")))
    (pid,) = manager.where_pid
    call = Background(lambda: manager.wait_for_ever())
    signals("entered").wait()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match=f"in a call of 'wait_for_ever': process {pid} was killed") as e:
        call.result()
    assert (e.value.pid, e.value.signal_name) == (pid, "SIGKILL")


class DyingInACallEnv(envs.CounterEnv):
    """Dies in a call, if it is env 1."""

    def die(self) -> int:
        if self.env_id == 1:
            os._exit(4)
        return 1

    def wait_for_ever(self) -> None:
        self.entered.post()
        while True:
            signal.pause()


@pytest.mark.case("O05")
def test_an_attribute_that_no_env_has(make):
    manager = make.launched(many(envs.AttributeEnv, 2))
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = manager.no_such_thing
    assert not hasattr(manager, "no_such_thing")
    assert getattr(manager, "no_such_thing", 5) == 5
    goes_on(manager)


@pytest.mark.case("A03")
@in_start_methods
def test_attributes_through_wrappers(make):
    manager = make.launched(many(envs.painted, 2))
    assert manager.paint == ["red", "red"]
    assert manager.colour == ["colour-0", "colour-1"]


@pytest.mark.case("O05")
class TestPythonsOwnQuestions:
    @pytest.mark.parametrize("closed", [False, True])
    def test_dunder_names_make_no_traffic(self, make, closed, tmp_path):
        asked = Log(tmp_path / "asked")
        manager = make.launched(many(envs.AttributeEnv, 2, asked=asked))
        if closed:
            manager.close()
        before = len(asked.lines())
        for name in (
            "__deepcopy__",
            "__array__",
            "__len__x",
            "__wrapped__",
            "_repr_html_",
            "_ipython_display_",
            "__getstate_manages_dict__",
            "_private",
        ):
            assert not hasattr(manager, name), name
        assert len(asked.lines()) == before
        if not closed:
            goes_on(manager)

    @pytest.mark.parametrize("closed", [False, True])
    def test_copies_are_refused_in_words(self, make, closed):
        manager = make.launched(many(envs.AttributeEnv, 2))
        if closed:
            manager.close()
        for how in (copy.copy, copy.deepcopy, pickle.dumps):
            error = error_of((TypeError, EnvManagerError, pickle.PicklingError), how, manager)
            assert type(manager).__name__ in str(error)
        if not closed:
            goes_on(manager)

    @pytest.mark.parametrize("launched", [True, False])
    def test_repr_and_dir(self, make, launched):
        manager = make(many(envs.AttributeEnv, 2))
        if launched:
            manager.launch()
            wait_ready(manager)
        assert type(manager).__name__ in repr(manager)
        assert {"step", "reset", "ready_obs", "launch", "close"} <= set(dir(manager))
        if launched:
            goes_on(manager)

    def test_an_object_that_was_never_initialised_does_not_recurse(self, make):
        empty = object.__new__(type(make(many(envs.AttributeEnv, 1))))
        assert not hasattr(empty, "__deepcopy__")
        with pytest.raises((AttributeError, EnvManagerError)):
            _ = empty.anything


@pytest.mark.case("O23")
class TestReplay:
    @in_start_methods
    def test_reaches_every_env_and_is_kept_over_relaunch(self, make, tmp_path):
        log = Log(tmp_path / "log")
        manager = make(many(envs.TimestepEnv, 2, log=log))
        manager.enable_save_replay(str(tmp_path))
        manager.launch()
        wait_ready(manager)
        assert manager.replay_path == [str(tmp_path)] * 2
        manager.close()
        manager.launch()
        wait_ready(manager)
        assert manager.replay_path == [str(tmp_path)] * 2

    def test_after_launch(self, make, tmp_path):
        manager = make.launched(many(envs.TimestepEnv, 2))
        manager.enable_save_replay(str(tmp_path))
        assert manager.replay_path == [str(tmp_path)] * 2

    def test_one_path_per_env(self, make, tmp_path):
        manager = make.launched(many(envs.TimestepEnv, 2))
        paths = [str(tmp_path / "a"), str(tmp_path / "b")]
        manager.enable_save_replay(paths)
        assert manager.replay_path == paths

    @in_base
    def test_what_is_no_path_is_refused(self, make):
        manager = make(many(envs.TimestepEnv, 2))
        for given in (5, [None, None], [1, 2]):
            told = str(error_of(ConfigError, manager.enable_save_replay, given))
            assert "a str or a path" in told and repr(given) in told

    def test_envs_without_it(self, make, tmp_path):
        manager = make.launched(many(envs.TimestepEnv, 2, with_replay=False))
        with pytest.raises(EnvManagerError, match="enable_save_replay"):
            manager.enable_save_replay(str(tmp_path))
        assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 1]
        manager.close()
        manager.launch()  # what no env took is forgotten
        assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 1]

    def test_none_forgets_what_was_said(self, make, tmp_path):
        manager = make(many(envs.TimestepEnv, 2, with_replay=False))
        manager.enable_save_replay(str(tmp_path))
        with pytest.raises(EnvManagerError, match="enable_save_replay"):
            manager.launch()
        manager.enable_save_replay(None)
        manager.launch()
        assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 1]


@in_base
def test_who_is_told_of_states_can_be_called(make):
    told = str(error_of(ConfigError, make(many(envs.CounterEnv, 1)).on_state_change, 5))
    assert "takes a callable" in told and told.endswith("not 5")


@pytest.mark.case("O04")
@in_every_process_kind
def test_attributes_between_steps_never_mix_with_results(make):
    manager = make.launched(many(envs.AttributeEnv, 3), envs_per_worker=2)
    for t in range(1, 30):
        assert manager.colour == ["colour-0", "colour-1", "colour-2"]
        result = step_until(manager, dict.fromkeys(range(3), 0))
        assert {i: ts.obs.tolist() for i, ts in result.items()} == {i: [i, 0, t] for i in range(3)}
        assert manager.steps == [t, t, t]


def test_method_name_list(make):
    manager = make(many(envs.CounterEnv, 1))
    assert {"reset", "step", "seed", "close", "enable_save_replay"} <= set(manager.method_name_list)


@in_processes
class TestNobodyWaits:
    """An answer that nobody waits for any more is dropped when it comes."""

    def answers(self, manager):
        links = manager._engine.pool._family.links
        return [len(link.answers) + len(link.unwanted) for link in links]

    def test_after_a_call_that_took_too_long(self, make):
        manager = make.launched(many(envs.AttributeEnv, 2), step_timeout=0.2, reset_timeout=0.2)
        with pytest.raises(EnvTimeoutError, match="did not answer"):
            manager.call_env_method("nap", 1.0)
        assert self.answers(manager) == [1, 1]
        assert manager.get_env_attr("env_id") == [0, 1]
        assert self.answers(manager) == [0, 0]

    def test_after_a_call_that_was_refused_since_a_worker_comes_up_anew(self, make, signals):
        gate = signals("gate")
        gate.post(2)
        manager = make.launched([partial(envs.slow_start, i, gate) for i in range(2)], on_error="reset")
        os.kill(manager.where_pid[1], signal.SIGKILL)
        assert step_until(manager, {1: 0})[1].info["abnormal"]
        with pytest.raises(EnvManagerError, match=r"env 1 .*being renewed"):
            manager.get_env_attr("env_id")
        assert manager.get_env_attr("env_id", [0]) == [0]
        assert self.answers(manager) == [0, 0]
        gate.post()
        wait_ready(manager)
        assert manager.get_env_attr("env_id") == [0, 1]
