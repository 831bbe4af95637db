"""``reset``: whom it touches, its params, what it refuses; params survive automatic resets (A01)."""

from __future__ import annotations

import re

import pytest

from envmgr import EnvManagerError
from tests.helpers import envs
from tests.helpers.managers import (
    actions_for,
    error_of,
    everywhere,
    in_every_process_kind,
    in_processes,
    in_start_methods,
    many,
    state_of,
    wait_ready,
    wait_state,
)
from tests.helpers.sync import Background, Log, wait_until


def lists(obs):
    return {i: o.tolist() for i, o in obs.items()}


def test_reset_of_all(make):
    manager = make.launched(many(envs.CounterEnv, 3))
    manager.step(actions_for(range(3)))
    manager.reset()
    assert lists(wait_ready(manager)) == {i: [i, 1, 0] for i in range(3)}


@pytest.mark.case("D05")
@everywhere
def test_reset_of_some_leaves_the_others_as_they_were(make):
    manager = make.launched(many(envs.CounterEnv, 3, length=2), auto_reset=False)
    manager.step(actions_for(range(3)))
    manager.step({2: 0})
    assert state_of(manager, 2) == "NEED_RESET"
    manager.reset({1: {}})
    obs = wait_ready(manager, [0, 1])
    assert lists(obs) == {0: [0, 0, 1], 1: [1, 1, 0]}
    assert state_of(manager, 2) == "NEED_RESET"
    assert manager.resets == [1, 2, 1]
    result = manager.step({0: 0, 1: 0})
    assert {i: ts.obs.tolist() for i, ts in result.items()} == {0: [0, 0, 2], 1: [1, 1, 1]}
    assert result[0].done and not result[1].done


@pytest.mark.case("D05")
def test_reset_of_none_touches_nobody(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    manager.step({0: 0, 1: 0})
    manager.reset({})
    assert lists(manager.ready_obs) == {0: [0, 0, 1], 1: [1, 0, 1]}
    assert manager.resets == [1, 1]


@pytest.mark.case("A01")
@in_start_methods
def test_params_are_used_now_and_at_later_automatic_resets(make):
    manager = make(many(envs.CounterEnv, 2, length=1))
    manager.launch({0: {"start": 10}, 1: {"start": 20}})
    assert lists(wait_ready(manager)) == {0: [0, 0, 10], 1: [1, 0, 20]}
    for episode in range(1, 4):
        result = manager.step({0: 0, 1: 0})
        assert [result[i].obs.tolist()[2] for i in (0, 1)] == [11, 21]
        assert lists(wait_ready(manager)) == {0: [0, episode, 10], 1: [1, episode, 20]}


@pytest.mark.case("A01")
def test_params_of_reset_replace_those_of_launch_for_these_envs_only(make):
    manager = make(many(envs.CounterEnv, 3, length=1))
    manager.launch({i: {"start": 10 * i} for i in range(3)})
    wait_ready(manager)
    manager.reset({1: {"start": 77}})
    assert lists(wait_ready(manager)) == {0: [0, 0, 0], 1: [1, 1, 77], 2: [2, 0, 20]}
    manager.step(actions_for(range(3)))
    assert [o[2] for o in lists(wait_ready(manager)).values()] == [0, 77, 20]


@pytest.mark.case("A01")
@pytest.mark.parametrize("again", [{1: None}, None], ids=["{id: None}", "all"])
def test_none_uses_the_params_that_the_env_already_has(make, again):
    manager = make(many(envs.CounterEnv, 2))
    manager.launch({0: {"start": 3}, 1: {"start": 4}})
    wait_ready(manager)
    manager.reset(again)
    obs = lists(wait_ready(manager))
    assert obs[1] == [1, 1, 4]
    assert obs[0] == ([0, 0, 3] if again else [0, 1, 3])


def test_a_list_gives_each_env_its_params(make):
    manager = make(many(envs.CounterEnv, 2))
    manager.launch([{"start": 5}, {"start": 6}])
    assert [o[2] for o in lists(wait_ready(manager)).values()] == [5, 6]
    manager.reset([{"start": 7}, None])
    assert [o[2] for o in lists(wait_ready(manager)).values()] == [7, 6]


def test_the_callers_params_are_not_touched(make):
    params = {0: {"start": 1, "options": {"deep": [1]}}, 1: {"start": 2}}
    manager = make(many(envs.CounterEnv, 2))
    manager.launch(params)
    wait_ready(manager)
    manager.reset(params)
    assert params == {0: {"start": 1, "options": {"deep": [1]}}, 1: {"start": 2}}
    params[0]["start"] = 100
    wait_ready(manager)
    manager.reset()
    assert wait_ready(manager)[0].tolist()[2] == 1


@pytest.mark.case("A07")
@pytest.mark.parametrize("how", ["launch", "reset"])
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ([{0: {}, 2: {}}, {0: {}, -1: {}}, {"0": {}}], "2|-1|'0'"),
        ([[{}], [{}, {}, {}], []], "2"),
        ([5, "all", [1, 2], {0: 5}], "(?i)param|dict"),
    ],
    ids=["unknown-ids", "lists-of-the-wrong-length", "no-params-at-all"],
)
def test_refused(make, how, wrong, told):
    manager = make(many(envs.CounterEnv, 2))
    if how == "reset":
        manager.launch()
        wait_ready(manager)
    for bad in wrong:
        error = error_of(EnvManagerError, getattr(manager, how), bad)
        assert re.search(told, str(error)), bad
        assert isinstance(error, KeyError) == (told.startswith("2|")), bad
    if how == "launch":
        manager.close()
        manager.launch()
    assert lists(wait_ready(manager)) == {0: [0, 0, 0], 1: [1, 0, 0]}


@pytest.mark.case("O16")
@in_every_process_kind
def test_two_resets_queued_for_one_env(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    manager.reset({0: {"start": 1}})
    manager.reset({0: {"start": 2}})
    obs = wait_ready(manager)
    assert lists(obs) == {0: [0, 2, 2], 1: [1, 0, 0]}
    assert manager.resets == [3, 1]
    assert manager.step({0: 0})[0].obs.tolist() == [0, 2, 3]


@pytest.mark.case("O16")
@in_every_process_kind
def test_two_resets_from_two_threads_behind_one_that_is_under_way(make, signals, tmp_path):
    log = Log(tmp_path / "log")
    manager = make.launched(many(envs.CounterEnv, 2, length=1, reset_gate=signals("gate"), log=log))
    manager.step({0: 0})
    log.wait("reset", 3)
    seen = []

    def reset(start):
        manager.reset({0: {"start": start}})
        seen.append(start)

    calls = [Background(reset, start) for start in (1, 2)]
    wait_until(lambda: manager._engine.machine.wants_again(0), "one of them to be asked for")
    signals("gate").post(3)
    for call in calls:
        call.result()
    assert sorted(seen) == [1, 2]
    assert manager.resets == [4, 1]
    assert lists(manager.ready_obs) == {0: [0, 3, manager.start[0]], 1: [1, 0, 0]}
    assert manager.start[0] in (1, 2)


@pytest.mark.case("O16")
@pytest.mark.parametrize("envs_per_worker", [1, 2])
@in_every_process_kind
def test_a_reset_while_an_automatic_one_is_under_way(make, signals, tmp_path, envs_per_worker):
    log = Log(tmp_path / "log")
    manager = make.launched(
        many(envs.CounterEnv, 2, length=1, reset_gate=signals("gate"), log=log),
        envs_per_worker=envs_per_worker,
    )
    manager.step({0: 0})
    log.wait("reset", 3)
    call = Background(manager.reset, {0: {"start": 9}})
    wait_until(lambda: manager._engine.machine.wants_again(0), "the second reset to be asked for")
    assert call.running
    signals("gate").post(2)
    call.result()
    assert lists(manager.ready_obs) == {0: [0, 2, 9], 1: [1, 0, 0]}, "of its own reset, not of the first"
    assert manager.resets == [3, 1]
    assert manager.step({0: 0})[0].obs.tolist() == [0, 2, 10]
    signals("gate").post()
    assert lists(wait_ready(manager)) == {0: [0, 3, 9], 1: [1, 0, 0]}


def test_reset_from_need_reset_and_from_done(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=1), auto_reset=False, episode_num=2)
    manager.step({0: 0})
    manager.reset({0: {}})
    assert wait_ready(manager, [0])[0].tolist() == [0, 1, 0]


def test_ready_info_has_the_info_of_the_reset(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=1, infos=True))
    assert {i: manager.ready_info[i] for i in (0, 1)} == {i: {"episode": 0, "env_id": i} for i in (0, 1)}
    manager.step({0: 0})
    wait_state(manager, 0, "RUN")
    assert manager.ready_info[0] == {"episode": 1, "env_id": 0}
    assert manager.ready_info[1] == {"episode": 0, "env_id": 1}


@in_processes
def test_ready_info_waits_for_the_info_that_belongs_to_the_observation(make, signals):
    manager = make.launched(many(envs.CounterEnv, 1, length=1, infos=True, reset_gate=signals("gate")))
    manager.step({0: 0})
    asked = Background(getattr, manager, "ready_info")  # the reset is under way
    wait_state(manager, 0, "RESET")
    signals("gate").post(1)
    assert asked.result() == {0: {"episode": 1, "env_id": 0}}


def test_reset_params_reach_a_timestep_env_as_keywords(make, tmp_path):
    log = Log(tmp_path / "log")
    manager = make(many(envs.TimestepEnv, 1, log=log))
    manager.launch({0: {"level": 3}})
    wait_ready(manager)
    assert log.lines("reset") == [["reset", "0", "level=3"]]
