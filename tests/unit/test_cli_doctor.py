"""``envmgr doctor``: the facts from a made-up machine, and what is made of them."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from envmgr.cli.advice import advice
from envmgr.cli.doctor import _size, as_dict
from envmgr.cli.facts import Facts, gather

GOOD = Facts(
    platform="Linux",
    cores=16,
    usable_cores=16,
    cpu_quota=None,
    start_methods=["fork", "spawn", "forkserver"],
    memory_total=64_000_000_000,
    memory_free=32_000_000_000,
    memory_limit=None,
    memory_used=None,
    shm_total=32_000_000_000,
    shm_free=32_000_000_000,
    fd_soft=65_536,
    fd_hard=65_536,
    process_limit=None,
    blas={},
    versions={"python": "3.12.1", "numpy": "2.1.0", "gymnasium": "1.1.0", "gym": None},
)


def make(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_good_machine_needs_no_advice() -> None:
    assert advice(GOOD) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"versions": {"python": "3.9.1"}}, "needs 3.11"),
        ({"versions": {**GOOD.versions, "gymnasium": None}}, "pip install gymnasium"),
        ({"memory_free": 10_000_000}, "only 10 MB of memory left in the machine"),
        (
            {"memory_limit": 2_000_000_000, "memory_used": 1_500_000_000},
            "500 MB of memory left in the container",
        ),
        ({"cpu_quota": 1.5}, "1.5 cores' worth of time, though 16"),
        ({"usable_cores": 4}, "4 of 16 cores"),
        ({"cores": 1, "usable_cores": 1}, "type='base'"),
        ({"start_methods": ["spawn"]}, "no fork"),
        ({"fd_soft": 1024, "fd_hard": 524_288}, "`ulimit -n 65536`"),
        ({"fd_soft": 1024, "fd_hard": 1024}, "higher hard limit"),
        ({"process_limit": 100}, "at most 100 processes"),
        ({"shm_total": 64_000_000}, "/dev/shm has 64 MB"),
        ({"blas": {"OMP_NUM_THREADS": "8"}}, "OMP_NUM_THREADS=8"),
    ],
)
def test_each_trouble_has_its_advice(changes: dict[str, Any], text: str) -> None:
    found = advice(dataclasses.replace(GOOD, **changes))
    assert len(found) == 1
    assert text in found[0]


def test_limits_of_cgroup_version_2(tmp_path: Path) -> None:
    root = make(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/memory.max": "1000",
            "sys/fs/cgroup/a/memory.current": "100",
            "sys/fs/cgroup/a/b/memory.max": "max",
            "sys/fs/cgroup/a/b/memory.current": "50",
            "sys/fs/cgroup/a/b/cpu.max": "150000 100000",
            "sys/fs/cgroup/a/b/pids.max": "33",
            "dev/shm/x": "",
        },
    )
    facts = gather(root)
    assert (facts.memory_limit, facts.memory_used) == (1000, 100)
    assert facts.cpu_quota == 1.5
    assert facts.process_limit == 33
    assert facts.shm_total


def test_limits_of_cgroup_version_1(tmp_path: Path) -> None:
    root = make(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/c\n4:memory:/c\n3:pids:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/c/memory.limit_in_bytes": "2000",
            "sys/fs/cgroup/memory/c/memory.usage_in_bytes": "300",
            "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "200000",
            "sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "50000",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        },
    )
    facts = gather(root)
    assert (facts.memory_limit, facts.memory_used) == (2000, 300)
    assert facts.cpu_quota == 4.0


def test_without_any_of_it(tmp_path: Path) -> None:
    facts = gather(tmp_path)
    assert facts.memory_limit is None
    assert facts.cpu_quota is None
    assert facts.shm_total is None
    assert facts.cores >= 1


def test_as_dict_has_the_advice() -> None:
    assert isinstance(as_dict()["advice"], list)


def test_sizes_for_people() -> None:
    assert [_size(n) for n in (None, 999, 1500, 2_500_000, 25_000_000_000)] == [
        "unknown",
        "999 bytes",
        "1.5 kB",
        "2.5 MB",
        "25.0 GB",
    ]
