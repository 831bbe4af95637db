"""How much of the cores a container grants, by files of control groups of either version."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from envmgr import cgroups
from envmgr.workers.cores import granted_cores, usable_cores


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    return tmp_path / "sys" / "fs" / "cgroup"


def v1(group: Path, quota: int, period: int = 100_000) -> None:
    group.mkdir(parents=True, exist_ok=True)
    (group / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (group / "cpu.cfs_period_us").write_text(f"{period}\n")


def v2(group: Path, text: str) -> None:
    group.mkdir(parents=True, exist_ok=True)
    (group / "cpu.max").write_text(f"{text}\n")


def test_without_control_groups_all_time_is_granted(root: Path) -> None:
    assert granted_cores() == math.inf


def test_a_quota_of_version_2(root: Path) -> None:
    v2(root, "150000 100000")
    assert granted_cores() == 1.5


def test_a_quota_of_version_1(root: Path) -> None:
    v1(root / "cpu", 400_000)
    assert granted_cores() == 4.0


@pytest.mark.parametrize("text", ["max 100000", "", "rubbish", "0 0"])
def test_no_quota_of_version_2(root: Path, text: str) -> None:
    v2(root, text)
    assert granted_cores() == math.inf


def test_no_quota_of_version_1(root: Path) -> None:
    v1(root / "cpu", -1)
    assert granted_cores() == math.inf


def test_the_tightest_of_all_groups_above_counts(root: Path) -> None:
    own = cgroups.ROOT / "proc" / "self" / "cgroup"
    own.parent.mkdir(parents=True)
    own.write_text("3:cpuset:/other\n2:cpu,cpuacct:/pod/box\n0::/pod/box\n")
    v1(root / "cpu" / "pod", 300_000)
    v1(root / "cpu" / "pod" / "box", 800_000)
    v2(root / "pod" / "box", "1000000 100000")
    assert granted_cores() == 3.0


def test_this_process_runs_somewhere() -> None:
    assert usable_cores() >= 1
