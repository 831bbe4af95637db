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
    done = subprocess.run(command, capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "throughput.json").read_text())["results"]
    assert len(results) == 16
    assert [r for r in results if r["error"] or not r["median"]] == []
    assert "| envmgr subprocess, arrays |" in (tmp_path / "throughput.md").read_text()
    assert (tmp_path / "throughput.png").stat().st_size > 0


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
