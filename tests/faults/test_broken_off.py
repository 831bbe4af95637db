"""Calls that a Ctrl-C breaks off, and what a dead worker leaves in rows that nobody was told of."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envmgr import create_env_manager
from envmgr.errors import EnvInitError, EnvManagerError, EnvStepError, EnvTimeoutError, ManagerClosedError
from tests.helpers.sync import Signal


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
        if self.act == "be told to end in reset" and self.episode == self.at:
            signal.raise_signal(signal.SIGTERM)
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        if self.t == self.at:
            if self.act == "press":
                signal.raise_signal(signal.SIGINT)
            elif self.act == "raise":
                raise KeyboardInterrupt
            elif self.act == "be told to end":
                signal.raise_signal(signal.SIGTERM)
            elif self.act == "leave":
                leave()
            elif self.act == "sleep":
                time.sleep(60)
            elif self.act == "die":
                os._exit(7)
            elif self.act == "complex":
                return self._obs(), np.complex64(1 + 1j), False, False, {}
        return self._obs(), 1.0, self.t == self.length, False, {}

    def tell(self):
        signal.raise_signal(signal.SIGTERM)

    def leave(self):
        leave()

    def close_as(self, end):
        self.close = end


def envs(*acts: str, **kwargs):
    return [functools.partial(Counter, i, act, **kwargs) for i, act in enumerate(acts)]


@pytest.fixture(autouse=True)
def ctrl_c():
    """Python's own handler, also where the tests run in a background job that ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("limit", [None, 600.0])
@pytest.mark.parametrize("on_error", ["raise", "reset"])
def test_a_ctrl_c_in_an_env_of_base_is_the_callers(on_error, limit):
    """And the reset after it does not sleep until the step that was broken off would have been late."""
    cfg = {"type": "base", "on_error": on_error, "step_timeout": limit}
    with create_env_manager(cfg, envs("", "press", "")) as manager:
        manager.launch()
        manager.step({0: 0, 1: 0, 2: 0})
        with pytest.raises(KeyboardInterrupt):
            manager.step({0: 0, 1: 0, 2: 0})
        manager.reset()
        assert {i: obs[2] for i, obs in manager.ready_obs.items()} == {0: 0, 1: 0, 2: 0}


@pytest.mark.case("F05")
@pytest.mark.parametrize("limit", [None, 600.0])
def test_after_a_ctrl_c_the_other_envs_of_base_have_their_turn_in_the_next_call(limit):
    """However long they take, nobody waits for them; and each result comes once."""
    built = []

    def build(env_fn):
        built.append(env_fn())
        return built[-1]

    fns = [functools.partial(build, fn) for fn in envs("", "press", "", "")]
    cfg = {"type": "base", "on_error": "reset", "step_timeout": limit}
    with create_env_manager(cfg, fns) as manager:
        manager.launch()
        manager.step(dict.fromkeys(range(4), 0))
        with pytest.raises(KeyboardInterrupt):
            manager.step(dict.fromkeys(range(4), 0))
        assert [env.t for env in built] == [2, 2, 1, 1]
        left = manager.step({})
        assert {i: left[i].obs[2] for i in (0, 2, 3)} == {0: 2, 2: 2, 3: 2}
        assert manager.step({}) == {}
        assert {i: manager.step({i: 0})[i].obs[2] for i in (0, 2, 3)} == {0: 3, 2: 3, 3: 3}


@pytest.mark.case("F05")
def test_after_a_ctrl_c_in_a_reset_of_base_another_one_resets_all():
    with create_env_manager({"type": "base"}, envs("", "press in reset", "", at=2)) as manager:
        manager.launch()
        with pytest.raises(KeyboardInterrupt):
            manager.reset()
        manager.reset()
        assert sorted(manager.ready_obs) == [0, 1, 2]
        assert {i: manager.step({i: 0})[i].obs[2] for i in range(3)} == {0: 1, 1: 1, 2: 1}


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


class Own(Exception):  # noqa: N818 - the program's own
    """What a program's handler raises."""


def leave(*_):
    sys.exit(3)


class Handler:
    def __init__(self, error):
        self.error = error

    def method(self, *_):
        raise self.error

    __call__ = method


HANDLERS = {
    "function": (leave, SystemExit),
    "method": (Handler(Own()).method, Own),
    "partial": (functools.partial(Handler.method, Handler(KeyboardInterrupt())), KeyboardInterrupt),
    "object": (Handler(SystemExit(3)), SystemExit),
}


@pytest.fixture
def handle():
    """Installs handlers of SIGTERM, and takes them back."""
    before = signal.getsignal(signal.SIGTERM)
    yield functools.partial(signal.signal, signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("limit", [None, 30.0])
@pytest.mark.parametrize("on_error", ["raise", "reset"])
@pytest.mark.parametrize("handler", HANDLERS)
class TestWhatTheHandlerOfASignalRaisesInBase:
    """It is the program's own, and no failure of the env that ran when the signal came."""

    def test_in_a_step(self, handle, handler, on_error, limit):
        function, error = HANDLERS[handler]
        cfg = {"type": "base", "on_error": on_error, "step_timeout": limit}
        with create_env_manager(cfg, envs("", "be told to end", "")) as manager:
            manager.launch()
            handle(function)
            manager.step({0: 0, 1: 0, 2: 0})
            with pytest.raises(error):
                manager.step({0: 0, 1: 0, 2: 0})
            if limit is None:
                manager.reset()
                assert {i: obs[2] for i, obs in manager.ready_obs.items()} == {0: 0, 1: 0, 2: 0}

    def test_in_a_reset(self, handle, handler, on_error, limit):
        function, error = HANDLERS[handler]
        cfg = {"type": "base", "on_error": on_error, "reset_timeout": limit, "max_retry": 3}
        with create_env_manager(cfg, envs("be told to end in reset", "")) as manager:
            manager.launch()
            handle(function)
            with pytest.raises(error):
                manager.reset()

    def test_in_an_env_fn_a_call_and_a_close(self, handle, handler, on_error, limit):
        function, error = HANDLERS[handler]

        def build():
            if building:
                signal.raise_signal(signal.SIGTERM)
            return Counter(0)

        def end():
            signal.raise_signal(signal.SIGTERM)

        building = True
        cfg = {"type": "base", "on_error": on_error, "step_timeout": limit}
        with create_env_manager(cfg, [build]) as manager:
            handle(function)
            with pytest.raises(error):
                manager.launch()
            building = False
            manager.launch()
            with pytest.raises(error):
                manager.tell[0]()
            manager.close_as[0](end)
            with pytest.raises(error):
                manager.close()


def test_an_env_of_base_that_leaves_by_itself_has_failed_like_any_other(handle):
    handle(lambda *_: sys.exit(4))
    with create_env_manager({"type": "base"}, envs("", "leave")) as manager:
        manager.launch()
        manager.step({0: 0, 1: 0})
        with pytest.raises(EnvStepError, match="SystemExit: 3"):
            manager.step({0: 0, 1: 0})


@pytest.mark.parametrize("where", ["env_fn", "call", "close"])
def test_so_has_one_that_leaves_elsewhere(where, caplog):
    def build():
        if where == "env_fn":
            leave()
        return Counter(0)

    with create_env_manager({"type": "base"}, [build]) as manager:
        if where == "env_fn":
            with pytest.raises(EnvInitError, match="SystemExit: 3"):
                manager.launch()
            return
        manager.launch()
        if where == "call":
            with pytest.raises(EnvManagerError, match="SystemExit: 3"):
                manager.leave[0]()
            return
        manager.close_as[0](leave)
        manager.close()
        assert "env 0 raised in close: SystemExit: 3" in caplog.text


def test_a_limit_of_base_is_none_of_the_programs_handlers():
    """What breaks a call off is the handler of a signal, too."""
    with create_env_manager({"type": "base", "step_timeout": 0.1}, envs("sleep", at=1)) as manager:
        manager.launch()
        with pytest.raises(EnvTimeoutError):
            manager.step({0: 0})


@pytest.mark.parametrize("on_error", ["raise", "reset"])
def test_a_program_of_base_that_is_told_to_end_ends(script, on_error):
    body = f"""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    entered = Signal(HERE / "entered")
    manager = create_env_manager({{"type": "base", "on_error": "{on_error}"}}, many(
        envs.CounterEnv, 2, entered=entered, gate=Signal(HERE / "gate")
    ))
    manager.launch()
    log.add("launched")
    while True:
        manager.step({{0: 0, 1: 0}})
    """
    one = script(body)
    entered = Signal(one.here / "entered")
    entered.wait(1, 40)
    one.signal(signal.SIGTERM)
    gate = Signal(one.here / "gate")
    gate.post(10)  # for the env that has its turn after it
    assert one.wait(20) == 3
    assert one.err == ""
    entered.close()
    gate.close()


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
