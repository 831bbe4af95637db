"""The commands themselves, run in this process on a manager without processes."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import envmgr
from envmgr.cli.app import app
from envmgr.cli.plan import Options
from envmgr.cli.run import run
from envmgr.cli.screens import Bar, Lines
from envmgr.errors import EnvStepError
from envmgr.registry import ENV_MANAGER_REGISTRY
from tests.helpers.fake_manager import FakeManager
from tests.helpers.pictures import draw_nothing


@pytest.fixture(scope="module", autouse=True)
def _fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Matplotlib opens its fonts once, and keeps them open for the life of the process: not a leak."""
    draw_nothing(tmp_path_factory.mktemp("fonts") / "nothing.png")


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(FakeManager, "made", [])
    monkeypatch.setitem(ENV_MANAGER_REGISTRY._entries, "fake", FakeManager)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "trial.yaml"
    path.write_text(
        "env: {id: CartPole-v1, env_num: 3, manager: {type: fake}}\n"
        f"collect: {{n_episode: 7, seed: 3, out_dir: '{tmp_path}/runs'}}\n"
    )
    return path


def call(*args: Any) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)


def test_run_leaves_a_report(config: Path, tmp_path: Path) -> None:
    result = call("run", config)
    assert result.exit_code == 0, result.output
    assert "7 episodes of CartPole-v1, 3 envs in fake" in result.output
    summary = json.loads((tmp_path / "runs/trial/summary.json").read_text())
    assert summary["episodes"] == summary["episodes_wanted"] == 7
    assert summary["outcome"] == "complete"
    for name in ("summary.json", "rollouts.npz", "report.png"):
        assert str(tmp_path / "runs/trial" / name) in result.output
    with np.load(tmp_path / "runs/trial/rollouts.npz") as arrays:
        assert arrays["episode_env_id"].tolist() == [0, 0, 0, 1, 1, 2, 2]
    (manager,) = FakeManager.made
    assert manager.closed
    assert manager.seeded == 3


def test_options_go_before_the_config(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "elsewhere"
    result = call("run", config, "--episodes", 2, "--env-num", 1, "--seed", 9, "--out", out, "--no-progress")
    assert result.exit_code == 0, result.output
    assert json.loads((out / "trial/summary.json").read_text())["episodes"] == 2
    assert FakeManager.made[0].seeded == 9


def test_an_error_is_one_message(config: Path) -> None:
    result = call("run", config, "--type", "fak")
    assert result.exit_code == 1
    assert result.output.startswith("error: unknown env manager 'fak'; did you mean 'fake'?")
    assert "Traceback" not in result.output
    assert call("run", config.with_name("trail.yaml")).exit_code == 1


def test_debug_shows_the_traceback(config: Path) -> None:
    with pytest.raises(envmgr.ConfigError):
        call("run", config, "--type", "fak", "--debug")


def failing_after(steps: int, error: BaseException) -> Any:
    """A manager class whose step raises."""

    class Failing(FakeManager):
        def step(self, actions: Any) -> Any:
            if self.steps >= steps:
                raise error
            return super().step(actions)

    return Failing


def test_what_was_collected_before_an_error_is_saved(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = EnvStepError("env 1 raised in step", env_id=1, child_traceback="  the user's line")
    monkeypatch.setitem(ENV_MANAGER_REGISTRY._entries, "fake", failing_after(12, error))
    result = call("run", config)
    assert result.exit_code == 1
    assert "error: env 1 raised in step" in result.output
    assert "the user's line" in result.output
    summary = json.loads((tmp_path / "runs/trial/summary.json").read_text())
    assert summary["outcome"] == "failed"
    assert summary["error"].startswith("env 1 raised")
    assert 0 < summary["episodes"] < 7
    assert FakeManager.made[0].closed


@pytest.mark.parametrize("steps", [0, 12])
def test_ctrl_c(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    monkeypatch.setitem(ENV_MANAGER_REGISTRY._entries, "fake", failing_after(steps, KeyboardInterrupt()))
    result = call("run", config)
    assert result.exit_code == 130
    assert "Interrupted" in result.output
    assert "Traceback" not in result.output
    assert FakeManager.made[0].closed
    assert (tmp_path / "runs/trial/summary.json").exists() == bool(steps)
    if steps:
        summary = json.loads((tmp_path / "runs/trial/summary.json").read_text())
        assert summary["outcome"] == "interrupted"
        assert summary["episodes"] + summary["steps_unfinished"] > 0


def test_a_bar_on_a_terminal(config: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    assert run(str(config), Options(), console) == 0
    assert "7/7" in out.getvalue()
    assert "steps/s" in out.getvalue()


def test_a_bar_has_room_in_a_narrow_terminal() -> None:
    from envmgr.cli.collecting import Collection

    out = io.StringIO()
    bar = Bar(Console(file=out, force_terminal=True, width=80), "a_name_of_some_length", 12_000)
    with bar:
        bar(Collection([5]))
    drawn = out.getvalue()
    assert max(line.count("\N{BOX DRAWINGS HEAVY HORIZONTAL}") for line in drawn.splitlines()) >= 25
    assert "steps/s" in drawn and "0/12000" in drawn and "0:00:0" in drawn


def test_the_title_above_the_numbers_is_one_line(config: Path) -> None:
    long = "trial_of_a_thing_with_quite_a_long_name"
    config = config.rename(config.with_stem(long))
    out = io.StringIO()
    run(str(config), Options(), Console(file=out, width=80), progress=False)
    assert f"{long} (complete)" in out.getvalue().splitlines()


def test_lines_elsewhere() -> None:
    from envmgr.cli.collecting import Collection

    out = io.StringIO()
    ticks = iter(range(0, 1000, 2))
    lines = Lines(Console(file=out, width=200), clock=lambda: float(next(ticks)))
    collection = Collection([5])
    manager = FakeManager([lambda: None], FakeManager.config)
    manager.launch()
    collection.run(manager, lambda ids, obs: ids, lines)
    assert 1 < len(out.getvalue().splitlines()) < 6
    assert "/5 episodes" in out.getvalue()


def test_list() -> None:
    result = call("list")
    assert result.exit_code == 0
    assert "async_subprocess" in result.output
    rows = json.loads(call("list", "--json").output)
    assert {"base", "subprocess", "async_subprocess", "base_v2", "subprocess_v2", "fake"} <= {
        row["type"] for row in rows
    }
    assert all(row["about"] for row in rows)


def test_doctor() -> None:
    result = call("doctor")
    assert result.exit_code == 0
    assert "start methods" in result.output
    assert json.loads(call("doctor", "--json").output)["cores"] >= 1


def test_version_and_help() -> None:
    assert call("--version").output.strip() == f"envmgr {envmgr.__version__}"
    assert "doctor" in call("--help").output


def test_doctor_imports_nothing_heavy() -> None:
    code = (
        "import sys; from envmgr.cli.doctor import as_dict; as_dict(); "
        "print([m for m in ('torch', 'gymnasium', 'gym', 'ray', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_module_runs() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "envmgr", "--version"], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == f"envmgr {envmgr.__version__}"
