"""``envmgr bench`` from the command to the files; what it decides is tested elsewhere, without measuring."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from envmgr.cli.app import app
from envmgr.cli.checking.layouts import candidates, config_line
from envmgr.envs.toy import NullEnv
from tests.helpers.pictures import draw_nothing


class Failing(NullEnv):
    def step(self, action: Any) -> Any:
        raise ValueError("the simulator is gone")  # the user's own line


class Actionless(NullEnv):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = None


@pytest.fixture(scope="module", autouse=True)
def _fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Matplotlib opens its fonts once, and keeps them open for the life of the process: not a leak."""
    draw_nothing(tmp_path_factory.mktemp("fonts") / "nothing.png")


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envmgr.cli.bench.usable_cores", lambda: 2)


def bench(target: str, *options: Any) -> Result:
    args = ["bench", target, "--envs", 2, "--seconds", 0.01, "--repeats", 2, *options]
    return CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)


@pytest.mark.case("P04")
def test_every_layout_is_measured_and_one_is_proposed(tmp_path: Path) -> None:
    file, picture = tmp_path / "bench.json", tmp_path / "bench.png"
    result = bench("envmgr.envs.toy:NullEnv", "--json", file, "--png", picture)
    assert result.exit_code == 0, result.output
    data = json.loads(file.read_text())
    layouts = data["layouts"]
    assert [layout["name"] for layout in layouts] == [name for name, _, _ in candidates(2, 2)]
    for layout in layouts:
        assert 0 < layout["lowest"] <= layout["steps_per_second"] <= layout["highest"]
        assert layout["name"] in result.output
    (best,) = [layout for layout in layouts if layout["name"] == data["best"]]
    assert data["config"] == best["config"]
    assert data["in_process_is_faster"] == (best["workers"] == 0)
    assert data["verdict"] in result.output
    assert f"manager={config_line(best['config'])}" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in result.output


def test_an_env_that_fails_is_met_in_a_worker_and_said() -> None:
    result = bench(f"{__name__}:Failing")
    assert result.exit_code == 1
    assert "the simulator is gone" in result.output
    assert "the user's own line" in result.output
    assert "process" not in result.output.partition("error")[0].partition("rounds")[2]


def test_what_cannot_be_benched_is_said() -> None:
    assert bench("nomodule:make").exit_code == 2
    result = bench(f"{__name__}:Actionless")
    assert result.exit_code == 1
    assert "has no sample()" in result.output
