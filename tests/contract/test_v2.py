"""The managers with lists: ``base_v2`` and ``subprocess_v2`` (O22)."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from envmgr import (
    BaseEnvTimestep,
    EnvIdTimestep,
    EnvState,
    EnvStepError,
    IllegalStateError,
    ManagerClosedError,
    UnknownEnvError,
)
from tests.helpers import envs
from tests.helpers.managers import error_of, kinds, many, same, wait_state
from tests.helpers.sync import Background

in_both = kinds("base_v2", "subprocess_v2-fork")
in_base_v2 = kinds("base_v2")
in_processes = kinds("subprocess_v2-fork")
START_METHODS = ("subprocess_v2-fork", "subprocess_v2-spawn", "subprocess_v2-forkserver")
in_start_methods = kinds(*START_METHODS)
everywhere = kinds("base_v2", *START_METHODS)


def launched(make, env_fns, **cfg):
    manager = make(env_fns, **cfg)
    manager.launch()  # waits for every env
    return manager


@everywhere
def test_lists_in_and_out_and_again_after_close(make):
    manager = make(many(envs.CounterEnv, 3))
    for _ in range(2):
        manager.launch()
        obs = manager.ready_obs
        assert (obs.shape, obs.dtype) == ((3, 3), np.float64)
        assert obs[:, 0].tolist() == manager.ready_obs_id == manager.ready_env == [0, 1, 2]
        timesteps = manager.step([5, 6, 7])
        assert [ts.env_id for ts in timesteps] == [0, 1, 2]
        assert [ts.obs.tolist() for ts in timesteps] == [[i, 0, 1] for i in range(3)]
        assert manager.actions == [[5], [6], [7]]
        assert manager.ready_obs.tolist() == [[i, 0, 1] for i in range(3)]
        manager.close()
        assert "launch" in str(error_of(ManagerClosedError, manager.step, [0, 0, 0]))
        assert "launch" in str(error_of(ManagerClosedError, lambda: manager.ready_obs))


@in_both
def test_a_timestep_is_a_base_timestep_that_knows_its_env(make):
    manager = launched(make, many(envs.CounterEnv, 2, length=1, truncate=True, infos=True))
    first, second = manager.step((0, 0))
    assert isinstance(first, BaseEnvTimestep) and isinstance(first, EnvIdTimestep)
    obs, reward, done, info = second
    assert (obs.tolist(), reward, done, info["t"]) == ([1, 0, 1], 101.0, True, 1)
    assert (second.env_id, second.terminated, second.truncated) == (1, False, True)
    for again in (copy.deepcopy(second), pickle.loads(pickle.dumps(second))):
        assert (again.env_id, again.truncated, again.reward) == (1, True, 101.0)


def test_both_ends_at_once_are_kept():
    both = EnvIdTimestep.of(4, BaseEnvTimestep.both(None, 0.0, {}))
    assert (both.env_id, both.terminated, both.truncated) == (4, True, True)


@pytest.mark.case("O22")
@in_start_methods
def test_actions_go_to_the_envs_that_were_seen_though_more_are_ready_by_now(make, signals):
    gate = signals("gate")
    manager = launched(make, [*many(envs.CounterEnv, 1, length=1, reset_gate=gate), *counters(1, 2)])
    assert manager.step([1, 2, 3])[0].done
    assert manager.ready_obs[:, 0].tolist() == [1, 2]
    gate.post()
    wait_state(manager, 0, "RUN")
    timesteps = manager.step([20, 30])
    assert [(ts.env_id, ts.obs[0]) for ts in timesteps] == [(1, 1), (2, 2)]
    assert manager.actions == [[1], [2, 20], [3, 30]]
    timesteps = manager.step([10, 200, 300])  # nothing was read since: whoever is ready
    assert [ts.done for ts in timesteps] == [True, False, False]
    gate.post()
    assert manager.actions == [[1, 10], [2, 20, 200], [3, 30, 300]]


def counters(*ids):
    return [many(envs.CounterEnv, i + 1)[i] for i in ids]


@pytest.mark.case("O22")
@everywhere
def test_actions_skip_envs_that_are_done(make):
    for cfg, over in (({"episode_num": 1}, EnvState.DONE), ({"auto_reset": False}, EnvState.NEED_RESET)):
        env_fns = [many(envs.CounterEnv, 4, length=n)[i] for i, n in enumerate((2, 1, 3, 1))]
        manager = launched(make, env_fns, **cfg)
        seen = []
        for _ in range(3):
            ids = manager.ready_obs[:, 0].astype(int).tolist()
            seen.append(ids)
            assert [ts.env_id for ts in manager.step([10 * i for i in ids])] == ids
        assert seen == [[0, 1, 2, 3], [0, 2], [2]]
        assert manager.actions == [[0, 0], [10], [20, 20, 20], [30]]
        assert set(manager.env_states.values()) == {over}
        if over is EnvState.DONE:
            assert manager.done and manager.ready_obs_id == [] and manager.ready_obs.shape == (0, 3)
            assert manager.step([]) == []
        else:
            assert "NEED_RESET" in str(error_of(IllegalStateError, getattr, manager, "ready_obs"))
            manager.reset({1: None, 3: None})
            assert [ts.env_id for ts in manager.step([0, 0])] == [1, 3]


@pytest.mark.case("O01")
@in_both
def test_one_action_goes_to_the_one_env_that_is_ready(make):
    manager = launched(make, many(envs.CounterEnv, 4, length=1)[:3] + counters(3), auto_reset=False)
    manager.step([1, 2, 3, 4])
    assert manager.ready_obs_id == [3]
    assert [(ts.env_id, ts.obs.tolist()) for ts in manager.step([7])] == [(3, [3, 0, 2])]
    assert manager.actions == [[1], [2], [3], [4, 7]]


@in_both
def test_a_wrong_number_of_actions_is_refused_and_nothing_sent(make):
    manager = launched(make, many(envs.CounterEnv, 3), auto_reset=False)
    for look in (False, True):
        if look:
            assert manager.ready_obs_id == [0, 1, 2]
        for actions in ([], [0], [0] * 4, np.zeros(2, int)):
            text = str(error_of(IllegalStateError, manager.step, actions))
            assert f"{len(actions)} actions for 3 envs" in text and "[0, 1, 2]" in text
    for actions in (None, 3, "abc", {1, 2, 3}, np.array(0)):
        assert type(actions).__name__ in str(error_of(IllegalStateError, manager.step, actions))
    assert error_of(UnknownEnvError, manager.step, {3: 0}).env_id == 3
    assert manager.actions == [[], [], []]
    assert [ts.obs[2] for ts in manager.step(np.array([1, 2, 3]))] == [1, 1, 1]
    assert manager.actions == [[1], [2], [3]]


@in_processes
def test_results_come_in_the_order_of_the_actions_whoever_is_first(make, signals):
    gate, entered = signals("gate"), signals("entered")
    slow = many(envs.CounterEnv, 1, gate=gate)[0]
    quick = many(envs.CounterEnv, 2, entered=entered)[1]
    manager = launched(make, [slow, quick])
    call = Background(manager.step, [0, 0])
    entered.wait()
    gate.post()
    assert [ts.env_id for ts in call.result()] == [0, 1]
    gate.post()
    assert [ts.env_id for ts in manager.step({1: 0, 0: 0})] == [1, 0]


@in_processes
def test_obs_and_ids_read_one_after_the_other_are_of_the_same_envs(make, signals):
    gate = signals("gate")
    manager = launched(make, [*many(envs.CounterEnv, 1, length=1, reset_gate=gate), *counters(1, 2)])
    for first, second in (("ready_obs", "ready_obs_id"), ("ready_obs_id", "ready_obs")):
        assert manager.step([0, 0, 0])[0].done
        assert len(getattr(manager, first)) == 2
        gate.post()
        wait_state(manager, 0, "RUN")
        assert len(getattr(manager, second)) == 2
        assert len(getattr(manager, second)) == 3  # read again: a new look
        assert len(getattr(manager, first)) == 3


@in_processes
def test_a_thread_that_watches_changes_nothing(make, signals):
    gate = signals("gate")
    manager = launched(make, [*many(envs.CounterEnv, 1, length=1, reset_gate=gate), *counters(1, 2)])
    manager.step([0, 0, 0])
    assert manager.ready_obs_id == [1, 2]
    gate.post()
    wait_state(manager, 0, "RUN")
    assert Background(lambda: manager.ready_obs_id).result() == [0, 1, 2]
    assert [ts.env_id for ts in manager.step([0, 0])] == [1, 2]
    assert Background(lambda: len(manager.ready_obs)).result() == 3
    assert [ts.env_id for ts in manager.step([0, 0, 0])] == [0, 1, 2]  # read by one, stepped by another


@in_both
def test_a_reset_makes_what_was_read_before_void(make):
    manager = launched(make, many(envs.CounterEnv, 3, length=1), auto_reset=False)
    manager.step([0, 0, 0])
    manager.reset({0: None, 2: None})
    assert manager.ready_obs_id == [0, 2]
    manager.reset()
    assert [ts.env_id for ts in manager.step([0, 0, 0])] == [0, 1, 2]


@in_both
def test_trees_are_stacked_leaf_by_leaf(make):
    manager = launched(make, many(envs.NestedEnv, 3, length=2), auto_reset=False)
    manager.step([0, 0, 0])
    manager.step({1: 0})
    obs = manager.ready_obs
    assert manager.ready_obs_id == [0, 2]
    one, other = envs.NestedEnv.expected(0, 1), envs.NestedEnv.expected(2, 1)
    stacked = {
        "a": tuple(np.stack(pair) for pair in zip(one["a"], other["a"], strict=True)),
        "b": {key: np.stack([one["b"][key], other["b"][key]]) for key in "cd"},
        "e": np.stack([one["e"], other["e"]]),
        "f": np.stack([one["f"], other["f"]]),
    }
    assert same(obs, stacked)
    obs["e"][:] = 0  # the caller's own
    assert same(manager.ready_obs, stacked)


@in_both
def test_observations_without_rows_are_object_arrays(make):
    manager = launched(make, many(envs.FreeFormEnv, 2))
    timesteps = manager.step(["hello", [1, 2]])
    assert [ts.obs["got"] for ts in timesteps] == ["hello", [1, 2]]
    obs = manager.ready_obs
    assert (obs.dtype, obs.shape) == (object, (2,))
    assert [one["who"] for one in obs] == [0, 1]


@in_both
def test_the_rest_is_as_in_the_other_managers(make):
    manager = launched(make, many(envs.CounterEnv, 2, infos=True))
    assert manager.ready_info == {i: {"episode": 0, "env_id": i} for i in range(2)}
    assert [ts.env_id for ts in manager.step(manager.random_action())] == [0, 1]
    obs, _ = manager.reset_arrays()
    assert obs.tolist() == manager.ready_obs.tolist()
    out = manager.step_arrays(np.array([3, 4]))
    assert (out.env_id.tolist(), out.reward.tolist()) == ([0, 1], [1.0, 101.0])
    assert manager.step({}) == []


@in_base_v2
def test_base_stays_open_and_hands_over_what_an_error_left_behind(make):
    faulty = many(envs.FaultyEnv, 2, step_fault="raise", at_step=1)[1]
    manager = launched(make, [*counters(0), faulty, *counters(2)])
    with pytest.raises(EnvStepError) as caught:
        manager.step([0, 0, 0])
    assert caught.value.env_id == 1
    assert manager.env_states[1] is EnvState.ERROR
    assert [ts.env_id for ts in manager.step({})] == [0, 2]
    assert manager.ready_obs_id == [0, 2]
    assert [ts.env_id for ts in manager.step([0, 0])] == [0, 2]


@in_both
def test_a_step_that_fails_is_an_abnormal_timestep_in_its_place(make):
    faulty = many(envs.FaultyEnv, 2, step_fault="raise", at_step=1)[1]
    manager = launched(make, [*counters(0), faulty, *counters(2)], on_error="reset")
    timesteps = manager.step([0, 0, 0])
    assert [ts.env_id for ts in timesteps] == [0, 1, 2]
    assert [bool(ts.info.get("abnormal")) for ts in timesteps] == [False, True, False]
    assert timesteps[1].truncated and isinstance(timesteps[1].info["err"], EnvStepError)


@in_both
def test_what_is_stepping_is_left_out_and_handed_over_after_what_was_asked(make):
    manager = launched(make, many(envs.CounterEnv, 3))
    for asked in ([0, 0], {}):
        assert manager.ready_obs_id == [0, 1, 2]
        manager.send(np.array([7]), [1])
        assert manager.ready_obs[:, 0].tolist() == manager.ready_obs_id == [0, 2]
        assert [ts.env_id for ts in manager.step(asked)] == ([0, 2, 1] if asked else [1])
