"""``envmgr run`` as users call it: a process of its own, real managers, real envs."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.helpers.sync import wait_until

ROOT = Path(__file__).parents[2]

USER_MODULE = '''
"""What a user has beside a config: an env that fails when told, and a policy that says when it was called."""

import os
from pathlib import Path

from envmgr.envs.toy import CounterEnv

HERE = Path(__file__).parent


class Failing(CounterEnv):
    def step(self, action):
        if self.episode == 1:
            raise ValueError("the simulator is gone")  # the user's own line
        return super().step(action)


def policy(action_space, observation_space, seed):
    calls = 0

    def act(env_ids, obs):
        nonlocal calls
        calls += 1
        if calls == 60:
            (HERE / "sixty").touch()
        return [0] * len(env_ids)

    return act
'''


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text(USER_MODULE)
    return tmp_path


def command(here: Path, *args: Any) -> dict[str, Any]:
    return dict(
        args=[sys.executable, "-m", "envmgr", *map(str, args)],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        text=True,
    )


def run(here: Path, *args: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        **command(here, "run", *args),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=55,
        check=False,
    )


def config(here: Path, text: str) -> Path:
    path = here / "trial.yaml"
    path.write_text(textwrap.dedent(text))
    return path


def rollouts(here: Path, name: str = "trial") -> dict[str, Any]:
    with np.load(here / "runs" / name / "rollouts.npz") as arrays:
        return dict(arrays)


def summary(here: Path) -> dict[str, Any]:
    numbers: dict[str, Any] = json.loads((here / "runs" / "trial" / "summary.json").read_text())
    return numbers


CARTPOLE = """
    env: {id: CartPole-v1, env_num: 3, manager: {type: base, wait_num: 1, step_wait_timeout: 0}}
    collect: {n_episode: 7, seed: 5, policy: cartpole}
"""


def test_a_seeded_run_plays_the_same_episodes_whatever_the_manager(here: Path) -> None:
    path = config(here, CARTPOLE)
    found = {}
    for kind in ("base", "async_subprocess"):
        result = run(here, path, "--type", kind)
        assert result.returncode == 0, result.stdout
        found[kind] = rollouts(here)
    base = found["base"]
    assert base["episode_length"].tolist() == np.bincount(base["episode_id"]).tolist()
    assert base["episode_env_id"].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert found["async_subprocess"].keys() == base.keys()
    for name, array in found["async_subprocess"].items():
        np.testing.assert_array_equal(array, base[name], err_msg=name)


def test_the_first_config_of_the_repo(here: Path) -> None:
    result = run(here, ROOT / "configs" / "cartpole_async.py", "--episodes", 10)
    assert result.returncode == 0, result.stdout
    assert "10 episodes of CartPole-v1, 8 envs in async_subprocess" in result.stdout
    directory = here / "runs" / "cartpole_async"
    assert sorted(path.name for path in directory.iterdir()) == ["report.png", "rollouts.npz", "summary.json"]
    for path in directory.iterdir():
        assert str(path.relative_to(here)) in result.stdout


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers_find_the_module_beside_the_config(here: Path, context: str) -> None:
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    path = config(
        here,
        f"""
        env:
          factory: beside:CounterEnv
          env_num: 2
          kwargs: {{length: 3}}
          manager: {{type: subprocess, context: {context}}}
        collect: {{n_episode: 4, policy: beside:policy, out_dir: "{here}/runs"}}
        """,
    )
    result = run(elsewhere, path)
    assert result.returncode == 0, result.stdout
    assert summary(here)["steps"] == 12


def test_an_env_that_raises_is_one_message_with_the_user_s_line(here: Path) -> None:
    path = config(
        here,
        """
        env: {factory: "beside:Failing", env_num: 2, kwargs: {length: 3}, manager: {type: subprocess}}
        collect: {n_episode: 8}
        """,
    )
    result = run(here, path)
    assert result.returncode == 1
    assert "error: " in result.stdout
    assert "the simulator is gone" in result.stdout
    assert "# the user's own line" in result.stdout
    assert "envmgr/cli" not in result.stdout
    assert summary(here)["outcome"] == "failed"
    assert summary(here)["episodes"] == 2
    debug = run(here, path, "--debug")
    assert debug.returncode == 1
    assert "envmgr/cli" in debug.stdout


def test_an_env_that_does_not_exist(here: Path) -> None:
    result = run(here, config(here, "env: {id: NoSuchEnv-v0, env_num: 2, manager: {type: subprocess}}"))
    assert result.returncode == 1
    assert "NoSuchEnv" in result.stdout
    assert "envmgr/cli" not in result.stdout.replace("envmgr/cli/env_factory.py", "")
    assert not (here / "runs").exists()


@pytest.fixture
def endless(here: Path) -> Iterator["subprocess.Popen[str]"]:
    """A run that would take for ever, in a process group of its own; steps are being collected."""
    path = config(
        here,
        """
        env:
          factory: envmgr.envs.toy:CounterEnv
          env_num: 3
          manager: {type: async_subprocess, wait_num: 1, step_wait_timeout: 0}
        collect: {n_episode: 1000000000, policy: "beside:policy"}
        """,
    )
    started = command(here, "run", path)
    process = subprocess.Popen(
        **started,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        # Tests that run in a background job ignore it, and what they start would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        wait_until(lambda: (here / "sixty").exists() or process.poll() is not None, "60 calls of the policy")
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_saves_and_ends(
    here: Path, endless: "subprocess.Popen[str]", number: int, code: int
) -> None:
    workers = psutil.Process(endless.pid).children(recursive=True)
    assert len(workers) >= 3
    if number == signal.SIGINT:
        os.killpg(endless.pid, number)  # as a terminal does it: to all of them
    else:
        os.kill(endless.pid, number)
    output, _ = endless.communicate(timeout=40)
    assert endless.returncode == code, output
    assert "Interrupted." in output
    assert "Traceback" not in output
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive
    assert summary(here)["outcome"] == "interrupted"
    saved = rollouts(here)
    assert len(saved["episode_length"]) == summary(here)["episodes"] > 0
    assert saved["episode_length"].sum() == summary(here)["steps"] - summary(here)["steps_unfinished"]
    assert (here / "runs" / "trial" / "report.png").exists()
