"""``envmgr check`` on envs that break their word in one way each: it names the fault, and the line."""

import functools
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from envmgr.cli.app import app
from envmgr.cli.checking.layouts import Cost
from envmgr.testing import check_env
from envmgr.testing.env_check import Level

ROOT = Path(__file__).parents[2]

ENVS = '''
"""Each env here has one fault; the line with `# here` is where it is."""

import functools
import os
import signal
import threading
import time

import gymnasium
import numpy as np
from gymnasium import spaces

if "IMPORTED_BY" in os.environ:
    with open(os.environ["IMPORTED_BY"], "a") as file:
        print(os.getpid(), file=file)


class Good(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def draw(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.draw(), {}

    def step(self, action):
        self.t += 1
        return self.draw(), 1.0, self.t == 20, False, {}


class WrongShape(Good):
    def draw(self):
        return np.zeros((3, 1), np.float32)


class WrongDtype(Good):
    observation_space = spaces.Box(0, 255, (3,), np.uint8)


class Rounded(Good):
    def draw(self):
        return super().draw().astype(np.float64)


class NotReproducible(Good):
    def draw(self):
        return np.random.default_rng().uniform(-1, 1, 3).astype(np.float32)


class GlobalNumpy(Good):
    def draw(self):
        return np.random.uniform(-1, 1, 3).astype(np.float32)


class ReusesBuffer(Good):
    buffer = np.zeros(3, np.float32)

    def draw(self):
        self.buffer[:] = super().draw()
        return self.buffer


class IntegerRewards(Good):
    reward_space = spaces.Box(-10, 10, (), np.int64)

    def step(self, action):
        obs, _, terminated, truncated, info = super().step(action)
        return obs, 0.5, terminated, truncated, info


class ReusesInfo(Good):
    def __init__(self):
        self.pos = np.zeros(2)

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        self.pos += 1
        return obs, reward, terminated, truncated, {"pos": self.pos}


class UnpicklableInfo(Good):
    def step(self, action):
        return *super().step(action)[:4], {"debug": {"lock": threading.Lock()}}


class Exits(Good):
    def step(self, action):
        if self.t == 12:
            os._exit(7)  # here
        return super().step(action)


class IsKilled(Good):
    def step(self, action):
        if self.t == 12:
            os.kill(os.getpid(), signal.SIGKILL)  # here
        return super().step(action)


class Hangs(Good):
    def step(self, action):
        if self.t == 12:
            time.sleep(1000)  # here
        return super().step(action)


class HangsInBuild(Good):
    def __init__(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            try:
                time.sleep(1000)  # here
            except BaseException:
                pass


class ResetsOnce(Good):
    used = False

    def reset(self, **kwargs):
        if self.used:
            raise RuntimeError("the simulator was started already")  # here
        self.used = True
        return super().reset(**kwargs)


class RaisesInStep(Good):
    def step(self, action):
        if self.t == 12:
            raise SystemExit("the simulator is gone")  # here
        return super().step(action)


class StrangeEnds(Good):
    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, "no", info


class StrangeDone(Good):
    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        return obs, reward, "no", info


class ThreeValues(Good):
    def step(self, action):
        return super().step(action)[:3]


def returns_nothing():
    Good()


with_a_lock = functools.partial(lambda lock: Good(), threading.Lock())
'''


@pytest.fixture(autouse=True)
def _steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a step, which takes a while to measure, is given."""
    cost = Cost(base=1e-6, few=10e-6, each=30e-6, envs=8, cores=2)
    monkeypatch.setattr("envmgr.cli.checking.run.cost_of_a_step", lambda obs_bytes: cost)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "faulty_envs.py").write_text(ENVS)
    return tmp_path


def check(here: Path, name: str, *options: Any) -> tuple[Result, dict[str, Any]]:
    """Runs the command; gives its output, and the report that it wrote."""
    file = here / "report.json"
    args = ["check", f"{here}/faulty_envs.py:{name}", "--steps", 40, "--json", file, *options]
    result = CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)
    return result, json.loads(file.read_text())


def the_line(name: str) -> str:
    """The marked line of an env."""
    lines = ENVS.splitlines()
    start = lines.index(f"class {name}(Good):")
    number = next(n for n in range(start, len(lines)) if "# here" in lines[n]) + 1
    return f"faulty_envs.py:{number} in "


FAULTS = [
    ("WrongShape", "spaces", "error", "expected shape (3,) and dtype float32, got shape (3, 1)"),
    (
        "WrongDtype",
        "dtypes",
        "error",
        "expected shape (3,) and dtype uint8, got shape (3,) and dtype float32",
    ),
    ("Rounded", "dtypes", "warning", "float64 goes into a space of float32"),
    ("NotReproducible", "seeds", "error", "the same seed twice gives two trajectories"),
    ("GlobalNumpy", "global generators", "warning", "numpy.random: the global generator is used in"),
    ("ReusesBuffer", "buffers", "warning", "the array that reset 1 returned was written to by step 1"),
    (
        "ReusesInfo",
        "buffers",
        "warning",
        "info['pos']: the env reuses its buffer: the array that step 1 returned",
    ),
    (
        "IntegerRewards",
        "values",
        "error",
        "the reward does not fit its reward_space: reward: expected shape ()",
    ),
    ("UnpicklableInfo", "infos", "warning", "info['debug']['lock'] does not pickle"),
    ("StrangeEnds", "values", "error", "an end that is no truth value: truncated is str 'no' in step 1"),
    ("StrangeDone", "values", "error", "done: expected one truth value, got str 'no'"),
    ("ThreeValues", "steps", "error", "step 1 raised EnvStepError: ThreeValues.step() returned a tuple of 3"),
    ("returns_nothing", "build", "error", "the env_fn returned None"),
    (
        "with_a_lock",
        "factory",
        "error",
        "the factory does not pickle: TypeError: cannot pickle '_thread.lock'",
    ),
]


@pytest.mark.parametrize(("name", "where", "level", "words"), FAULTS)
def test_a_fault_is_named(here: Path, name: str, where: str, level: str, words: str) -> None:
    result, report = check(here, name)
    assert result.exit_code == (1 if level == "error" else 0), result.output
    (found,) = [one for one in report["checks"] if one["level"] == level and one["check"] == where]
    assert words in found["what"]
    assert found["do"]
    errors = [one for one in report["checks"] if one["level"] == "error"]
    assert errors == ([found] if level == "error" else [])
    assert re.sub(r"\s+", "", words) in re.sub(r"\s+", "", result.output)


FAILURES = [
    ("Exits", "steps", "the process ended with exit code 7 in step 13"),
    ("IsKilled", "steps", "the process was killed by SIGKILL in step 13"),
    ("Hangs", "steps", "step 13 did not come back within 2 s"),
    ("HangsInBuild", "build", "building the env did not come back within 2 s"),
    ("ResetsOnce", "resets", "only the first reset works: reset 2 raised RuntimeError: the simulator was"),
    ("RaisesInStep", "steps", "step 13 raised SystemExit: the simulator is gone"),
]


@pytest.mark.parametrize(("name", "where", "words"), FAILURES)
def test_a_call_that_fails_is_named_with_the_users_line(
    here: Path, name: str, where: str, words: str
) -> None:
    limit = 2 if "Hangs" in name else 20
    result, report = check(here, name, "--timeout", limit)
    assert result.exit_code == 1, result.output
    (error,) = [one for one in report["checks"] if one["level"] == "error"]
    assert error["check"] == where
    assert words in error["what"]
    assert the_line(name) in error["place"]
    assert the_line(name).replace(" ", "") in re.sub(r"\s+", "", result.output)


@pytest.mark.parametrize("name", ["Good", "CartPole"])
def test_a_good_env_gives_no_false_alarm(here: Path, name: str) -> None:
    """A whole program, with nothing given; it builds no env itself."""
    target = "gymnasium:CartPole-v1" if name == "CartPole" else "faulty_envs:Good"
    program = subprocess.Popen(
        [sys.executable, "-m", "envmgr", "check", target, "--json", "report.json"],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(ROOT), "IMPORTED_BY": str(here / "pids"), "COLUMNS": "300"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = program.communicate(timeout=50)
    assert program.returncode == 0, out + err
    assert not err
    report = json.loads((here / "report.json").read_text())
    assert {one["level"] for one in report["checks"]} == {"ok"}
    assert "this env keeps its word" in out
    assert re.search(r"(in-process is|processes are) .*: a step takes .* one through a worker costs", out)
    assert report["config"]["type"] in ("base", "subprocess", "async_subprocess")
    if name == "Good":
        (imported_by,) = (here / "pids").read_text().splitlines()
        assert int(imported_by) != program.pid


@pytest.mark.parametrize("target", ["nomodule:make", "nothing.py:make", "gymnasium:None-v1", "CartPole-v1"])
def test_an_env_that_does_not_exist_is_a_usage_error(target: str) -> None:
    result = CliRunner().invoke(app, ["check", target])
    assert result.exit_code == 2
    assert result.output.startswith("error: ")
    assert "Traceback" not in result.output


def test_a_wrong_option_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["check", "gymnasium:CartPole-v1", "--steps", "0"]).exit_code == 2


class Spaceless:
    def reset(self) -> Any:
        return 0

    def step(self, action: Any) -> Any:
        raise AssertionError("nobody knows an action")


def test_an_env_without_spaces_is_reset_but_not_stepped() -> None:
    report = check_env(Spaceless, steps=20)
    assert report.ok, str(report)
    assert [finding.check for finding in report.findings] == ["spaces", "spaces"]
    levels = {check.check: check.level for check in report.checks}
    assert (levels["resets"], levels["steps"], levels["close"]) == (Level.OK, Level.SKIPPED, Level.OK)


def test_an_env_fn_that_no_spawned_worker_can_have() -> None:
    lock = threading.Lock()
    report = check_env(functools.partial(lambda held: Spaceless(), lock), steps=20, context="spawn")
    (error,) = report.errors
    assert error.check == "factory"
    assert "cannot pickle '_thread.lock'" in error.what


def test_check_env_in_a_test_of_ones_own() -> None:
    from envmgr.envs.toy import OldGymCounterEnv, TimestepCounterEnv

    report = check_env(TimestepCounterEnv, steps=20)
    assert report.ok, str(report)
    assert report.facts.style == "timestep"
    (warning,) = [finding for finding in report.findings if finding.level is Level.WARNING]
    assert "something lives on over resets" in warning.what  # it counts its episodes
    assert check_env(OldGymCounterEnv, steps=20, measure=False).config == {}
