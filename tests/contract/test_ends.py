"""How an episode ended, told by envs of every style: the same in both faces, the two ends kept apart."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envmgr import BaseEnvTimestep
from tests.helpers.managers import in_base_and_sync, wait_ready

pytestmark = pytest.mark.case("D04")

KEY = "TimeLimit.truncated"
BOTH, TERMINATED, TRUNCATED = (True, True), (True, False), (False, True)


class EndingEnv:
    """Its second step is what ``end`` makes of (obs, info); its first is an uneventful one of the same form.

    ``kept`` is the info that it gave last: its own dict, which nobody else may write to.
    """

    def __init__(self, end: Any, info: Any) -> None:
        self.observation_space = spaces.Box(-9, 9, (1,), np.float64)
        self.action_space = spaces.Discrete(2)
        self.end, self.info, self.kept, self.t = end, info, None, 0

    def reset(self, **kwargs: Any) -> Any:
        self.t = 0
        return np.zeros(1)

    def step(self, action: int) -> Any:
        self.t += 1
        over = self.t == 2
        self.kept = dict(self.info) if over and isinstance(self.info, dict) else self.info if over else {}
        return self.end(np.full(1, float(self.t)), self.kept, over)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        pass

    def close(self) -> None:
        pass


def five(terminated: bool, truncated: bool) -> Any:
    """An end of five values."""
    return lambda obs, info, over: (obs, 1.0, over and terminated, over and truncated, info)


def attributes(**ends: bool) -> Any:
    """An end of an object with these attributes."""

    def end(obs: Any, info: Any, over: bool) -> Any:
        flags = {name: over and flag for name, flag in ends.items()}
        return SimpleNamespace(obs=obs, reward=1.0, done=over, info=info, **flags)

    return end


def four(obs: Any, info: Any, over: bool) -> Any:
    """An end of four values."""
    return obs, 1.0, over, info


def both(obs: Any, info: Any, over: bool) -> Any:
    """An end of a timestep that is both."""
    return BaseEnvTimestep.both(obs, 1.0, info) if over else BaseEnvTimestep(obs, 1.0, False, info)


ENDS = [
    pytest.param(both, {}, BOTH, id="both"),
    pytest.param(both, {KEY: True}, BOTH, id="both-and-key"),
    pytest.param(attributes(terminated=True, truncated=True), {}, BOTH, id="attributes"),
    pytest.param(attributes(terminated=True, truncated=False), {KEY: True}, TERMINATED, id="attributes-key"),
    pytest.param(attributes(truncated=True), None, TRUNCATED, id="one-attribute"),
    pytest.param(five(True, True), {}, BOTH, id="five"),
    pytest.param(five(True, False), {KEY: True, "x": 1}, TERMINATED, id="five-and-key"),
    pytest.param(five(False, True), {KEY: False}, TRUNCATED, id="five-and-false-key"),
    pytest.param(five(True, False), "text", TERMINATED, id="five-text"),
    pytest.param(five(True, False), np.arange(2), TERMINATED, id="five-array"),
    pytest.param(five(True, False), None, TERMINATED, id="five-none"),
    pytest.param(four, {KEY: True}, TRUNCATED, id="four-and-key"),
    pytest.param(four, {KEY: False}, TERMINATED, id="four-and-false-key"),
    pytest.param(four, "text", TERMINATED, id="four-text"),
    pytest.param(four, np.arange(2), TERMINATED, id="four-array"),
    pytest.param(four, None, TERMINATED, id="four-none"),
]


@pytest.mark.parametrize(("end", "info", "expected"), ENDS)
@in_base_and_sync
def test_in_the_dict_face(make, end, info, expected):
    manager = make.launched([partial(EndingEnv, end, info)])
    first = manager.step({0: 0})[0]
    assert (first.done, first.terminated, first.truncated) == (False, False, False)
    last = manager.step({0: 0})[0]
    assert last.done and (last.terminated, last.truncated) == expected
    assert last.obs.tolist() == [2]
    if expected[1]:
        assert last.info[KEY] is True
    elif isinstance(info, dict):
        assert last.info == {**info, KEY: False}
    elif info is not None:
        assert np.all(last.info == info)
    wait_ready(manager)
    (kept,) = manager.kept
    assert kept is None if info is None else np.all(kept == info), "the env's own info is as it was"


@pytest.mark.parametrize(("end", "info", "expected"), ENDS)
@in_base_and_sync
def test_in_the_array_face(make, end, info, expected):
    manager = make([partial(EndingEnv, end, info)])
    manager.launch()
    manager.reset_arrays()
    for _ in range(2):
        first = manager.step_arrays([0])
        assert not first.terminated.any() and not first.truncated.any()
        last = manager.step_arrays([0])
        assert (bool(last.terminated[0]), bool(last.truncated[0])) == expected
        assert last.final_obs[0].tolist() == [2]
        assert ("info" in last.info.get(0, {})) == (info is not None and not isinstance(info, dict))
