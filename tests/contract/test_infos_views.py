"""``info_list`` and ``info_arrays`` over the infos that the array face gives (section 4.4)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from envmgr import info_arrays, info_list
from tests.helpers import envs
from tests.helpers.managers import in_async, in_base_and_start_methods, step_until

pytestmark = pytest.mark.case("A06")


def lives(t):
    """What the talkative env says in its step t."""
    return {"lives": 5 - t, "who": {"name": "one", "at": np.float32(t / 2)}}


def nothing(t):
    return {}


def one_talks(n=3, **kwargs):
    """Envs of which env 1 alone has something to say."""
    return [
        partial(envs.InfoEnv, i, make_info=lives if i == 1 else nothing, infos=i == 1, **kwargs)
        for i in range(n)
    ]


def same_rows(array, dtype, env_id, values):
    """Whether each row is the one of its env: ``values`` by env_id."""
    return array.dtype == dtype and array.tolist() == [values[int(i)] for i in env_id]


@in_base_and_start_methods
def test_a_key_in_one_envs_info_only(make):
    manager = make(one_talks())
    manager.launch()
    _, info = manager.reset_arrays()
    assert info_list(info, range(3)) == [{}, {"episode": 0, "env_id": 1}, {}]
    views = info_arrays(info, range(3))
    assert views["env_id"].tolist() == [0, 1, 0] and views["_env_id"].tolist() == [False, True, False]

    for t in range(1, 4):
        out = manager.step_arrays([0, 0, 0])
        assert set(out.info) == {1}
        assert info_list(out.info, out.env_id) == [lives(t) if i == 1 else {} for i in out.env_id]
        views = info_arrays(out.info, out.env_id)
        assert list(views) == ["lives", "_lives", "who", "_who"]
        assert same_rows(views["lives"], np.int64, out.env_id, [0, 5 - t, 0])
        assert same_rows(views["who"]["at"], np.float32, out.env_id, [0.0, t / 2, 0.0])
        assert same_rows(views["who"]["name"], object, out.env_id, [None, "one", None])
        for mask in (views["_lives"], views["_who"], views["who"]["_at"], views["who"]["_name"]):
            assert same_rows(mask, np.bool_, out.env_id, [False, True, False])
        assert len(views["lives"]) == len(out.reward)


def test_the_info_of_an_automatic_reset_is_a_dict_inside(make):
    manager = make([partial(envs.CounterEnv, i, length=i + 1, infos=True) for i in range(2)])
    manager.launch()
    manager.reset_arrays()
    out = manager.step_arrays([0, 0])  # the end of env 0 alone
    assert set(out.final_obs) == {0}
    views = info_arrays(out.info, out.env_id)
    assert same_rows(views["t"], np.int64, out.env_id, [1, 1])
    assert same_rows(views["_reset_info"], np.bool_, out.env_id, [True, False])
    assert same_rows(views["reset_info"]["episode"], np.int64, out.env_id, [1, 0])
    assert same_rows(views["reset_info"]["_episode"], np.bool_, out.env_id, [True, False])


def test_rows_in_the_order_asked_and_of_a_part(make):
    manager = make(one_talks())
    manager.launch()
    manager.reset_arrays()
    out = manager.step_arrays([0, 0], env_id=[2, 1])
    assert set(out.env_id.tolist()) == {1, 2}
    assert same_rows(info_arrays(out.info, out.env_id)["lives"], np.int64, out.env_id, [None, 4, 0])
    out = manager.step_arrays([0, 0], env_id=[2, 0])
    assert info_arrays(out.info, out.env_id) == {}
    assert info_list(out.info, out.env_id) == [{}, {}]


@in_async
def test_rows_of_those_that_are_in(make, signals):
    gate = signals("gate")
    fns = one_talks(2)
    fns[0] = partial(fns[0], gate=gate)
    manager = make(fns, wait_num=1, step_wait_timeout=0)
    manager.launch()
    manager.reset_arrays()
    manager.send([0, 0])
    out = manager.recv()
    assert out.env_id.tolist() == [1]
    assert info_arrays(out.info, out.env_id)["_lives"].tolist() == [True]
    gate.post()
    out = manager.recv()
    assert out.env_id.tolist() == [0]
    assert info_arrays(out.info, out.env_id) == {} and info_list(out.info, out.env_id) == [{}]


class TextInfoEnv(envs.CounterEnv):
    """Its infos are texts, its rewards have a shape that no space says, and it raises when it is told to."""

    def reset(self, **kwargs):
        obs, _ = super().reset(**kwargs)
        return obs, {"first": True}

    def step(self, action):
        obs, _, terminated, truncated, _ = super().step(action)
        return obs, np.ones(3) * self.t, terminated, truncated, f"text {self.t}"


@pytest.mark.filterwarnings("ignore:env 0. a reward of shape")
@in_base_and_start_methods
def test_an_info_that_is_no_dict_leaves_room_for_what_a_manager_adds(make):
    manager = make([partial(TextInfoEnv, 0, length=2), partial(envs.CounterEnv, 1, length=2)])
    manager.launch()
    manager.reset_arrays()
    out = manager.step_arrays([0, 0])
    assert set(out.info) == {0} and out.reward[out.env_id.tolist().index(1)] == 101
    assert out.info[0]["info"] == "text 1" and out.info[0]["reward"].tolist() == [1, 1, 1]
    out = manager.step_arrays([0, 0])
    assert out.info[0]["info"] == "text 2" and out.info[0]["reset_info"] == {"first": True}
    assert out.info[0]["reward"].tolist() == [2, 2, 2]
    assert out.final_obs[0].tolist() == [0, 0, 2]


@in_base_and_start_methods
def test_in_the_dict_face_it_is_what_the_env_gave(make):
    manager = make.launched([partial(TextInfoEnv, 0, length=2, truncate=True)])
    assert step_until(manager, {0: 0})[0].info == "text 1"
    last = step_until(manager, {0: 0})[0]
    assert last.info == {"info": "text 2", "TimeLimit.truncated": True}
    assert last.truncated and not last.terminated and last.reward.tolist() == [2, 2, 2]
