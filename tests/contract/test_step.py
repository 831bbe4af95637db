"""``step``: what it takes, what it gives, and what it refuses before anything is sent."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
from gymnasium import spaces

from envmgr import (
    BaseEnvTimestep,
    EnvManagerError,
    IllegalStateError,
    SpaceMismatchError,
)
from tests.helpers import envs
from tests.helpers.managers import (
    actions_for,
    error_of,
    everywhere,
    in_async,
    in_every_process_kind,
    in_processes,
    in_sync,
    many,
    state_of,
    step_until,
    wait_ready,
    wait_state,
)


@everywhere
def test_a_timestep_is_four_values_and_more(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=2, infos=True))
    ts = manager.step({0: 5, 1: 6})[1]
    assert isinstance(ts, BaseEnvTimestep)
    obs, reward, done, info = ts
    assert obs.tolist() == [1, 0, 1] and obs.dtype == np.float64
    assert float(reward) == 101.0
    assert not done and not ts.terminated and not ts.truncated
    assert info == {"t": 1, "env_id": 1}
    last = manager.step({0: 5, 1: 6})[1]
    assert last.done and last.terminated and not last.truncated
    assert not last.info.get("TimeLimit.truncated", False)


def test_truncation_is_kept_apart_and_told_in_the_info(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=1, truncate=True))
    ts = manager.step({0: 0, 1: 0})[0]
    assert ts.done and ts.truncated and not ts.terminated
    assert ts.info["TimeLimit.truncated"] is True


def test_exactly_the_ids_that_were_given(make):
    manager = make.launched(many(envs.CounterEnv, 4))
    t = dict.fromkeys(range(4), 0)
    for ids in ([0], [3], [3, 1], [3, 1], [0, 1, 2, 3], [2, 0, 3], [0]):
        result = manager.step(actions_for(ids))
        assert set(result) == set(ids)
        for i in ids:
            t[i] += 1
            assert result[i].obs.tolist() == [i, 0, t[i]]
        assert {i: o.tolist() for i, o in manager.ready_obs.items()} == {i: [i, 0, t[i]] for i in range(4)}


@pytest.mark.parametrize("envs_per_worker", [2, 4])
@in_processes
def test_some_envs_of_a_worker_and_then_others(make, envs_per_worker):
    manager = make.launched(many(envs.CounterEnv, 4), envs_per_worker=envs_per_worker)
    t = dict.fromkeys(range(4), 0)
    for ids in ([0], [0, 1], [1, 2, 3], [3], [0, 1, 2, 3], [2, 0]):
        result = manager.step(actions_for(ids))
        for i in ids:
            t[i] += 1
            assert result[i].obs.tolist() == [i, 0, t[i]]


def test_ids_may_be_numpy_integers(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    result = manager.step({np.int64(1): np.int64(3)})
    assert set(result) == {1} and all(type(i) is int for i in result)


def test_step_of_nothing_with_nothing_pending_gives_nothing(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    assert manager.step({}) == {}
    assert manager.step({0: 0})[0].obs.tolist() == [0, 0, 1]


class Refusals:
    """What each refusal has in common: nothing was sent, and the manager goes on."""

    @staticmethod
    def untouched(manager, env_num=2, t=0):
        result = manager.step(actions_for(range(env_num)))
        for i in range(env_num):
            assert result[i].obs.tolist()[2] == t + 1, f"env {i} was stepped by a call that was refused"


@pytest.mark.case("A07", "O01")
class TestRefused(Refusals):
    def test_unknown_id(self, make):
        manager = make.launched(many(envs.CounterEnv, 2))
        for bad in (2, 7, -1, "0", None, 0.5):
            error = error_of(EnvManagerError, manager.step, {0: 0, bad: 0})
            assert isinstance(error, KeyError)
            assert repr(bad) in str(error), "the message names the id"
            assert "0" in str(error) and "1" in str(error), "and says which there are"
        self.untouched(manager)

    @pytest.mark.parametrize("ids", [(False, True), (0.0, 1.0)])
    def test_what_only_equals_an_id_is_none(self, make, ids):
        manager = make.launched(many(envs.CounterEnv, 2))
        error = error_of(EnvManagerError, manager.step, dict.fromkeys(ids, 0))
        assert isinstance(error, KeyError) and repr(ids[0]) in str(error)
        self.untouched(manager)

    def test_not_a_dict(self, make):
        manager = make.launched(many(envs.CounterEnv, 2))
        for bad in ([0, 0], 3, None, np.zeros(2), "ab"):
            assert re.search("(?i)dict|env_id", str(error_of(EnvManagerError, manager.step, bad)))
        self.untouched(manager)

    def test_an_env_that_needs_a_reset(self, make):
        manager = make.launched(many(envs.CounterEnv, 2, length=1), auto_reset=False)
        manager.step({0: 0})
        assert state_of(manager, 0) == "NEED_RESET"
        with pytest.raises(IllegalStateError, match=r"(?s)0.*NEED_RESET.*reset"):
            manager.step({0: 0, 1: 0})
        assert manager.ready_obs[1].tolist() == [1, 0, 0]
        assert manager.step({1: 0})[1].obs.tolist() == [1, 0, 1]

    def test_an_env_that_is_done(self, make):
        manager = make.launched(many(envs.CounterEnv, 2, length=2), episode_num=1)
        manager.step({0: 0})
        manager.step({0: 0, 1: 0})
        wait_state(manager, 0, "DONE")
        with pytest.raises(IllegalStateError, match=r"(?s)0.*DONE.*reset") as caught:
            manager.step({0: 0, 1: 0})
        assert caught.value.env_id == 0
        assert manager.step({1: 0})[1].obs.tolist() == [1, 0, 2]

    @in_processes
    def test_an_env_that_is_being_reset(self, make, signals):
        manager = make.launched(many(envs.CounterEnv, 2, length=1, reset_gate=signals("gate")))
        manager.step({0: 0})
        assert state_of(manager, 0) == "RESET"
        with pytest.raises(IllegalStateError, match=r"(?s)0.*RESET.*ready_obs") as caught:
            manager.step({0: 0, 1: 0})
        assert caught.value.env_id == 0
        assert manager.ready_obs[1].tolist() == [1, 0, 0]
        signals("gate").post()
        wait_state(manager, 0, "RUN")
        assert manager.step({0: 0})[0].obs.tolist() == [0, 1, 1]

    @in_async
    def test_an_env_that_is_stepping(self, make, signals):
        manager = make.launched(
            [
                lambda: envs.CounterEnv(0),
                lambda: envs.CounterEnv(1, gate=signals("gate")),
            ],
            wait_num=1,
            step_wait_timeout=0,
        )
        assert set(manager.step({0: 0, 1: 0})) == {0}
        with pytest.raises(IllegalStateError, match=r"(?is)1.*step.*step\(\{\}\)|1.*stepping") as caught:
            manager.step({0: 0, 1: 0})
        assert caught.value.env_id == 1
        signals("gate").post()
        assert step_until(manager, {}, {1})[1].obs.tolist() == [1, 0, 1]
        assert manager.step({0: 0})[0].obs.tolist() == [0, 0, 2]

    def test_an_env_in_error(self, make):
        if make.is_base:
            manager = make.launched(many(envs.FaultyEnv, 2, step_fault="raise", at_step=2))
            manager.step({0: 0, 1: 0})
            with pytest.raises(EnvManagerError):
                manager.step({0: 0})
        else:
            manager = make.launched(many(envs.AbnormalEnv, 2, at=2))
            manager.step({0: 0, 1: 0})
            manager.step({0: 0})
        assert state_of(manager, 0) == "ERROR"
        with pytest.raises(IllegalStateError, match=r"(?s)0.*ERROR.*reset") as caught:
            manager.step({0: 0, 1: 0})
        assert caught.value.env_id == 0
        assert manager.ready_obs[1].tolist() == [1, 0, 1]
        manager.reset({0: {}})
        wait_ready(manager)
        assert manager.step({0: 0})[0].obs.tolist()[2] == 1


BOX = spaces.Box(-1, 1, (2,), np.float32)


class TestActions(Refusals):
    @pytest.mark.case("T06")
    def test_a_wrong_shape_is_refused_before_anything_is_sent(self, make):
        manager = make.launched(many(envs.EchoEnv, 2, action_space=BOX))
        column, broadcast, empty = np.zeros((2, 1)), np.zeros(1), np.zeros(0)
        for bad in (np.zeros(3), column, 0.5, broadcast, {"a": 3}, "left", None, [[0.0, 0.0]], empty):
            error = error_of(SpaceMismatchError, manager.step, {0: np.zeros(2, np.float32), 1: bad})
            assert error.env_id == 1
            assert "action" in str(error) and "1" in str(error)
            assert isinstance(error, ValueError)
        assert manager.steps == [0, 0]
        assert manager.step({0: np.ones(2, np.float32), 1: np.ones(2, np.float32)})[1].obs.tolist() == [2]

    @pytest.mark.case("T06")
    def test_a_dict_for_a_box_of_one(self, make):
        manager = make.launched(many(envs.EchoEnv, 2, action_space=spaces.Box(-1, 1, (1,), np.float32)))
        with pytest.raises(SpaceMismatchError, match=r"(?is)action.*dict"):
            manager.step({0: {"a": 3}})
        assert manager.steps == [0, 0]

    @pytest.mark.case("T05")
    @pytest.mark.parametrize("action", [3, np.int64(3), np.int32(3), np.array(3), np.array(3, np.uint8)])
    def test_a_discrete_env_gets_a_scalar(self, make, action):
        manager = make.launched(many(envs.EchoEnv, 2, action_space=spaces.Discrete(5)))
        ts = manager.step({0: action, 1: action})[0]
        assert ts.obs.tolist() == [3]
        assert tuple(ts.info["shape"]) == () and ts.info["is_index"]

    @pytest.mark.case("T05")
    @pytest.mark.parametrize("action", [np.array([3]), [3]])
    def test_discrete_action_of_shape_one_is_a_scalar_or_a_clear_error(self, make, action):
        manager = make.launched(many(envs.EchoEnv, 2, action_space=spaces.Discrete(5)))
        refusal = None
        try:
            ts = manager.step({0: action})[0]
        except SpaceMismatchError as error:
            refusal = error
        if refusal is None:
            assert ts.obs.tolist() == [3] and tuple(ts.info["shape"]) == ()
        else:
            assert refusal.env_id == 0 and "action" in str(refusal)
            assert manager.steps == [0, 0]

    @pytest.mark.parametrize("action", [np.float32(0.5), 2.7, "a"])
    def test_what_is_no_integer_for_a_discrete_space(self, make, action):
        manager = make.launched(many(envs.EchoEnv, 2, action_space=spaces.Discrete(5)))
        with pytest.raises(SpaceMismatchError):
            manager.step({0: 0, 1: action})
        assert manager.steps == [0, 0]

    def test_actions_arrive_with_structure_and_dtype(self, make):
        space = spaces.Dict({"move": BOX, "press": spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2)))})
        manager = make.launched(many(envs.ActionKeepingEnv, 2, action_space=space))
        action = {"press": (2, np.array([1, 0], np.int8)), "move": np.array([0.5, -0.5], np.float32)}
        manager.step({0: action})
        got = manager.last[0]
        assert set(got) == {"move", "press"}
        assert got["move"].dtype == np.float32 and got["move"].tolist() == [0.5, -0.5]
        assert int(got["press"][0]) == 2 and got["press"][1].tolist() == [1, 0]

    @pytest.mark.case("D09")
    def test_an_env_may_write_into_its_action(self, make):
        manager = make.launched(many(envs.EchoEnv, 2, action_space=BOX, scribble=True))
        action = np.array([0.25, 0.5], np.float32)
        for _ in range(3):
            result = manager.step({0: action, 1: action})
            assert result[0].obs.tolist() == [0.75] and result[1].obs.tolist() == [0.75]
        assert action.tolist() == [0.25, 0.5]

    @pytest.mark.case("O13")
    @in_every_process_kind
    def test_one_action_that_does_not_pickle_among_several(self, make):
        manager = make.launched(many(envs.FreeFormEnv, 3))
        with pytest.raises(EnvManagerError, match=r"(?i)pickle") as caught:
            manager.step({0: b"a", 1: threading.Lock(), 2: b"c"})
        assert caught.value.env_id == 1
        assert manager.steps == [0, 0, 0]
        result = manager.step({0: b"a", 1: b"b", 2: b"c"})
        assert [result[i].obs["got"] for i in range(3)] == [b"a", b"b", b"c"]


@pytest.mark.case("F20")
@in_every_process_kind
@pytest.mark.parametrize("envs_per_worker", [1, 3])
def test_large_messages_both_ways_at_once(make, envs_per_worker):
    size = 3_000_000
    manager = make.launched(many(envs.FreeFormEnv, 3, size=size), envs_per_worker=envs_per_worker)
    for k in range(3):
        result = manager.step({i: bytes([k]) * size for i in range(3)})
        for i in range(3):
            assert result[i].obs["who"] == i and len(result[i].obs["data"]) == size
            assert result[i].obs["got"] == bytes([k]) * size


@in_sync
def test_sync_waits_for_all_that_were_asked(make, signals):
    from tests.helpers.sync import Background

    gates = [signals(f"gate{i}") for i in range(3)]
    manager = make.launched([lambda i=i: envs.CounterEnv(i, gate=gates[i]) for i in range(3)])
    call = Background(manager.step, {0: 0, 1: 0, 2: 0})
    gates[2].post()
    gates[0].post()
    assert call.running
    gates[1].post()
    assert set(call.result()) == {0, 1, 2}


def test_random_action_is_for_the_ready_ids_and_reproducible(make):
    manager = make(many(envs.CounterEnv, 3, length=1), auto_reset=False)
    manager.seed(5)
    manager.launch()
    wait_ready(manager)
    first = [manager.random_action() for _ in range(3)]
    assert all(set(a) == {0, 1, 2} for a in first)
    assert all(0 <= int(x) < 1000 for a in first for x in a.values())
    manager.step(actions_for([1]))
    assert set(manager.random_action()) == {0, 2}
    manager.seed(5)
    manager.reset()
    wait_ready(manager)
    again = [manager.random_action() for _ in range(3)]
    assert again == first
    manager.step(manager.random_action())
