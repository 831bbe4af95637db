"""Exceptions of a user's own class that raise again when they are asked, pickled or built anew."""

from __future__ import annotations

import functools
import signal
import sys

import pytest

from envmgr import EnvInitError, EnvManagerError, EnvManagerWarning, EnvResetError, EnvStepError
from envmgr.workers.failures import capture, rebuild, told
from tests.helpers import envs
from tests.helpers.managers import in_base_and_sync, in_sync, launch_all, step_until, wait_ready
from tests.helpers.sync import within


class Stop(BaseException):
    """A class that is caught neither as an Exception nor as a SystemExit."""


def stop() -> None:
    raise Stop("while it is built")


class StrExits(Exception):  # noqa: N818 - as users have them, like all below
    def __str__(self):
        sys.exit(5)


class ReduceExits(Exception):  # noqa: N818
    def __reduce__(self):
        sys.exit(6)


class LoadExits(Exception):  # noqa: N818
    def __reduce__(self):
        return sys.exit, (7,)


class LoadStops(Exception):  # noqa: N818
    def __reduce__(self):
        return stop, ()


class HiddenTraceback(Exception):  # noqa: N818
    @property
    def __traceback__(self):
        raise Stop


class HiddenCause(Exception):  # noqa: N818
    @property
    def __cause__(self):
        raise Stop


class Text(str):
    def __reduce__(self):
        raise ValueError("text of a kind that does not pickle")


class OwnText(Exception):  # noqa: N818
    def __str__(self):
        return Text("in its own words")


STRANGE = [StrExits, ReduceExits, LoadExits, LoadStops, HiddenTraceback, HiddenCause, OwnText]


class StrangeEnv(envs.CounterEnv):
    """Raises ``kind`` in what ``where`` names; a call of a method raises it, too."""

    def __init__(self, env_id, kind, where):
        self.kind, self.where = kind, where
        super().__init__(env_id)
        self._look("init")

    def _look(self, where):
        if where == self.where:
            raise self.kind  # here

    def step(self, action):
        self._look("step" if self.t == 1 else "no step")
        info = {"it": self.kind()} if self.where == "info" else {}
        return (*super().step(action)[:4], info)

    def reset(self, **kwargs):
        self._look("reset")
        return super().reset(**kwargs)

    def close(self):
        super().close()
        self._look("close")

    def method(self):
        raise self.kind  # here

    def given(self):
        return self.kind()


def with_one_strange(kind, where):
    return [functools.partial(StrangeEnv, i, kind, "" if i else where) for i in range(2)]


@in_base_and_sync
@pytest.mark.parametrize("kind", STRANGE)
class TestInAnEnv:
    def test_a_step_that_raises_it_is_that_envs_failure_alone(self, make, kind):
        together = {} if make.is_base else {"envs_per_worker": 2}
        manager = make.launched(with_one_strange(kind, "step"), on_error="reset", **together)
        pids = manager.where_pid
        within(20, step_until, manager, {0: 0, 1: 0})
        result = within(20, step_until, manager, {0: 0, 1: 0})
        error = result[0].info["err"]
        assert isinstance(error, EnvStepError) and kind.__name__ in str(error), error
        assert "raise self.kind  # here" in str(error), "the user's own line"
        assert result[1].obs.tolist() == [1, 0, 2] and result[1].info == {}
        wait_ready(manager)
        assert manager.where_pid == pids

    def test_so_is_a_reset(self, make, kind):
        manager = make(with_one_strange(kind, "reset"), max_retry=1)
        with pytest.raises(EnvResetError, match=f"(?s){kind.__name__}.*raise self.kind  # here") as caught:
            within(20, launch_all, manager)
        assert caught.value.env_id == 0

    def test_so_is_the_building_of_an_env(self, make, kind):
        manager = make(with_one_strange(kind, "init"))
        with pytest.raises(EnvInitError, match=f"(?s){kind.__name__}.*raise self.kind  # here") as caught:
            within(20, launch_all, manager)
        assert caught.value.env_id == 0

    def test_a_close_that_raises_it_is_logged(self, make, kind, caplog):
        manager = make.launched(with_one_strange(kind, "close"))
        within(20, manager.close)
        assert f"env 0 raised in close: {kind.__name__}" in caplog.text
        assert "raise self.kind  # here" in caplog.text

    def test_a_call_that_raises_it(self, make, kind):
        manager = make.launched(with_one_strange(kind, ""))
        pids = manager.where_pid
        with pytest.raises(EnvManagerError, match=f"(?s){kind.__name__}.*raise self.kind  # here"):
            within(20, manager.method[0])
        assert manager.where_pid == pids


@in_sync
class TestAsAValue:
    @pytest.mark.parametrize("kind", [ReduceExits, LoadExits, LoadStops])
    def test_a_call_that_gives_it(self, make, kind):
        manager = make.launched(with_one_strange(kind, ""), envs_per_worker=2)
        pids = manager.where_pid
        with pytest.raises(EnvManagerError, match=r"env 0: .*(cannot be sent|does not unpickle)"):
            within(20, manager.given[0])
        assert manager.where_pid == pids

    @pytest.mark.parametrize("kind", [LoadExits, LoadStops])
    def test_an_info_that_has_it(self, make, kind):
        manager = make.launched(with_one_strange(kind, "info"))
        with pytest.warns(EnvManagerWarning, match="env 0: an info does not unpickle"):
            result = within(20, step_until, manager, {0: 0, 1: 0})
        assert result[0].info == {} and result[0].obs.tolist() == [0, 0, 1]


@in_sync
def test_an_automatic_reset_that_raises_what_stops_who_builds_it_is_told_to_the_caller(make):
    """The background thread hears of it first."""
    manager = make.launched([functools.partial(LaterStrangeEnv, 0, length=1)], max_retry=1)
    within(20, manager.step, {0: 0})
    with pytest.raises(EnvResetError, match="LoadStops"):
        within(20, wait_ready, manager)


class LaterStrangeEnv(envs.CounterEnv):
    """Can be reset once."""

    def reset(self, **kwargs):
        if self.resets:
            raise LoadStops
        return super().reset(**kwargs)


@pytest.mark.parametrize("kind", STRANGE)
def test_a_failure_is_plain_whatever_it_tells_of(kind):
    try:
        raise kind
    except kind as error:
        failure, sentence = capture(error, "step"), told(error)
    assert sentence.startswith(kind.__name__)
    assert {type(failure.kind), type(failure.text), type(failure.traceback), type(failure.advice)} == {str}
    assert "raise kind" in failure.traceback and kind.__name__ in failure.traceback
    assert rebuild(failure) is None or type(rebuild(failure)) is kind
    assert not failure.mismatch and not failure.interrupted


class Pressing(Exception):  # noqa: N818
    """Is pickled, or built again, while somebody presses Ctrl-C."""

    def __reduce__(self):
        return signal.raise_signal, (signal.SIGINT,)


def test_a_ctrl_c_meanwhile_is_the_callers():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        failure = capture(Pressing(), "step")
        with pytest.raises(KeyboardInterrupt):
            rebuild(failure)
    finally:
        signal.signal(signal.SIGINT, before)
