"""Leaves without rows (texts, graphs, a user's own space): whose they are, that they stay as they were."""

from __future__ import annotations

import copy
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.helpers.managers import error_of, in_base, many, step_until, wait_ready

N, LENGTH = 2, 3


class Notes(spaces.Space):
    """A space of a user's own: any dict."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def sample(self, *_: Any) -> Any:
        return {"arr": np.zeros(2), "list": [0]}

    def contains(self, x: Any) -> bool:
        return isinstance(x, dict)


class NotesEnv(gymnasium.Env):
    """Gives its buffers away, again and again; writes into what it is given, and keeps what it was."""

    def __init__(self, env_id: int = 0, lone: bool = False) -> None:
        self.lone = lone
        self.observation_space = Notes() if lone else spaces.Dict(b=spaces.Box(-9, 99, (1,)), s=Notes())
        self.action_space = Notes() if lone else spaces.Dict(v=spaces.Box(-9, 9, (1,)), n=Notes())
        self.env_id, self.box, self.arr, self.list = env_id, np.zeros(1, np.float32), np.zeros(2), [0]
        self.given: list[Any] = []

    def _obs(self) -> Any:
        self.box[:] = self.arr[:] = self.list[0] = self.t
        own = {"arr": self.arr, "list": self.list}
        return own if self.lone else {"b": self.box, "s": own}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self._obs(), {"list": self.list}

    def step(self, action: Any) -> Any:
        self.given.append(copy.deepcopy(action))
        (action if self.lone else action["n"])["from"] = "the env"
        self.t += 1
        return self._obs(), 0.0, self.t >= LENGTH, False, {}


def side(obs: Any) -> Any:
    """What has no rows of an observation, as plain lists."""
    own = obs.get("s", obs)
    return own["arr"].tolist(), own["list"]


def at(t: int) -> Any:
    return [t, t], [t]


def action(lone: bool, k: int = 0) -> Any:
    own = {"k": [k]}
    return own if lone else {"v": np.full(1, k, np.float32), "n": own}


def overwrite(obs: Any) -> None:
    own = obs.get("s", obs)
    own["arr"][:] = -5
    own["list"].append("the caller's")


lone = pytest.mark.parametrize("lone", [True, False], ids=["lone", "beside rows"])


@pytest.mark.case("D01", "T04")
@lone
def test_what_is_kept_stays_as_it_was(make, lone):
    manager = make(many(NotesEnv, N, lone=lone))
    manager.launch()
    kept = [(wait_ready(manager), 0)]
    for t in (1, 2, 3):
        results = step_until(manager, {i: action(lone) for i in range(N)})
        kept.append(({i: ts.obs for i, ts in results.items()}, t))
    wait_ready(manager)
    for obs, t in kept:
        assert {i: side(one) for i, one in obs.items()} == dict.fromkeys(range(N), at(t))


@pytest.mark.case("D01", "T04")
@lone
def test_what_is_kept_of_arrays_stays_as_it_was(make, lone):
    manager = make(many(NotesEnv, N, lone=lone))
    manager.launch()
    obs, _ = manager.reset_arrays()
    kept = [(obs, 0)]
    finals = {}
    for t in (1, 2, 0, 1):
        manager.send([action(True)] * N if lone else {"v": np.zeros((N, 1)), "n": [action(True)] * N})
        out = manager.recv()
        kept.append((out.obs, t))
        finals.update(out.final_obs)
    assert {i: side(obs) for i, obs in finals.items()} == dict.fromkeys(range(N), at(LENGTH))
    for obs, t in kept:
        own = obs if lone else obs["s"]
        assert own.dtype == object and [side(one) for one in own] == [at(t)] * N


@pytest.mark.case("D09", "T04")
@lone
def test_what_is_handed_out_is_the_callers_own(make, lone):
    manager = make(many(NotesEnv, N, lone=lone))
    manager.launch()
    overwrite(wait_ready(manager)[0])
    assert side(manager.ready_obs[0]) == at(0)
    results = step_until(manager, {i: action(lone) for i in range(N)})
    overwrite(results[0].obs)
    ready = manager.ready_obs
    assert side(ready[0]) == at(1)
    overwrite(ready[0])
    assert side(manager.ready_obs[0]) == at(1)
    assert side(step_until(manager, {0: action(lone)})[0].obs) == at(2)


@pytest.mark.case("D09", "T04")
@lone
def test_what_is_handed_out_as_arrays_is_the_callers_own(make, lone):
    manager = make(many(NotesEnv, N, lone=lone))
    manager.launch()
    obs, _ = manager.reset_arrays()
    overwrite((obs if lone else obs["s"])[0])
    assert side(manager.ready_obs[0]) == at(0)


@pytest.mark.case("D09")
def test_ready_info_is_the_callers_own(make):
    manager = make.launched(many(NotesEnv, N))
    manager.ready_info[0]["list"].append("the caller's")
    manager.ready_info[0]["more"] = 1
    assert manager.ready_info == {i: {"list": [0]} for i in range(N)}
    step_until(manager, {i: action(False) for i in range(N)})
    assert manager.ready_info == {i: {"list": [0]} for i in range(N)}


@pytest.mark.case("D09")
def test_the_info_of_reset_arrays_is_the_callers_own(make):
    manager = make(many(NotesEnv, N))
    manager.launch()
    _, infos = manager.reset_arrays()
    infos[0]["list"].append("the caller's")
    assert manager.ready_info == {i: {"list": [0]} for i in range(N)}


@pytest.mark.case("D09", "T04")
@lone
def test_an_env_may_write_into_its_action(make, lone):
    manager = make.launched(many(NotesEnv, N, lone=lone))
    mine = {i: action(lone, i) for i in range(N)}
    step_until(manager, mine)
    assert repr(mine) == repr({i: action(lone, i) for i in range(N)})
    shared = action(lone, 7)
    step_until(manager, dict.fromkeys(range(N), shared))
    assert repr(shared) == repr(action(lone, 7))
    assert [repr(given) for given in manager.given] == [repr([action(lone, i), shared]) for i in range(N)]


@pytest.mark.case("D09", "T04")
def test_an_env_may_write_into_the_actions_of_a_batch(make):
    manager = make(many(NotesEnv, N))
    manager.launch()
    manager.reset_arrays()
    batch = {"v": np.ones((N, 1), np.float32), "n": [{"k": [i]} for i in range(N)]}
    manager.step_arrays(batch)
    assert batch["n"] == [{"k": [i]} for i in range(N)]
    assert [given[0]["n"] for given in manager.given] == batch["n"]


@pytest.mark.case("D03", "T04")
def test_the_rest_of_an_action_is_checked_and_cast(make):
    manager = make.launched(many(NotesEnv, N))
    step_until(manager, {i: {"v": [0.5], "n": {}} for i in range(N)})
    for given in manager.given:
        assert given[0]["v"].dtype == np.float32 and given[0]["v"].tolist() == [0.5]
    masked = {"v": np.ma.array([0.5], mask=[True]), "n": {}}
    for wrong, text in (({"v": [0.5, 1.0], "n": {}}, "expected shape"), (masked, "masked values")):
        assert text in str(error_of(ValueError, manager.step, {0: wrong}))
    assert sorted(step_until(manager, {i: action(False) for i in range(N)})) == list(range(N))


class LockEnv(NotesEnv):
    """Gives, among others, what cannot be copied."""

    lock = threading.Lock()

    def _obs(self) -> Any:
        return {**super()._obs(), "s": {"lock": self.lock}}


@in_base
def test_what_cannot_be_copied_is_handed_over_as_it_is(make):
    manager = make.launched(many(LockEnv, 1))
    assert manager.ready_obs[0]["s"]["lock"] is LockEnv.lock
    assert step_until(manager, {0: action(False)})[0].obs["s"]["lock"] is LockEnv.lock
