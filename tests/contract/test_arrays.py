"""The array face: ``reset_arrays``, ``send``, ``recv``, ``step_arrays`` (section 4.4)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

from envmgr import EnvManagerError, IllegalStateError, SpaceMismatchError
from tests.helpers import envs
from tests.helpers.managers import (
    error_of,
    everywhere,
    in_async,
    in_base_and_start_methods,
    in_processes,
    in_start_methods,
    in_sync,
    many,
    same,
)
from tests.helpers.sync import wait_until


def started(make, env_fns, **cfg):
    manager = make(env_fns, **cfg)
    manager.launch()
    return manager, *manager.reset_arrays()


def by_env(out):
    """The rows of a result by env_id: (obs, reward, terminated, truncated)."""
    return {
        int(i): (out.obs[k], out.reward[k], bool(out.terminated[k]), bool(out.truncated[k]))
        for k, i in enumerate(out.env_id)
    }


@in_base_and_start_methods
def test_reset_arrays_right_after_launch_hands_over_the_launchs_own_observations(make):
    manager, obs, info = started(make, many(envs.CounterEnv, 3, infos=True))
    assert isinstance(obs, np.ndarray) and obs.dtype == np.float64
    assert obs.tolist() == [[i, 0, 0] for i in range(3)]
    assert info == {i: {"episode": 0, "env_id": i} for i in range(3)}
    assert manager.resets == [1, 1, 1]


def test_a_second_reset_arrays_is_a_reset(make):
    manager, _, info = started(make, many(envs.CounterEnv, 2))
    assert info == {}
    manager.step_arrays([0, 0])
    obs, _ = manager.reset_arrays()
    assert obs.tolist() == [[0, 1, 0], [1, 1, 0]]
    obs, _ = manager.reset_arrays()
    assert obs.tolist() == [[0, 2, 0], [1, 2, 0]]
    assert manager.resets == [3, 3]


@everywhere
def test_step_arrays_of_all(make):
    manager, _, _ = started(make, many(envs.CounterEnv, 3))
    for t in range(1, 5):
        out = manager.step_arrays(np.zeros(3, np.int64))
        obs, reward, terminated, truncated, info, env_id, final_obs = out
        assert obs is out.obs and final_obs is out.final_obs
        assert obs.shape == (3, 3) and reward.shape == (3,) and reward.dtype == np.float64
        assert terminated.dtype == np.bool_ and truncated.dtype == np.bool_
        assert info == {} and final_obs == {}
        assert sorted(env_id) == [0, 1, 2]
        if not make.is_async:
            assert list(env_id) == [0, 1, 2]
        for i, row in by_env(out).items():
            assert row[0].tolist() == [i, 0, t] and row[1] == 100 * i + t and row[2:] == (False, False)


@pytest.mark.case("D04")
@pytest.mark.parametrize("truncate", [False, True])
@in_base_and_start_methods
def test_a_finished_envs_row_comes_after_its_reset_and_final_obs_has_the_end(make, truncate):
    manager, _, _ = started(
        make, [partial(envs.CounterEnv, i, length=i + 2, truncate=truncate, infos=True) for i in range(3)]
    )
    place = dict.fromkeys(range(3), (0, 0))
    for _ in range(17):
        out = manager.step_arrays([0, 0, 0])
        rows = by_env(out)
        assert set(rows) == {0, 1, 2}
        over = set()
        for i, (obs, reward, terminated, truncated) in rows.items():
            episode, t = place[i]
            end = t + 1 == i + 2
            place[i] = (episode + 1, 0) if end else (episode, t + 1)
            assert obs.tolist() == [i, *place[i]]
            assert reward == 100 * i + t + 1
            assert (terminated, truncated) == (end and not truncate, end and truncate)
            if end:
                over.add(i)
                assert out.final_obs[i].tolist() == [i, episode, t + 1]
            assert out.info[i]["t"] == t + 1
        assert set(out.final_obs) == over


@pytest.mark.case("O01")
@in_sync
@pytest.mark.parametrize("ids", [[2, 0], [3, 2, 1, 0], [1], np.array([0, 3])], ids=str)
def test_sync_rows_are_in_the_order_asked(make, ids):
    manager, _, _ = started(make, many(envs.EchoEnv, 4, action_space=spaces.Discrete(100)))
    for _ in range(3):
        out = manager.step_arrays([10 * int(i) for i in ids], env_id=ids)
        assert list(out.env_id) == list(ids)
        assert out.obs[:, 0].tolist() == [10 * int(i) for i in ids]


@pytest.mark.case("O01")
@pytest.mark.parametrize("ids", [[3], (3,), np.array([3])], ids=["list", "tuple", "array"])
def test_one_action_for_one_env_by_its_id(make, ids):
    manager, _, _ = started(make, many(envs.CounterEnv, 4))
    for t, actions in enumerate(([7], np.array([8])), 1):
        out = manager.step_arrays(actions, env_id=ids)
        assert (out.env_id.tolist(), out.obs.tolist()) == ([3], [[3, 0, t]])
    assert manager.actions == [[], [], [], [7, 8]]


@pytest.mark.case("O01")
@pytest.mark.parametrize("epw", [1, 2, 4])
@in_processes
def test_each_action_goes_to_its_own_env_whatever_the_order(make, epw):
    manager, _, _ = started(
        make, many(envs.EchoEnv, 4, action_space=spaces.Discrete(100)), envs_per_worker=epw
    )
    rng = np.random.default_rng(0)
    for _ in range(30):
        ids = rng.permutation(4)[: rng.integers(1, 5)]
        actions = rng.integers(0, 100, len(ids))
        out = manager.step_arrays(actions, env_id=ids)
        assert {int(i): int(o[0]) for i, o in zip(out.env_id, out.obs, strict=True)} == dict(
            zip(ids.tolist(), actions.tolist(), strict=True)
        )


@in_async
def test_async_gives_at_least_wait_num_rows_in_order_of_finishing(make, signals):
    gates = [signals(f"gate{i}") for i in range(3)]
    manager, _, _ = started(
        make, [partial(envs.CounterEnv, i, gate=gates[i]) for i in range(3)], wait_num=1, step_wait_timeout=0
    )
    manager.send([0, 0, 0], [0, 1, 2])
    for i in (2, 0, 1):
        gates[i].post()
        out = manager.recv()
        assert list(out.env_id) == [i]
        assert out.obs.tolist() == [[i, 0, 1]] and out.reward.tolist() == [100 * i + 1]
    with pytest.raises(EnvManagerError):
        manager.recv()


@in_async
def test_async_send_some_while_others_are_pending(make, signals):
    gate = signals("gate")
    manager, _, _ = started(
        make,
        [partial(envs.CounterEnv, 0), partial(envs.CounterEnv, 1, gate=gate)],
        wait_num=1,
        step_wait_timeout=0,
    )
    manager.send([0, 0], [0, 1])
    for t in range(1, 6):
        out = manager.recv()
        assert list(out.env_id) == [0] and out.obs.tolist() == [[0, 0, t]]
        manager.send([0], [0])
    assert list(manager.recv().env_id) == [0]
    gate.post()
    out = manager.recv()
    assert list(out.env_id) == [1] and out.obs.tolist() == [[1, 0, 1]]


def test_send_and_recv_apart(make):
    manager, _, _ = started(make, many(envs.CounterEnv, 3))
    manager.send(np.zeros(2, np.int64), [2, 0])
    rows = by_env(manager.recv())
    assert {i: r[0].tolist() for i, r in rows.items()} == {0: [0, 0, 1], 2: [2, 0, 1]}
    manager.send([0], [1])
    manager.send([0], [0])
    rows = {}
    while set(rows) != {0, 1}:
        rows.update(by_env(manager.recv()))
    assert {i: r[0].tolist() for i, r in rows.items()} == {0: [0, 0, 2], 1: [1, 0, 1]}


def test_send_without_ids_is_for_all(make):
    manager, _, _ = started(make, many(envs.CounterEnv, 2))
    manager.send([0, 0])
    assert set(by_env(manager.recv())) == {0, 1}


@pytest.mark.case("F11")
@in_base_and_start_methods
def test_recv_with_nothing_pending_is_an_error(make):
    manager, _, _ = started(make, many(envs.CounterEnv, 2))
    with pytest.raises(IllegalStateError, match=r"(?is)nothing.*pending.*send|pending.*send"):
        manager.recv()
    manager.step_arrays([0, 0])
    with pytest.raises(IllegalStateError):
        manager.recv()
    assert by_env(manager.step_arrays([0, 0]))[0][0].tolist() == [0, 0, 2]


@pytest.mark.case("F01", "O01", "A07")
class TestRefused:
    def test_before_anything_is_sent(self, make):
        bad = {
            "2 for 4": ([0, 0], None),
            "5 for 4": ([0] * 5, None),
            "none for 4": ([], None),
            "2 for 1": ([0, 0], [0]),
            "1 for 2": ([0], [0, 1]),
            "a duplicate": ([0, 0], [1, 1]),
            "a negative id": ([0, 0], [0, -1]),
            "an unknown id": ([0, 0], [0, 4]),
            "no id": ([0], 0.5),
            "text as ids": ([0, 0], ["0", "1"]),
            "nested ids": ([0] * 4, [[0, 1], [2, 3]]),
            "None": (None, None),
            "a scalar": (0, None),
            "of two numbers each": ([[0, 1]] * 4, None),
            "a dict": ({"a": [0] * 4}, None),
        }
        manager, _, _ = started(make, many(envs.CounterEnv, 4))
        for what, (actions, ids) in bad.items():
            error_of((ValueError, EnvManagerError), manager.step_arrays, actions, ids)
            error_of((ValueError, EnvManagerError), manager.send, actions, ids)
            assert manager.steps == [0] * 4, what
        rows = by_env(manager.step_arrays([0] * 4))
        assert {i: r[0].tolist() for i, r in rows.items()} == {i: [i, 0, 1] for i in range(4)}

    def test_too_few_actions_is_a_value_error_with_both_numbers(self, make):
        manager, _, _ = started(make, many(envs.CounterEnv, 4))
        with pytest.raises(ValueError, match=r"(?s)2.*4|4.*2"):
            manager.step_arrays([0, 0])
        assert manager.steps == [0] * 4

    @in_async
    def test_an_env_that_is_stepping(self, make, signals):
        gate = signals("gate")
        manager, _, _ = started(
            make,
            [partial(envs.CounterEnv, 0), partial(envs.CounterEnv, 1, gate=gate)],
            wait_num=1,
            step_wait_timeout=0,
        )
        manager.send([0, 0])
        manager.recv()
        with pytest.raises(IllegalStateError, match=r"(?is)1.*recv") as caught:
            manager.send([0, 0])
        assert caught.value.env_id == 1
        gate.post()
        assert by_env(manager.recv())[1][0].tolist() == [1, 0, 1]
        assert by_env(manager.step_arrays([0], [0]))[0][0].tolist() == [0, 0, 2]

    def test_an_env_that_is_done(self, make):
        manager, _, _ = started(
            make, [partial(envs.CounterEnv, 0, length=1), partial(envs.CounterEnv, 1)], episode_num=1
        )
        out = manager.step_arrays([0, 0])
        assert out.final_obs[0].tolist() == [0, 0, 1]
        wait_until(lambda: manager.env_state_done(0), "env 0 to be DONE")
        with pytest.raises(IllegalStateError, match=r"(?s)0.*DONE"):
            manager.step_arrays([0, 0])
        assert by_env(manager.step_arrays([0], [1]))[1][0].tolist() == [1, 0, 2]

    def test_a_wrong_action_names_the_env_or_the_leaf(self, make):
        manager, _, _ = started(make, many(envs.EchoEnv, 2, action_space=spaces.Box(-1, 1, (2,), np.float32)))
        with pytest.raises(SpaceMismatchError, match="action"):
            manager.step_arrays(np.zeros((2, 3), np.float32))
        out = manager.step_arrays(np.ones((2, 2), np.float32))
        assert out.obs.tolist() == [[2], [2]]


@pytest.mark.case("T02", "D01")
@pytest.mark.parametrize("reuse", [False, True])
@in_start_methods
def test_nested_observations_are_trees_of_batched_arrays(make, reuse):
    manager, obs, _ = started(make, many(envs.NestedEnv, 3, reuse=reuse, length=4))
    kept = [(range(3), obs)]
    for _ in range(3):
        out = manager.step_arrays([0, 0, 0])
        kept.append((out.env_id, out.obs))
    out = manager.step_arrays([0, 0, 0])
    kept.append((out.env_id, out.obs))
    for i in range(3):
        assert same(out.final_obs[i], envs.NestedEnv.expected(i, 4))
    for t, (ids, batch) in enumerate(kept):
        assert batch["a"][0].shape == (3, 2, 3) and batch["f"].shape == (3,)
        for k, i in enumerate(ids):
            expected = envs.NestedEnv.expected(int(i), t if t < 4 else 0)
            row = {
                "a": (batch["a"][0][k], batch["a"][1][k]),
                "b": {"c": batch["b"]["c"][k], "d": batch["b"]["d"][k]},
                "e": batch["e"][k],
                "f": np.asarray(batch["f"][k]),
            }
            assert same(row, expected)


def test_batched_actions_of_a_dict_space(make):
    space = spaces.Dict({"move": spaces.Box(-1, 1, (2,), np.float32), "press": spaces.Discrete(3)})
    manager, _, _ = started(make, many(envs.ActionKeepingEnv, 2, action_space=space))
    manager.step_arrays({"press": np.array([1, 2]), "move": np.float32([[0.0, 0.5], [1.0, -1.0]])})
    got = manager.last
    assert [int(g["press"]) for g in got] == [1, 2]
    assert [g["move"].tolist() for g in got] == [[0, 0.5], [1, -1]]


@pytest.mark.case("D09")
def test_returned_arrays_are_the_callers_own(make):
    manager, obs, _ = started(make, many(envs.CounterEnv, 2, length=3))
    obs[:] = -1
    kept = []
    for t in (1, 2):
        out = manager.step_arrays([0, 0])
        assert sorted(out.obs.tolist()) == [[0, 0, t], [1, 0, t]]
        kept.append((out, out.obs.copy(), out.reward.copy(), np.array(out.env_id)))
    out = manager.step_arrays([0, 0])
    final = {i: o.copy() for i, o in out.final_obs.items()}
    assert {i: o.tolist() for i, o in final.items()} == {0: [0, 0, 3], 1: [1, 0, 3]}
    manager.step_arrays([0, 0])
    for old, obs, reward, ids in kept:
        assert np.array_equal(old.obs, obs) and np.array_equal(old.reward, reward)
        assert np.array_equal(old.env_id, ids)
    assert all(np.array_equal(out.final_obs[i], final[i]) for i in final)
    out.obs[:] = -7
    out.reward[:] = -7
    assert sorted(manager.step_arrays([0, 0]).obs.tolist()) == [[0, 1, 2], [1, 1, 2]]


@in_processes
def test_without_copies_they_are_read_only_views(make):
    manager, _, _ = started(make, many(envs.CounterEnv, 2), copy_on_get=False)
    out = manager.step_arrays([0, 0])
    assert not out.obs.flags.writeable
    assert sorted(out.obs.tolist()) == [[0, 0, 1], [1, 0, 1]]
    with pytest.raises(ValueError, match="read-only"):
        out.obs[:] = 0


def test_the_callers_action_array_is_not_changed(make):
    manager, _, _ = started(
        make, many(envs.EchoEnv, 2, action_space=spaces.Box(-1, 1, (2,), np.float32), scribble=True)
    )
    actions = np.full((2, 2), 0.25, np.float32)
    for _ in range(3):
        out = manager.step_arrays(actions)
        assert out.obs.tolist() == [[0.5], [0.5]]
    assert (actions == 0.25).all()


def test_auto_reset_off_needs_a_reset(make):
    manager, _, _ = started(make, many(envs.CounterEnv, 2, length=1), auto_reset=False)
    out = manager.step_arrays([0, 0])
    rows = by_env(out)
    assert all(r[2] for r in rows.values())
    ends = {i: out.final_obs.get(i, rows[i][0]).tolist() for i in (0, 1)}
    assert ends == {0: [0, 0, 1], 1: [1, 0, 1]}
    with pytest.raises(IllegalStateError, match="NEED_RESET"):
        manager.step_arrays([0, 0])
    obs, _ = manager.reset_arrays()
    assert obs.tolist() == [[0, 1, 0], [1, 1, 0]]


def test_side_channel_observations(make):
    """Observations without a fixed layout come as one object per row."""
    manager, obs, _ = started(make, many(envs.FreeFormEnv, 2))
    assert [o["who"] for o in obs] == [0, 1]
    out = manager.step_arrays(["x", "y"])
    assert {int(i): o["got"] for i, o in zip(out.env_id, out.obs, strict=True)} == {0: "x", 1: "y"}


@in_async
@pytest.mark.case("F12")
def test_reset_arrays_while_steps_are_pending(make, signals):
    gate = signals("gate")
    manager, _, _ = started(
        make,
        [partial(envs.CounterEnv, 0), partial(envs.CounterEnv, 1, gate=gate)],
        wait_num=1,
        step_wait_timeout=0,
    )
    manager.send([0, 0])
    manager.recv()
    gate.post(3)
    obs, _ = manager.reset_arrays()
    assert obs.tolist() == [[0, 1, 0], [1, 1, 0]]
    with pytest.raises(EnvManagerError):
        manager.recv()
    rows = {}
    manager.send([0, 0])
    while set(rows) != {0, 1}:
        rows.update(by_env(manager.recv()))
    assert {i: r[0].tolist() for i, r in rows.items()} == {0: [0, 1, 1], 1: [1, 1, 1]}


@pytest.mark.parametrize("epw", [1, 3, 8])
@in_processes
def test_many_envs_over_many_episodes(make, epw):
    n = 8
    manager, _, _ = started(
        make,
        [partial(envs.CounterEnv, i, length=1 + i % 3) for i in range(n)],
        envs_per_worker=epw,
        **({"wait_num": 3, "step_wait_timeout": 0} if make.is_async else {}),
    )
    place = dict.fromkeys(range(n), (0, 0))
    manager.send([0] * n)
    for _ in range(100):
        out = manager.recv()
        if make.is_async:
            assert len(out.env_id) >= 1
        for i, (obs, *_rest) in by_env(out).items():
            episode, t = place[i]
            end = t + 1 == 1 + i % 3
            place[i] = (episode + 1, 0) if end else (episode, t + 1)
            assert obs.tolist() == [i, *place[i]]
            assert (i in out.final_obs) == end
        manager.send([0] * len(out.env_id), out.env_id)
