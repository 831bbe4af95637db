"""Which layout is the fastest, decided from given measurements."""

import pytest

from envmgr.cli.checking.layouts import Cost, Layout, candidates, choose, config_line, estimate, says

COST = Cost(base=1e-6, few=8e-6, each=25e-6, envs=8, cores=2)


def layout(workers: int, per_step: float) -> Layout:
    return Layout(f"{workers} workers", {"type": "subprocess" if workers else "base"}, workers, per_step)


@pytest.mark.case("P04")
def test_an_env_that_does_nothing_is_faster_in_process() -> None:
    verdict = choose([layout(0, 2e-6), layout(2, 5e-6), layout(8, 12e-6)])
    assert verdict.in_process
    assert verdict.text == "in-process is faster: 2 us per step, with workers at best 5 us (2 workers)"


@pytest.mark.case("P04")
def test_an_env_that_waits_is_faster_in_processes() -> None:
    verdict = choose([layout(0, 5e-3), layout(2, 2.5e-3), layout(8, 0.7e-3)])
    assert not verdict.in_process
    assert verdict.best.workers == 8
    assert verdict.text == "processes are faster: 700 us per step with 8 workers, in-process 5 ms (7.1 times)"


def test_fewer_processes_are_taken_where_it_makes_little_difference() -> None:
    assert choose([layout(0, 10e-3), layout(2, 1.02e-3), layout(8, 1e-3)]).best.workers == 2
    verdict = choose([layout(0, 1.02e-3), layout(2, 1e-3)])
    assert verdict.best.workers == 0
    assert verdict.text.startswith("in-process is as fast, and simpler")


@pytest.mark.parametrize(("step", "workers"), [(1e-6, 0), (10e-6, 0), (20e-6, 2), (1e-3, 2)])
def test_an_estimate_from_the_cost_of_a_step(step: float, workers: int) -> None:
    verdict = choose(estimate(step, COST))
    assert verdict.best.workers == workers
    assert ("in-process" in says(step, COST, verdict).partition(":")[0]) == (workers == 0)


def test_one_core_has_nothing_to_gain() -> None:
    one = Cost(base=1e-6, few=8e-6, each=25e-6, envs=8, cores=1)
    assert all(choose(estimate(step, one)).in_process for step in (1e-6, 1e-3, 1.0))


def test_a_line_to_paste() -> None:
    assert config_line({"type": "subprocess", "num_workers": 2}) == "dict(type='subprocess', num_workers=2)"


def test_the_layouts_that_are_measured() -> None:
    in_flight = {"wait_num": 4, "step_wait_timeout": 0}
    assert candidates(8, 3) == [
        ("in-process", {"type": "base"}, 0),
        ("1 worker, sync", {"type": "subprocess", "num_workers": 1}, 1),
        ("2 workers, sync", {"type": "subprocess", "num_workers": 2}, 2),
        ("3 workers, sync", {"type": "subprocess", "num_workers": 3}, 3),
        ("a process per env, sync", {"type": "subprocess"}, 8),
        ("3 workers, async", {"type": "async_subprocess", "num_workers": 3, **in_flight}, 3),
        ("a process per env, async", {"type": "async_subprocess", **in_flight}, 8),
    ]


@pytest.mark.parametrize(
    ("envs", "cores", "workers"), [(1, 4, [0, 1, 1]), (4, 4, [0, 1, 2, 4, 4]), (2, 1, [0, 1, 2, 1, 2])]
)
def test_no_layout_is_measured_twice(envs: int, cores: int, workers: list[int]) -> None:
    tried = candidates(envs, cores)
    assert [count for _, _, count in tried] == workers
    assert len({name for name, _, _ in tried}) == len(tried)
    assert all(config.get("wait_num", 1) <= envs for _, config, _ in tried)


def test_every_layout_is_a_valid_config() -> None:
    from envmgr.config.schema import validate

    for _, config, _ in candidates(8, 4):
        assert validate(config["type"], config)
