"""Attributes and methods of an env through its wrappers, rendering, replays, closing."""

import sys
import types

import gymnasium
import numpy as np
import pytest

from envmgr.envs import toy
from envmgr.envs.adapt import adapt
from envmgr.errors import EnvManagerError


class Rich(toy.CounterEnv):
    """Attributes of every sort."""

    level = 1

    def __init__(self):
        super().__init__(4)
        self.paint = "inner"
        self._private = 7
        self.closed = 0

    @property
    def broken(self):
        return self.not_there

    @property
    def fixed(self):
        return 5

    def double(self, x, *, plus=0):
        return 2 * x + plus

    def reward_shaping(self, transitions):
        return [t + 1 for t in transitions]

    def close(self):
        self.closed += 1


class Paint(gymnasium.Wrapper):
    """A wrapper that shadows an attribute of the env."""

    def __init__(self, env):
        super().__init__(env)
        self.paint = "outer"
        self.only_here = 1


def wrapped():
    env = Rich()
    return env, adapt(Paint(gymnasium.wrappers.TimeLimit(env, 100)))


def test_reading_takes_the_outermost_that_has_it():
    _, adapted = wrapped()
    assert adapted.get("paint") == "outer"
    assert adapted.get("only_here") == 1
    assert adapted.get("_private") == 7  # wrappers of Gymnasium do not forward it
    assert adapted.get("env_id") == 4
    assert adapted.get("fixed") == 5


def test_writing_goes_to_the_env(tmp_path):
    """A03."""
    env, adapted = wrapped()
    for name in ("paint", "env_id", "level", "brand_new", "_private"):
        adapted.set(name, "set")
        assert getattr(env, name) == "set"
        assert name == "paint" or name not in vars(adapted.env)
    assert adapted.get("brand_new") == "set"
    assert Rich.level == 1
    adapted.set("only_here", 2)
    assert adapted.env.only_here == 2 and "only_here" not in vars(env)


def test_missing_and_broken_attributes():
    _, adapted = wrapped()
    with pytest.raises(AttributeError, match=r"Paint > TimeLimit > Rich has no attribute 'nothing'"):
        adapted.get("nothing")
    with pytest.raises(
        AttributeError, match="not_there"
    ):  # the property's own error, not "no attribute 'broken'"
        adapted.get("broken")
    with pytest.raises(AttributeError):
        adapted.set("fixed", 3)


def test_calls():
    _, adapted = wrapped()
    assert adapted.call("double", 3, plus=1) == 7
    assert adapted.call("reward_shaping", [1, 2]) == [2, 3]
    with pytest.raises(TypeError, match=r"'level' of Paint is a int, not a method"):
        adapted.call("level")
    with pytest.raises(AttributeError, match="nothing"):
        adapted.call("nothing")


def test_gym_026_wrappers():
    import gym

    env = gym.make("CartPole-v1", disable_env_checker=True)
    adapted = adapt(env)
    adapted.set("gravity", 3.5)
    assert env.unwrapped.gravity == 3.5 and "gravity" not in vars(env)
    assert adapted.get("gravity") == 3.5
    adapted.set("_secret", 1)
    assert adapted.get("_secret") == 1  # gym's wrappers refuse to forward private names
    adapted.close()


def test_close_reaches_the_env_once():
    env, adapted = wrapped()
    adapted.close()
    assert env.closed == 1


def test_a_wrapper_that_holds_itself_or_something_else_is_no_trap():
    class Odd(toy.CounterEnv):
        def __init__(self, held):
            super().__init__()
            self.env = self if held == "self" else held

    for held in ("self", "CartPole-v1", None, 3, toy.CounterEnv):
        adapted = adapt(Odd(held))
        assert adapted.get("env_id") == 0
        with pytest.raises(AttributeError):
            adapted.get("nothing")


def test_render():
    env = gymnasium.make("FrozenLake-v1", render_mode="ansi")
    adapted = adapt(env)
    adapted.reset(seed=0)
    assert "S" in adapted.call("render")

    class OldRender(toy.OldGymCounterEnv):
        def render(self, mode="human"):
            return mode

    class DiRender(toy.TimestepCounterEnv):
        def render(self, render_mode="human"):
            return render_mode

    for make in (OldRender, DiRender):
        assert adapt(make()).call("render") == "rgb_array"
        assert adapt(make()).call("render", "ansi") == "ansi"
    with pytest.raises(AttributeError, match="render"):
        adapt(toy.OldGymCounterEnv()).call("render")


def test_random_action():
    adapted = adapt(toy.CounterEnv())
    assert adapted.call("random_action") in (0, 1)

    class Own(toy.CounterEnv):
        def random_action(self):
            return 77

    assert adapt(Own()).call("random_action") == 77


# -- replays ------------------------------------------------------------------------------------------


def test_an_env_with_its_own_replay(tmp_path):
    class Own(toy.TimestepCounterEnv):
        def enable_save_replay(self, replay_path):
            self.path = replay_path

    env = Own()
    adapted = adapt(env)
    adapted.call("enable_save_replay", tmp_path)
    assert env.path == tmp_path and adapted.env is env


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (toy.TimestepCounterEnv, "TimestepCounterEnv has no enable_save_replay"),
        (toy.CounterEnv, "render_mode='rgb_array'"),
        (lambda: gymnasium.make("CartPole-v1"), "CartPoleEnv has render_mode=None"),
    ],
)
def test_an_env_that_cannot_be_recorded_says_why_and_goes_on(make, words, tmp_path):
    """O23."""
    adapted = adapt(make())
    with pytest.raises(EnvManagerError, match=words):
        adapted.call("enable_save_replay", tmp_path)
    adapted.reset(seed=0)
    assert len(adapted.step(0)) == 5


class Rendering(toy.CounterEnv):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium has it
    render_mode = "rgb_array"
    frames = 0

    def render(self):
        self.frames += 1
        return np.zeros((4, 4, 3), np.uint8)


def test_without_the_video_package_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "moviepy", None)
    with pytest.raises(EnvManagerError, match=r"cannot be recorded.*[mM]ovie[pP]y"):
        adapt(Rendering()).call("enable_save_replay", tmp_path / "videos")


def test_gymnasium_envs_are_recorded_by_gymnasiums_recorder(monkeypatch, tmp_path):
    """With a stand-in for moviepy, which writes one line a video."""

    class Clip:
        def __init__(self, frames, fps):
            self.text = f"{len(frames)} frames at {fps}"

        def write_videofile(self, path, **kwargs):
            with open(path, "w") as file:
                file.write(self.text)

    clips = types.ModuleType("moviepy.video.io.ImageSequenceClip")
    clips.ImageSequenceClip = Clip
    for name in ("moviepy", "moviepy.video", "moviepy.video.io"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "moviepy.video.io.ImageSequenceClip", clips)

    envs = [Rendering(), Rendering()]
    adapted = [adapt(env) for env in envs]
    told = []
    for one in adapted:
        one.reset()
        one.step_fn()(0)
        one.on_settled = lambda: told.append(1)
        one.call("enable_save_replay", tmp_path)
        assert len(told) == 1
        for _ in range(2):
            one.reset()
            for _ in range(10):
                one.step_fn()(0)
        assert one.step == one.env.step
        one.close()
        told.clear()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 4  # two envs, two episodes, one folder
    assert {file.read_text() for file in files} == {"11 frames at 10"}
