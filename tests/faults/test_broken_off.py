"""Calls that a Ctrl-C breaks off, and what a dead worker leaves in rows that nobody was told of."""

from __future__ import annotations

import functools
import os
import signal

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envmgr import create_env_manager
from envmgr.errors import EnvStepError, ManagerClosedError


class Counter(gymnasium.Env):
    """Observations are (env_id, episode, t); it does what its ``act`` says at one step."""

    observation_space = spaces.Box(-1, 1000, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, env_id: int, act: str = "", at: int = 2, length: int | None = None) -> None:
        self.env_id, self.act, self.at, self.length = env_id, act, at, length
        self.episode = self.t = 0

    def _obs(self) -> np.ndarray:
        return np.array([self.env_id, self.episode, self.t], np.float64)

    def reset(self, *, seed=None, options=None):
        self.episode, self.t = self.episode + 1, 0
        if self.act == "press in reset" and self.episode == self.at:
            signal.raise_signal(signal.SIGINT)
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        if self.t == self.at:
            if self.act == "press":
                signal.raise_signal(signal.SIGINT)
            elif self.act == "raise":
                raise KeyboardInterrupt
            elif self.act == "die":
                os._exit(7)
            elif self.act == "complex":
                return self._obs(), np.complex64(1 + 1j), False, False, {}
        return self._obs(), 1.0, self.t == self.length, False, {}


def envs(*acts: str, **kwargs):
    return [functools.partial(Counter, i, act, **kwargs) for i, act in enumerate(acts)]


@pytest.fixture(autouse=True)
def ctrl_c():
    """Python's own handler, also where the tests run in a background job that ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("on_error", ["raise", "reset"])
def test_a_ctrl_c_in_an_env_of_base_is_the_callers(on_error):
    with create_env_manager({"type": "base", "on_error": on_error}, envs("", "press", "")) as manager:
        manager.launch()
        manager.step({0: 0, 1: 0, 2: 0})
        with pytest.raises(KeyboardInterrupt):
            manager.step({0: 0, 1: 0, 2: 0})
        manager.reset()
        assert {i: obs[2] for i, obs in manager.ready_obs.items()} == {0: 0, 1: 0, 2: 0}


def test_a_ctrl_c_in_a_reset_of_base_is_no_failed_attempt():
    with create_env_manager({"type": "base", "max_retry": 3}, envs("press in reset", "")) as manager:
        manager.launch()
        with pytest.raises(KeyboardInterrupt):
            manager.reset()


def test_an_env_of_base_that_raises_it_itself_has_failed_like_any_other():
    with create_env_manager({"type": "base"}, envs("", "raise")) as manager:
        manager.launch()
        manager.step({0: 0, 1: 0})
        with pytest.raises(EnvStepError, match="KeyboardInterrupt"):
            manager.step({0: 0, 1: 0})


@pytest.mark.parametrize("kind", ["subprocess", "async_subprocess"])
@pytest.mark.parametrize("face", ["dict", "arrays"])
def test_a_call_that_was_broken_off_between_its_stores_is_told_at_the_next_one(kind, face, monkeypatch):
    """The signal comes when commands are written and no worker was rung."""

    def press(_workers):
        signal.raise_signal(signal.SIGINT)

    def step():
        return manager.step({0: 0, 1: 0}) if face == "dict" else manager.step_arrays(np.zeros(2, np.int64))

    with create_env_manager({"type": kind}, envs("", "")) as manager:
        manager.launch()
        if face == "arrays":
            manager.reset_arrays()
        with monkeypatch.context() as patch:
            patch.setattr(manager._engine.pool, "ring", press)
            with pytest.raises(KeyboardInterrupt):
                step()
        with pytest.raises(ManagerClosedError, match="broken off"):
            step()
        assert manager.closed
        manager.launch()
        assert manager.step({0: 0, 1: 0})[1].obs[2] == 1


@pytest.mark.parametrize("kind", ["subprocess", "async_subprocess"])
def test_a_ctrl_c_while_close_waits_leaves_it_closed(kind, monkeypatch):
    with create_env_manager({"type": kind}, envs("", "")) as manager:
        manager.launch()
        engine = manager._engine
        monkeypatch.setattr("envmgr.workers.process.see_off", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            manager.close()
        assert engine.closed
        manager.close()
        assert manager.closed


@pytest.mark.case("O08")
@pytest.mark.parametrize("face", ["dict", "arrays"])
def test_a_row_that_a_dead_worker_had_written_unannounced_is_nobodys(face):
    """Env 0 has written its second step, or the first of its next episode, when env 1 ends the process."""
    fns = [functools.partial(Counter, 0, "", length=2), functools.partial(Counter, 1, "die")]
    cfg = {"type": "subprocess", "num_workers": 1, "on_error": "reset"}
    with create_env_manager(cfg, fns) as manager:
        manager.launch()
        if face == "dict":
            manager.step({0: 0, 1: 0})
            got = {i: ts.obs for i, ts in manager.step({0: 0, 1: 0}).items()}
        else:
            manager.reset_arrays()
            manager.step_arrays(np.zeros(2, np.int64))
            got = manager.step_arrays(np.zeros(2, np.int64)).final_obs
        assert got[0].tolist() == [0, 0, 0]  # lost, and not the observation of a step that is told as failed
        assert got[1].tolist() == [1, 1, 1]  # its last good one


@pytest.mark.parametrize("kind", ["base", "subprocess"])
def test_a_reward_that_is_refused_leaves_the_last_good_observation(kind):
    with create_env_manager({"type": kind, "on_error": "reset"}, envs("", "complex")) as manager:
        manager.launch()
        manager.step({0: 0, 1: 0})
        bad = manager.step({0: 0, 1: 0})[1]
        assert bad.info.abnormal
        assert "reward" in str(bad.info.err)
        assert bad.obs.tolist() == [1, 1, 1]
