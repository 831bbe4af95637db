"""Which worker hosts which envs, and on which core."""

import os

import pytest

from envmgr.managers.split import place, split


@pytest.mark.parametrize(
    ("env_num", "per_worker", "workers", "sizes"),
    [
        (1, 1, None, [1]),
        (4, 1, None, [1, 1, 1, 1]),
        (4, 2, None, [2, 2]),
        (5, 2, None, [2, 2, 1]),
        (7, 3, None, [3, 2, 2]),
        (3, 8, None, [3]),
        (8, 1, 2, [4, 4]),  # num_workers wins over envs_per_worker
        (8, 1, 3, [3, 3, 2]),
        (3, 1, 8, [1, 1, 1]),  # never more workers than envs
        (5, 5, 1, [5]),
    ],
)
def test_sizes(env_num: int, per_worker: int, workers: int | None, sizes: list[int]) -> None:
    assert [len(envs) for envs in split(env_num, per_worker, workers)] == sizes


def test_neighbours_each_env_once_and_evenly() -> None:
    for env_num in range(1, 20):
        for per_worker in range(1, 9):
            for workers in (None, 1, 2, 5, 30):
                parts = split(env_num, per_worker, workers)
                assert [i for part in parts for i in part] == list(range(env_num))
                sizes = [len(part) for part in parts]
                assert min(sizes) >= 1
                assert max(sizes) - min(sizes) <= 1
                if workers is None:
                    assert max(sizes) <= per_worker
                else:
                    assert len(parts) == min(workers, env_num)


def test_no_affinity_is_anywhere() -> None:
    assert place(None, 3) == [None, None, None]


def test_spread_takes_the_cores_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {5, 2}, raising=False)
    assert place("spread", 3) == [[2], [5], [2]]


def test_spread_where_nobody_can_tell_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert place("spread", 3) == [[0], [1], [0]]
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert place("spread", 2) == [[0], [0]]


def test_a_list_is_taken_in_turn() -> None:
    assert place([3, [1, 2]], 3) == [[3], [1, 2], [3]]
    assert place((0, 1), 2) == [[0], [1]]
