"""Observations, rewards and infos: whose they are, that they are exact, and that they stay as they were."""

from __future__ import annotations

import logging
import warnings
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

from envmgr import EnvManagerError, SpaceMismatchError
from tests.helpers import envs
from tests.helpers.ids import stable_repr
from tests.helpers.managers import (
    actions_for,
    in_base_and_start_methods,
    in_base_and_sync,
    in_processes,
    in_start_methods,
    launch_all,
    many,
    same,
    state_of,
    step_until,
    wait_ready,
)


@pytest.mark.case("D01", "T02", "D06")
@pytest.mark.parametrize("reuse", [False, True], ids=["fresh", "reused"])
@in_base_and_start_methods
def test_nested_observations_kept_over_later_steps(make, reuse):
    manager = make.launched(many(envs.NestedEnv, 3, reuse=reuse))
    kept = [manager.ready_obs]
    for _ in range(6):
        kept.append({i: ts.obs for i, ts in step_until(manager, actions_for(range(3))).items()})
        kept.append(dict(manager.ready_obs))
    manager.reset()
    wait_ready(manager)
    for k, obs in enumerate(kept):
        for i in range(3):
            expected = envs.NestedEnv.expected(i, (k + 1) // 2)
            assert same(obs[i], expected), f"after {k}: {obs[i]} is not {expected}"
    manager.close()
    assert same(kept[3][2], envs.NestedEnv.expected(2, 2)), "readable after close too"


@pytest.mark.case("D01")
def test_the_ready_obs_that_was_given_is_not_changed_by_a_step(make):
    manager = make.launched(many(envs.CounterEnv, 2, reuse=True))
    before = manager.ready_obs
    step_until(manager, {0: 0, 1: 0})
    assert before[0].tolist() == [0, 0, 0] and before[1].tolist() == [1, 0, 0]


@pytest.mark.case("D09")
def test_what_was_returned_may_be_written_to(make):
    manager = make.launched(many(envs.CounterEnv, 2, reuse=True, infos=True))
    for t in range(1, 4):
        ready = manager.ready_obs
        ready[0][:] = -1
        result = step_until(manager, {0: 0, 1: 0})
        assert result[0].obs.tolist() == [0, 0, t]
        result[0].obs[:] = -2
        result[0].info["t"] = -3
        assert result[1].obs.tolist() == [1, 0, t]
        assert manager.ready_obs[0].tolist() == [0, 0, t], "the manager keeps a copy of its own"


@in_processes
def test_without_copies_views_are_read_only_and_valid_until_the_next_step_of_that_env(make):
    manager = make.launched(many(envs.CounterEnv, 2), copy_on_get=False)
    ts = manager.step({0: 0, 1: 0})
    assert not ts[0].obs.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        ts[0].obs[0] = 5
    manager.step({1: 0})
    assert ts[0].obs.tolist() == [0, 0, 1], "valid until the same env is stepped again"


@pytest.mark.case("D01", "D04")
def test_without_copies_the_last_observation_of_an_episode_outlives_the_reset(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=2), copy_on_get=False)
    for episode in range(3):
        step_until(manager, {0: 0, 1: 0})
        last = step_until(manager, {0: 0, 1: 0})
        wait_ready(manager)  # the resets have written their rows
        assert {i: ts.obs.tolist() for i, ts in last.items()} == {i: [i, episode, 2] for i in (0, 1)}


@in_processes
def test_arrays_outlive_the_manager_with_and_without_copies(make):
    for copy_on_get in (True, False):
        manager = make.launched(many(envs.CounterEnv, 2), copy_on_get=copy_on_get)
        obs = manager.step({0: 0, 1: 0})[1].obs
        manager.close()
        del manager
        assert obs.tolist() == [1, 0, 1]


@pytest.mark.case("D10")
@in_start_methods
def test_a_large_observation_is_never_torn(make):
    manager = make.launched(many(envs.BigEnv, 2))
    for t in range(1, 150):
        for i, ts in step_until(manager, {0: 0, 1: 0}).items():
            assert ts.obs[0] == 100_000 * i + t
            assert (ts.obs == ts.obs[0]).all(), f"torn at step {t} of env {i}"


@pytest.mark.case("D10")
@in_processes
def test_a_large_observation_is_never_torn_in_the_array_face(make):
    manager = make(many(envs.BigEnv, 4, size=50_000), envs_per_worker=2)
    manager.launch()
    obs, _ = manager.reset_arrays()
    assert obs.shape == (4, 50_000)
    for t in range(1, 150):
        out = manager.step_arrays([0] * 4)
        expected = 100_000 * np.asarray(out.env_id) + t
        assert (out.obs == expected[:, None]).all(), f"torn at step {t}"


@pytest.mark.case("D02")
def test_a_tuple_of_discretes_is_not_transposed(make):
    space = spaces.Tuple((spaces.Discrete(3), spaces.Discrete(4)))
    fns = [partial(envs.ObsEnv, i, space=space, observations=[(i, 3 - i), (2 - i, i)]) for i in range(2)]
    manager = make.launched(fns)
    assert {i: tuple(map(int, o)) for i, o in manager.ready_obs.items()} == {0: (0, 3), 1: (1, 2)}
    got = step_until(manager, {0: 0, 1: 0})
    assert {i: tuple(map(int, ts.obs)) for i, ts in got.items()} == {0: (2, 0), 1: (1, 1)}


def _odd_arrays():
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    special = base.copy()
    special[0, :3] = np.nan, np.inf, -np.inf
    frozen = base.copy()
    frozen.flags.writeable = False
    return [
        base,
        np.asfortranarray(base),
        base[::-1, ::-1],
        base.astype(">f4"),
        frozen,
        special,
        np.ascontiguousarray(base.T).T,
        base.tolist(),
        base.astype(np.float16),
        base.astype(np.int16),
    ]


@pytest.mark.case("D11", "O07")
def test_odd_arrays_have_the_same_values(make):
    space = spaces.Box(-np.inf, np.inf, (3, 4), np.float32)
    manager = make.launched([partial(envs.ObsEnv, 0, space=space, fill=_odd_arrays)])
    got = [manager.ready_obs[0]]
    got += [step_until(manager, {0: 0})[0].obs for _ in range(9)]
    for k, (obs, expected) in enumerate(zip(got, _odd_arrays(), strict=True)):
        assert np.array_equal(obs, np.asarray(expected), equal_nan=True), f"observation {k}"


@pytest.mark.case("D12")
def test_dict_keys_in_another_order(make):
    space = spaces.Dict({"a": spaces.Discrete(5), "b": spaces.Discrete(5)})
    manager = make.launched([partial(envs.ObsEnv, 0, space=space, observations=[{"b": 1, "a": 2}])])
    obs = manager.ready_obs[0]
    assert (int(obs["a"]), int(obs["b"])) == (2, 1)


@pytest.mark.case("D12")
@pytest.mark.parametrize(
    ("bad", "named"),
    [({"a": 1}, "b"), ({"a": 1, "b": 2, "extra": 3}, "extra"), ((1, 2), "a"), (5, "dict")],
    ids=["missing", "extra", "tuple", "scalar"],
)
@in_base_and_sync
def test_observations_of_another_structure(make, bad, named):
    space = spaces.Dict({"a": spaces.Discrete(5), "b": spaces.Discrete(5)})
    manager = make(
        [
            partial(envs.ObsEnv, i, space=space, observations=[bad if i else {"a": 1, "b": 2}])
            for i in range(2)
        ]
    )
    with pytest.raises(SpaceMismatchError, match=named) as caught:
        launch_all(manager)
    assert caught.value.env_id == 1


@pytest.mark.parametrize(
    "bad",
    [np.zeros(4), np.zeros((1, 3)), np.zeros(1), 0.5],
    ids=["longer", "row", "would-broadcast", "scalar"],
)
@pytest.mark.case("O07")
@in_base_and_sync
class TestWrongShape:
    def test_in_reset_it_is_an_error_and_not_retried(self, make, bad):
        space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        manager = make(
            [partial(envs.ObsEnv, 0, space=space, observations=[bad, np.zeros(3)])],
            max_retry=5,
            retry_waiting_time=0.01,
        )
        with pytest.raises(SpaceMismatchError, match=r"3") as caught:
            launch_all(manager)
        assert caught.value.env_id == 0
        assert str(np.shape(bad)) in str(caught.value), "what it got"

    def test_in_step_it_is_an_error(self, make, bad):
        space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        manager = make.launched(
            [partial(envs.ObsEnv, i, space=space, observations=[np.zeros(3), bad]) for i in range(2)]
        )
        with pytest.raises(SpaceMismatchError, match=r"\(3,\)") as caught:
            step_until(manager, {1: 0})
        assert caught.value.env_id == 1


@pytest.mark.case("T01")
def test_float64_into_float32_is_cast_with_one_warning(make):
    space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        manager = make.launched([partial(envs.ObsEnv, 0, space=space, observations=[np.full(3, 0.1)])])
        for _ in range(5):
            obs = step_until(manager, {0: 0})[0].obs
    assert obs.dtype == np.float32 and obs.tolist() == np.full(3, 0.1, np.float32).tolist()
    if make.is_base:
        assert len([w for w in seen if "float32" in str(w.message)]) == 1


@pytest.mark.case("T01", "O07")
@pytest.mark.parametrize(
    ("dtype", "bad"),
    [
        (np.uint8, np.array([300, 0, 0])),
        (np.uint8, np.array([-1, 0, 0])),
        (np.int32, np.array([0.5, 0, 0])),
        (np.float32, np.array(["a", "b", "c"])),
    ],
    ids=["300-into-uint8", "negative-into-uint8", "half-into-int", "text"],
)
@in_base_and_sync
def test_a_dtype_that_does_not_convert_is_an_error(make, dtype, bad):
    low, high = (0, 255) if dtype == np.uint8 else (-1000, 1000)
    space = spaces.Box(low, high, (3,), dtype)
    manager = make.launched([partial(envs.ObsEnv, 0, space=space, observations=[np.zeros(3, dtype), bad])])
    with pytest.raises(SpaceMismatchError) as caught:
        step_until(manager, {0: 0})
    assert caught.value.env_id == 0


@pytest.mark.case("T03", "O07")
@in_base_and_sync
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-9, 9, (), np.float32),
        spaces.Box(-9, 9, (1,), np.float32),
        spaces.Box(-9, 9, (0,), np.float32),
        spaces.Box(-9, 9, (2, 0, 3), np.float64),
        spaces.Box(-9, 9, (2,), np.float16),
        spaces.Box(0, 1, (2,), np.bool_),
        spaces.Box(0, 255, (2,), np.uint8),
        spaces.Box(-9, 9, (2,), np.int8),
        spaces.Discrete(4),
        spaces.Discrete(4, start=-2),
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiDiscrete([[3, 4], [5, 6]]),
        spaces.MultiBinary(3),
        spaces.MultiBinary([2, 2]),
    ],
    ids=stable_repr,
)
def test_shapes_and_dtypes_are_kept(make, space):
    space.seed(3)
    samples = [space.sample() for _ in range(4)]
    manager = make.launched([partial(envs.ObsEnv, 0, space=space, observations=samples)])
    got = [manager.ready_obs[0]] + [step_until(manager, {0: 0})[0].obs for _ in range(3)]
    for obs, expected in zip(got, samples, strict=True):
        assert np.shape(obs) == np.shape(expected)
        assert np.asarray(obs).dtype == np.asarray(expected).dtype
        assert np.array_equal(obs, expected)
        assert space.contains(obs)


@pytest.mark.case("T07")
def test_no_spaces_at_all(make):
    manager = make.launched(many(envs.FreeFormEnv, 2))
    assert manager.ready_obs[1]["who"] == 1
    result = step_until(manager, {0: [1, 2], 1: {"x": 3}})
    assert result[0].obs["got"] == [1, 2] and result[1].obs["got"] == {"x": 3}


class TestRewards:
    def test_scalars(self, make):
        kinds_ = [float, int, np.float32, bool, np.int64]
        manager = make.launched([partial(envs.RewardEnv, i, make_reward=k) for i, k in enumerate(kinds_)])
        result = step_until(manager, actions_for(range(len(kinds_))))
        for i, kind in enumerate(kinds_):
            reward = result[i].reward
            assert np.shape(reward) == () and float(reward) == 1.0, kind
            assert np.asarray(reward).dtype == np.float64, "one dtype in every manager"

    def test_reward_space_gives_shape_and_dtype(self, make):
        manager = make.launched(many(envs.TimestepEnv, 2))
        reward = step_until(manager, {0: 0, 1: 0})[0].reward
        assert reward.shape == (1,) and reward.dtype == np.float32 and reward.tolist() == [1.0]

    def test_a_reward_kept_is_not_changed_by_later_steps(self, make):
        manager = make.launched(many(envs.TimestepEnv, 2))
        kept = step_until(manager, {0: 0, 1: 0})[0].reward
        step_until(manager, {0: 0, 1: 0})
        assert kept.tolist() == [1.0]


def _busy_info(t):
    return {
        "t": t,
        "none": None,
        "nested": {"x": [1, {"y": np.arange(t)}]},
        "array": np.full((2, 2), t, np.int16),
        "scalar": np.float32(t / 2),
        "text": "ünï" * t,
        "tuple": (1, 2),
        "big": np.zeros(100_000),
    }


class TestInfos:
    @in_start_methods
    def test_anything_that_pickles_arrives(self, make):
        manager = make.launched(many(envs.InfoEnv, 2, make_info=_busy_info))
        for t in (1, 2, 3):
            info = step_until(manager, {0: 0, 1: 0})[1].info
            expected = _busy_info(t)
            assert set(info) == set(expected)
            assert info["t"] == t and info["none"] is None and info["tuple"] == (1, 2)
            assert info["nested"]["x"][1]["y"].tolist() == list(range(t))
            assert info["array"].dtype == np.int16 and (info["array"] == t).all()
            assert info["text"] == "ünï" * t and info["scalar"] == np.float32(t / 2)

    @pytest.mark.case("A06")
    def test_a_key_in_one_envs_info_only(self, make):
        fns = [partial(envs.CounterEnv, 0, infos=True), partial(envs.CounterEnv, 1)]
        manager = make.launched(fns)
        result = step_until(manager, {0: 0, 1: 0})
        assert result[0].info == {"t": 1, "env_id": 0} and result[1].info == {}

    @pytest.mark.case("O21")
    @in_processes
    def test_what_does_not_pickle_is_dropped_with_one_warning(self, make, caplog):
        manager = make.launched(many(envs.InfoEnv, 2, make_info=envs.info_with_lambda))
        with caplog.at_level(logging.WARNING, logger="envmgr"), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for t in range(1, 4):
                result = step_until(manager, {0: 0})
                assert result[0].info == {"t": t} and result[0].obs.tolist() == [0, 0, t]
        told = [str(w.message) for w in seen] + [r.getMessage() for r in caplog.records]
        told = [text for text in told if "bad" in text]
        assert len(told) == 1 and "0" in told[0], told

    @pytest.mark.case("O21")
    @in_processes
    def test_or_is_an_error_that_names_the_key(self, make):
        manager = make.launched(many(envs.InfoEnv, 2, make_info=envs.info_with_lambda), info_errors="raise")
        with pytest.raises(EnvManagerError, match=r"(?s)bad.*pickle|pickle.*bad") as caught:
            step_until(manager, {0: 0})
        assert caught.value.env_id == 0


@pytest.mark.case("O08")
@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("ends", [True, False])
class TestAbnormalInfo:
    def test_it_keeps_its_own_observation_and_the_env_waits_for_a_reset(self, make, shared_memory, ends):
        manager = make.launched(many(envs.AbnormalEnv, 2, at=2, ends=ends), shared_memory=shared_memory)
        step_until(manager, {0: 0, 1: 0})
        ts = step_until(manager, {0: 0, 1: 0})[0]
        assert ts.info["abnormal"] and ts.obs.tolist() == [0, 0, 2] and ts.done == ends
        if make.is_base:
            if ends:
                assert wait_ready(manager)[0].tolist() == [0, 1, 0]
            return
        assert [state_of(manager, i) for i in (0, 1)] == ["ERROR", "ERROR"]
        manager.reset({0: {}})
        assert wait_ready(manager, [0])[0].tolist() == [0, 1, 0]
        assert state_of(manager, 1) == "ERROR"
        assert step_until(manager, {0: 0})[0].obs.tolist() == [0, 1, 1]

    @in_processes
    def test_the_others_go_on(self, make, shared_memory, ends):
        manager = make.launched(
            [partial(envs.AbnormalEnv, 0, at=1, ends=ends), partial(envs.CounterEnv, 1)],
            shared_memory=shared_memory,
        )
        step_until(manager, {0: 0, 1: 0})
        for t in (2, 3, 4):
            assert step_until(manager, {1: 0})[1].obs.tolist() == [1, 0, t]


@pytest.mark.case("O08")
def test_abnormal_episodes_are_counted_the_same_with_and_without_shared_memory(make):
    counts = []
    for shared_memory in (True, False):
        fns = [partial(envs.AbnormalEnv, 0, at=2), partial(envs.CounterEnv, 1, length=2)]
        manager = make.launched(fns, shared_memory=shared_memory)
        for _ in range(2):
            step_until(manager, {0: 0, 1: 0})
            last = step_until(manager, {0: 0, 1: 0})
            assert [(last[i].done, last[i].info.get("abnormal", False)) for i in (0, 1)] == [
                (True, True),
                (True, False),
            ]
            manager.reset()
        counts.append([row["episodes"] for row in manager.stats().values()])
        manager.close()
    assert counts == [[2 if make.is_base else 0, 2]] * 2, "who waits in ERROR has not finished its episode"


@in_start_methods
def test_old_gym_style(make):
    manager = make.launched(many(envs.OldGymEnv, 2, length=2))
    assert manager.ready_obs[0].tolist() == [0.0]
    first = step_until(manager, {0: 0, 1: 0})[1]
    assert first.obs.tolist() == [1.0] and not first.done
    last = step_until(manager, {0: 0, 1: 0})[1]
    assert last.done and last.truncated and not last.terminated
    assert wait_ready(manager)[0].tolist() == [0.0]


@in_start_methods
def test_timestep_style(make):
    manager = make.launched(many(envs.TimestepEnv, 2, length=2))
    first = step_until(manager, {0: 0, 1: 0})[1]
    assert first.obs.tolist() == [1.0, 1.0] and not first.done
    last = step_until(manager, {0: 0, 1: 0})[1]
    assert last.done and last.terminated and last.obs.tolist() == [1.0, 2.0]
    assert wait_ready(manager)[1].tolist() == [1.0, 0.0]
