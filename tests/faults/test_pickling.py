"""Values that do not pickle, or pickle and cannot be built again: one env's failure, in every direction."""

from __future__ import annotations

import os
import re
import signal
import threading
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

from envmgr import EnvManagerError, EnvManagerWarning, SpaceMismatchError, WorkerDied
from envmgr.workers.channel import UNREADABLE, _Frames, pack
from tests.helpers import envs
from tests.helpers.managers import (
    everywhere,
    in_base_and_sync,
    in_every_process_kind,
    in_processes,
    in_sync,
    launch_all,
    many,
    step_until,
    wait_ready,
)
from tests.helpers.sync import within


class TwoArguments(Exception):  # noqa: N818 - as users have them
    """Pickles, and cannot be built again: its constructor asks for more than ``args`` holds."""

    def __init__(self, a, b):
        super().__init__("told")


UNFIT = {
    "pickle": (threading.Lock, r"(?s)\['free'\].*does not pickle.*lock"),
    "build": (lambda: TwoArguments(1, 2), "does not unpickle"),
}


class SideEnv(envs.CounterEnv):
    """A leaf without rows, in which env 0 once has a value that cannot travel: in a reset, or at a time."""

    def __init__(self, env_id=0, what="pickle", at=2, episode=0, ends_at=None):
        super().__init__(env_id)
        free = spaces.Text(10)
        self.observation_space = spaces.Dict({"free": free, "t": spaces.Box(-9, 99, (1,), np.float32)})
        self.what, self.at, self.bad_episode, self.ends_at = what, at, episode, ends_at
        self.episodes = self.now = -1

    def _look(self):
        bad = self.env_id == 0 and (self.episodes, self.now) == (self.bad_episode, self.at)
        free = UNFIT[self.what][0]() if bad else f"t{self.now}"
        return {"free": free, "t": np.array([self.now], np.float32)}

    def reset(self, *, seed=None, options=None):
        self.episodes, self.now = self.episodes + 1, 0
        return self._look(), {}

    def step(self, action):
        self.now += 1
        return self._look(), 1.0, self.now == self.ends_at, False, {}


@pytest.mark.parametrize("what", UNFIT)
class TestObservations:
    @in_processes
    @pytest.mark.parametrize("together", [1, 2])
    def test_it_is_an_abnormal_step_of_that_env_alone(self, make, what, together):
        manager = make.launched(many(SideEnv, 2, what=what), on_error="reset", envs_per_worker=together)
        pids = manager.where_pid
        within(20, step_until, manager, {0: 0, 1: 0})
        result = within(20, step_until, manager, {0: 0, 1: 0})
        error = result[0].info["err"]
        assert isinstance(error, SpaceMismatchError) and error.env_id == 0
        assert re.search(UNFIT[what][1], str(error)), error
        assert "env 0" in str(error) and result[0].info["abnormal"]
        assert result[0].obs["t"].tolist() == [0], "no part of a step that nobody is told of"
        assert result[1].obs["free"] == "t2" and result[1].info == {}
        assert wait_ready(manager)[0]["free"] == "t0"
        result = within(20, step_until, manager, {0: 0, 1: 0})
        assert [result[i].obs["free"] for i in (0, 1)] == ["t1", "t3"]
        assert manager.where_pid == pids

    @in_sync
    def test_or_the_error_of_that_step(self, make, what):
        manager = make.launched(many(SideEnv, 2, what=what), envs_per_worker=2)
        manager.step({0: 0, 1: 0})
        with pytest.raises(SpaceMismatchError, match=UNFIT[what][1]) as caught:
            within(20, manager.step, {0: 0, 1: 0})
        assert caught.value.env_id == 0

    @in_sync
    def test_in_a_reset_it_is_the_error_of_that_reset(self, make, what):
        manager = make(many(SideEnv, 2, what=what, at=0), max_retry=5)
        with pytest.raises(SpaceMismatchError, match=UNFIT[what][1]) as caught:
            within(20, manager.launch)
        assert caught.value.env_id == 0

    @in_sync
    @pytest.mark.parametrize("at", ["the last one", "the first one"])
    def test_at_the_end_of_an_episode_of_the_array_face(self, make, what, at):
        bad = {"the last one": {"episode": 0, "at": 2}, "the first one": {"episode": 1, "at": 0}}[at]
        manager = make(many(SideEnv, 2, what=what, ends_at=2, **bad), on_error="reset", envs_per_worker=2)
        manager.launch()
        manager.reset_arrays()
        actions = np.zeros(2, np.int64)
        manager.step_arrays(actions)
        out = within(20, manager.step_arrays, actions)
        assert out.terminated.tolist() == [False, True] and out.truncated.tolist() == [True, False]
        assert re.search(UNFIT[what][1], str(out.info[0]["err"])), out.info
        assert out.final_obs[0]["t"].tolist() == [0]
        assert list(out.obs["free"]) == ["t0", "t0"]
        out = within(20, manager.step_arrays, actions)
        assert list(out.obs["free"]) == ["t1", "t1"] and out.info == {}


class CalledEnv(envs.FreeFormEnv):
    """With methods to call."""

    def step_of(self, value):
        self.steps += 1

    def unfit(self):
        return TwoArguments(1, 2)


class TestWhatIsSent:
    @in_sync
    def test_an_action_that_cannot_be_built_in_the_worker(self, make):
        manager = make.launched(many(envs.FreeFormEnv, 2), on_error="reset", envs_per_worker=2)
        result = within(20, manager.step, {0: TwoArguments(1, 2), 1: b"b"})
        error = result[0].info["err"]
        assert isinstance(error, SpaceMismatchError) and error.env_id == 0
        assert "does not unpickle in its worker (TypeError" in str(error)
        assert result[1].obs["got"] == b"b"
        wait_ready(manager)
        result = within(20, manager.step, {0: b"a", 1: b"b"})
        assert [result[i].obs["got"] for i in (0, 1)] == [b"a", b"b"]
        assert manager.steps == [1, 2]

    @in_sync
    def test_reset_params(self, make):
        manager = make.launched(many(envs.CounterEnv, 2), max_retry=3, envs_per_worker=2)
        with pytest.raises(
            SpaceMismatchError, match=r"does not unpickle in its worker \(TypeError"
        ) as caught:
            within(20, manager.reset, {0: {"options": {"a": TwoArguments(1, 2)}}})
        assert caught.value.env_id == 0

    @in_sync
    def test_arguments_of_a_call_and_its_answer(self, make):
        manager = make.launched(many(CalledEnv, 2), envs_per_worker=2)
        pattern = r"(?s)env 1.*do not unpickle in its worker \(TypeError"
        with pytest.raises(EnvManagerError, match=pattern):
            within(20, manager.step_of[1], TwoArguments(1, 2))
        with pytest.raises(EnvManagerError, match=r"(?s)env 0.*does not unpickle in the caller") as caught:
            within(20, manager.unfit[0])
        assert isinstance(caught.value.__cause__, TypeError)
        assert manager.steps == [0, 0]


class InfoOnceEnv(envs.CounterEnv):
    """Env 0 has an info that cannot be built again, in step ``at`` or in every reset; ``size`` more bytes."""

    def __init__(self, env_id=0, at=2, size=0):
        super().__init__(env_id)
        self.at, self.size = at, size

    def _bad(self, now):
        bad = self.env_id == 0 and now == self.at
        return {"err": TwoArguments(1, 2), "more": bytes(self.size)} if bad else {"t": self.t}

    def reset(self, *, seed=None, options=None):
        return super().reset()[0], self._bad(0)

    def step(self, action):
        return (*super().step(action)[:4], self._bad(self.t))


@in_base_and_sync
@pytest.mark.parametrize("info_errors", ["drop", "raise"])
class TestInfos:
    @pytest.mark.parametrize("size", [0, 50_000])
    def test_it_is_empty_and_told_of_once(self, make, size, info_errors):
        manager = make.launched(many(InfoOnceEnv, 2, size=size), info_errors=info_errors)
        manager.step({0: 0, 1: 0})
        with pytest.warns(EnvManagerWarning, match=r"env 0: an info does not unpickle \(TypeError"):
            result = within(20, manager.step, {0: 0, 1: 0})
        assert result[0].info == {} and result[0].obs.tolist() == [0, 0, 2]
        assert result[1].info == {"t": 2}
        assert within(20, manager.step, {0: 0, 1: 0})[0].info == {"t": 3}
        manager.reset()
        wait_ready(manager)
        manager.step({0: 0, 1: 0})
        assert within(20, manager.step, {0: 0, 1: 0})[0].info == {}, "no warning: it has been told"

    def test_of_the_array_face(self, make, info_errors):
        manager = make.launched(many(InfoOnceEnv, 2), info_errors=info_errors)
        manager.reset_arrays()
        actions = np.zeros(2, np.int64)
        manager.step_arrays(actions)
        with pytest.warns(EnvManagerWarning, match="env 0: an info does not unpickle"):
            out = within(20, manager.step_arrays, actions)
        assert out.info == {1: {"t": 2}}, "what is left of a dropped info is empty, as if there had been none"
        assert within(20, manager.step_arrays, actions).info[0] == {"t": 3}

    def test_of_a_reset(self, make, info_errors):
        manager = make(many(InfoOnceEnv, 2, at=0), info_errors=info_errors)
        with pytest.warns(EnvManagerWarning, match="env 0: an info does not unpickle"):
            within(20, launch_all, manager)
        assert within(20, manager.step, {0: 0, 1: 0})[0].info == {"t": 1}


class Ends:
    """Whoever pickles it is gone."""

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)


class BadInfoEnv(envs.CounterEnv):
    """Env 0 has an info in its third step that does not pickle, or that ends who pickles it."""

    def __init__(self, env_id=0, ends=False):
        super().__init__(env_id)
        self.bad = Ends if ends else threading.Lock

    def step(self, action):
        info = {"bad": self.bad()} if self.env_id == 0 and self.t == 2 else {}
        return (*super().step(action)[:4], info)


def rows(out):
    """The observations by env."""
    return dict(zip(out.env_id.tolist(), out.obs.tolist(), strict=True))


@pytest.mark.case("O08")
@pytest.mark.parametrize("face", ["dict", "array"])
class TestStepsThatFailByTheirInfo:
    """The observation of a step that has failed is told to nobody: the last good one stands."""

    def abnormal(self, manager, face):
        """The observation of env 0's third step, and its error."""
        if face == "dict":
            for t in (1, 2):
                assert step_until(manager, {0: 0, 1: 0})[0].obs.tolist() == [0, 0, t]
            result = within(20, step_until, manager, {0: 0, 1: 0})
            good, bad = result[1].obs, result[0].obs
            assert result[0].info["abnormal"] is True
            error = result[0].info["err"]
        else:
            manager.reset_arrays()
            for t in (1, 2):
                assert rows(manager.step_arrays([0, 0]))[0] == [0, 0, t]
            out = within(20, manager.step_arrays, [0, 0])
            good, bad = np.array(rows(out)[1]), out.final_obs[0]
            assert out.info[0]["abnormal"] is True and rows(out)[0][2] == 0
            error = out.info[0]["err"]
        assert good.tolist() == [1, 0, 3]
        return bad.tolist(), error

    @pytest.mark.parametrize("shared_memory", [True, False])
    @everywhere
    def test_because_it_does_not_pickle(self, make, face, shared_memory):
        manager = make(
            many(BadInfoEnv, 2), on_error="reset", info_errors="raise", shared_memory=shared_memory
        )
        manager.launch()
        wait_ready(manager)
        bad, error = self.abnormal(manager, face)
        assert bad == [0, 0, 2] and isinstance(error, SpaceMismatchError)

    @in_every_process_kind
    def test_because_its_worker_is_gone_while_it_is_pickled(self, make, face):
        manager = make.launched(many(partial(BadInfoEnv, ends=True), 2), on_error="reset")
        bad, error = self.abnormal(manager, face)
        assert isinstance(error, WorkerDied) and error.env_id == 0
        assert bad == [0, 0, 2]


def test_a_frame_that_cannot_be_read_does_not_keep_the_next_one():
    frames = _Frames()
    data = [pack(TwoArguments(1, 2)), pack(("hello", 1))]
    frames.feed(b"".join(len(d).to_bytes(8, "little") + d for d in data))
    first, second = frames.messages
    assert first[0] == UNREADABLE and "TypeError" in first[1] and second == ("hello", 1)


@pytest.mark.case("O21")
@pytest.mark.filterwarnings("error::envmgr.EnvManagerWarning")
class TestWarningsThatAreErrors:
    """The results of the call that a warning has broken off are handed over by the next."""

    FNS = (partial(envs.InfoEnv, 0, make_info=envs.info_with_lambda), partial(envs.CounterEnv, 1, length=1))

    def test_no_timestep_is_lost(self, make):
        manager = make.launched(self.FNS)
        with pytest.raises(EnvManagerWarning, match="does not pickle"):
            step_until(manager, {0: 0, 1: 0})
        got = step_until(manager, {}, {0, 1})
        assert got[0].obs.tolist() == [0, 0, 1] and got[1].obs.tolist() == [1, 0, 1] and got[1].done

    def test_no_row_is_lost(self, make):
        manager = make(self.FNS)
        manager.launch()
        manager.reset_arrays()
        manager.send([0, 0])
        with pytest.raises(EnvManagerWarning, match="does not pickle"):
            manager.recv()
        got = manager.recv()
        assert rows(got) == {0: [0, 0, 1], 1: [1, 1, 0]} and got.final_obs[1].tolist() == [1, 0, 1]
