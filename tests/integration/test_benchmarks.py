"""The benchmarks run; what they find is not looked at."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_throughput_measures_and_reports(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "throughput.py"), "--out", str(tmp_path)]
    command += ["--scenarios", "null", "dict", "--sizes", "2", "--seconds", "0.05", "--repeats", "1"]
    command += ["--only", "gymnasium", "envmgr", "floor, 2", "floor of bells, 2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "throughput.json").read_text())["results"]
    assert len(results) == 16
    assert [r for r in results if r["error"] or not r["median"]] == []
    assert "| envmgr subprocess, arrays |" in (tmp_path / "throughput.md").read_text()
    assert (tmp_path / "throughput.png").stat().st_size > 0


def test_all_parts_are_judged_together(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "--parts", "flat", "--calls", "100"]
    done = subprocess.run(
        [*command, "--no-peers", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    faces = json.loads((tmp_path / "flat.json").read_text())["faces"]
    assert {face: one["steps"] >= 400 for face, one in faces.items()} == {
        "arrays": True,
        "dict": True,
        "infos": True,
    }
    text = (tmp_path / "README.md").read_text()
    assert "- not measured 100,000 steps" in text and "| [flat](flat.md) |" in text


@pytest.mark.case("S05")
@pytest.mark.parametrize(
    ("grown", "fds", "held"), [(1000, 9, True), (5_000_000, 9, False), (1000, 10, False)]
)
def test_what_grows_is_seen(grown: int, fds: int, held: bool) -> None:
    budgets = runpy.run_path(str(BENCHMARKS / "budgets.py"))
    early = {"fds": [9, 7], "threads": [2, 1], "processes": 1}
    face = {"steps": 800_000, "bytes_grown": [0, grown], "early": early, "late": {**early, "fds": [fds, 7]}}
    (verdict,) = budgets["judged"](budgets["Found"](faces={"arrays": face}), unmeasured=False)
    assert verdict.held is held


@pytest.mark.parametrize(
    ("mine", "its", "verdict"), [([60.0, 10.0, 70.0], [10.0, 10.0, 10.0], "held"), ([30.0], [10.0], "MISSED")]
)
def test_budgets_compare_round_by_round(mine: list[float], its: list[float], verdict: str) -> None:
    budgets = runpy.run_path(str(BENCHMARKS / "budgets.py"))
    values = {
        ("envmgr subprocess, arrays", "null", 8): mine,
        ("gymnasium AsyncVectorEnv", "null", 8): its,
        ("tianshou ShmemVectorEnv", "null", 8): [v / 2 for v in its],
        ("DI-engine subprocess", "null", 8): [None],
    }
    (line,) = budgets["judged"](budgets["Found"]({"any": values}), unmeasured=False)
    assert str(line).startswith(verdict)
    assert "times gymnasium AsyncVectorEnv, the best of 2" in str(line)
    nothing = budgets["judged"](budgets["Found"]())
    assert len(nothing) == len(budgets["BUDGETS"]) and all(v.held is None for v in nothing)
