"""Seeds: who gets which, when they are used, and that the caller's list is left alone (R01 to R04, O12)."""

from __future__ import annotations

import re
from functools import partial

import pytest

from envmgr import EnvManagerError
from tests.helpers import envs
from tests.helpers.managers import (
    actions_for,
    error_of,
    everywhere,
    in_base_and_start_methods,
    in_processes,
    in_start_methods,
    launch_all,
    many,
    same,
    step_until,
    wait_ready,
)
from tests.helpers.sync import Log


def launched_with(make, n, *seed_args, env=envs.CounterEnv, cfg=None, **kwargs):
    manager = make(many(env, n, **kwargs), **(cfg or {}))
    manager.seed(*seed_args)
    manager.launch()
    wait_ready(manager)
    return manager


@everywhere
def test_an_int_gives_env_i_seed_plus_i(make):
    manager = launched_with(make, 3, 100)
    assert manager.seeds == [[100], [101], [102]]


@pytest.mark.case("R04")
@in_start_methods
def test_a_list_gives_exactly_those_and_is_not_touched(make):
    seeds = [9, 3, 3]
    manager = launched_with(make, 3, seeds)
    assert manager.seeds == [[9], [3], [3]]
    assert seeds == [9, 3, 3]


@pytest.mark.case("R04")
def test_a_dict_gives_exactly_those_and_leaves_the_others_alone(make):
    manager = make(many(envs.CounterEnv, 3))
    manager.seed(100)
    seeds = {1: 7}
    manager.seed(seeds)
    manager.launch()
    wait_ready(manager)
    assert manager.seeds == [[100], [7], [102]]
    assert seeds == {1: 7}


@pytest.mark.case("R03")
@in_start_methods
def test_none_leaves_it_to_chance(make):
    manager = launched_with(make, 2, None, env=envs.SeededEnv)
    obs = manager.ready_obs
    assert not same(obs[0], obs[1])
    manager.seed(3)
    manager.seed(None)
    manager.reset()
    wait_ready(manager)


def test_no_seed_at_all(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    assert manager.seeds == [[None], [None]]


def test_it_is_used_at_the_next_reset_and_then_the_envs_generator_runs_on(make):
    manager = launched_with(make, 2, 5, length=1)
    for _ in range(3):
        step_until(manager, {0: 0, 1: 0})
        wait_ready(manager)
    assert manager.seeds == [[5, None, None, None], [6, None, None, None]]
    manager.seed(50)
    manager.step({0: 0})
    wait_ready(manager)
    assert manager.seeds[0][-1] == 50
    manager.step({1: 0})
    wait_ready(manager)
    assert manager.seeds[1][-1] == 51


def test_the_same_seed_gives_the_same_numbers_again(make):
    manager = launched_with(make, 2, 5, env=envs.SeededEnv)
    first = manager.ready_obs
    manager.seed(5)
    manager.reset()
    again = wait_ready(manager)
    assert same(first, again)
    manager.reset()
    assert not same(first, wait_ready(manager)), "a reset without a new seed goes on with the generator"


@pytest.mark.case("R01")
def test_spawned_seeds_of_neighbouring_bases_share_nothing(make):
    children = []
    for base in (0, 1):
        manager = launched_with(make, 8, base, cfg={"seed_mode": "spawn"})
        seeds = [s[0] for s in manager.seeds]
        assert len(set(seeds)) == 8
        assert all(isinstance(s, int) and 0 <= s < 2**32 for s in seeds), "every kind of env takes it"
        children.append(seeds)
        manager.close()
    assert not set(children[0]) & set(children[1])
    manager = launched_with(make, 8, 0, cfg={"seed_mode": "spawn"})
    assert [s[0] for s in manager.seeds] == children[0], "and they are the same each time"


@pytest.mark.case("O01")
def test_bad_seeds_are_refused(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    for bad in ([1, 2, 3], [1], [], {5: 1}, {-1: 1}, "abc", 1.5, [1, "a"], -1):
        assert re.search("(?i)seed|env", str(error_of(EnvManagerError, manager.seed, bad)))
    assert manager.step({0: 0})[0].obs.tolist() == [0, 0, 1]
    assert manager.seeds == [[None], [None]]


@pytest.mark.case("O12")
@in_base_and_start_methods
def test_an_env_without_seed(make):
    manager = launched_with(make, 2, 5, env=envs.OldGymEnv)
    ts = step_until(manager, {0: 0, 1: 0})[0]
    assert ts.obs.tolist() == [1.0] and float(ts.reward) == 1.0


@pytest.mark.case("O12")
@in_start_methods
def test_an_env_whose_seed_raises(make):
    manager = make(many(envs.OldGymEnv, 2, seed_fault=True), max_retry=2, retry_waiting_time=0.01)

    def seed_and_launch():
        manager.seed(5)
        launch_all(manager)

    with pytest.raises(EnvManagerError, match="cannot be seeded") as caught:
        seed_and_launch()
    assert caught.value.env_id in (0, 1)


@pytest.mark.case("R05")
@pytest.mark.parametrize("retry_type", ["reset", "renew"])
def test_a_seed_survives_a_failed_attempt(make, retry_type, tmp_path):
    fns = [partial(envs.FaultyEnv, i, reset_fault="raise", once=str(tmp_path / f"once{i}")) for i in range(2)]
    manager = make(fns, max_retry=2, retry_waiting_time=0.01, retry_type=retry_type)
    manager.seed(100)
    launch_all(manager)
    seeds = [s[-1] for s in manager.seeds]
    if retry_type == "reset":
        assert seeds == [100, 101]
    else:  # a renewed env goes on with a fresh child of its seed
        assert None not in seeds and len(set(seeds)) == 2


@pytest.mark.parametrize("dynamic", [True, False])
def test_dynamic_seed_reaches_a_timestep_env(make, dynamic, tmp_path):
    log = Log(tmp_path / "log")
    launched_with(make, 2, 5, dynamic, env=envs.TimestepEnv, log=log)
    assert sorted(log.lines("seed")) == [["seed", "0", "5", str(dynamic)], ["seed", "1", "6", str(dynamic)]]


def test_without_dynamic_seed_the_envs_own_default_holds(make, tmp_path):
    log = Log(tmp_path / "log")
    launched_with(make, 1, 5, env=envs.TimestepEnv, log=log)
    assert log.lines("seed") == [["seed", "0", "5", "True"]]


def test_dynamic_seed_varies_the_seed_per_episode_reproducibly(make):
    runs = []
    for _ in range(2):
        manager = launched_with(make, 2, 5, True, length=1)
        for _ in range(3):
            step_until(manager, {0: 0, 1: 0})
            wait_ready(manager)
        runs.append(manager.seeds)
        manager.close()
    assert runs[0] == runs[1]
    flat = [s for seeds in runs[0] for s in seeds]
    assert None not in flat and len(set(flat)) == len(flat) == 8


@pytest.mark.case("R02")
@in_start_methods
def test_unseeded_envs_that_draw_from_global_generators_have_streams_of_their_own(make):
    manager = make.launched(many(envs.GlobalRngEnv, 4))
    numbers = [x for o in manager.ready_obs.values() for x in o.tolist()]
    numbers += [x for ts in step_until(manager, actions_for(range(4))).values() for x in ts.obs.tolist()]
    assert len(set(numbers)) == len(numbers) == 32


@pytest.mark.case("R02")
@in_processes
def test_unseeded_envs_of_one_worker_have_streams_of_their_own(make):
    manager = make.launched(many(envs.GlobalRngEnv, 4), envs_per_worker=2)
    numbers = [x for o in manager.ready_obs.values() for x in o.tolist()]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.case("R02")
def test_two_unseeded_launches_differ(make):
    manager = make.launched(many(envs.GlobalRngEnv, 1))
    first = manager.ready_obs[0]
    manager.close()
    manager.launch()
    assert not same(first, wait_ready(manager)[0])
