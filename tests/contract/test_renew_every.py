"""A worker that is replaced every so many episodes, for simulators that leak (case A09)."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import numpy as np
import pytest

from envmgr import create_env_manager
from envmgr.errors import ConfigError, EnvResetError
from tests.helpers import envs
from tests.helpers.managers import (
    array_trajectories,
    assert_same_stories,
    in_base_and_start_methods,
    in_processes,
    kinds,
    many,
    step_until,
    trajectories,
    wait_ready,
)
from tests.helpers.sync import Log

pytestmark = pytest.mark.case("A09")


def play(manager: Any, episodes: int) -> list[tuple[int, int]]:
    """Plays whole episodes of all envs in step; per episode (episode as the env counts, renewals so far)."""
    seen = []
    for _ in range(episodes):
        obs = wait_ready(manager)
        assert {i: row[0] for i, row in obs.items()} == dict(enumerate(range(manager.env_num)))
        seen.append((int(obs[0][1]), manager.stats()[0]["renewals"]))
        done = False
        while not done:
            result = step_until(manager, dict.fromkeys(range(manager.env_num), 0))
            done = result[0].done
            assert not any(ts.info for ts in result.values())
    return seen


@in_base_and_start_methods
def test_every_env_is_built_anew_after_so_many_episodes(make, tmp_path, caplog):
    log = Log(str(tmp_path / "log"))
    with caplog.at_level(logging.WARNING, logger="envmgr"):
        manager = make.launched(many(envs.CounterEnv, 2, length=2, log=log), renew_every=2, max_renewals=0)
        # A fresh env counts its episodes from 0.
        assert play(manager, 5) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]
        wait_ready(manager)
    manager.close()
    assert not caplog.records
    for i in ("0", "1"):
        mine = [(what, pid) for what, env_id, pid in log.lines() if env_id == i]
        lives = [[what for what, p in mine if p == pid] for pid in dict.fromkeys(pid for _, pid in mine)]
        if make.is_base:
            assert [what for what, _ in mine] == ["init", "reset", "reset", "close"] * 3
        else:
            assert lives == [["init", "reset", "reset", "close"]] * 3, (
                "each in a process of its own, and closed"
            )


def test_the_array_face_hands_over_the_first_observation_of_the_fresh_env(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=2), renew_every=2, max_renewals=0)
    obs, _ = manager.reset_arrays()
    seen = [tuple(obs[0])]
    for t in range(8):
        out = manager.step_arrays(np.zeros(2, np.int64))
        at = {int(i): k for k, i in enumerate(out.env_id)}
        assert set(at) == {0, 1}
        seen.append(tuple(out.obs[at[0]]))
        ended = t % 2 == 1
        assert out.terminated.tolist() == [ended] * 2 and not out.truncated.any()
        assert set(out.final_obs) == ({0, 1} if ended else set())
        if ended:
            assert tuple(out.final_obs[0]) == (0, (t // 2) % 2, 2)
            assert out.reward[at[1]] == 102
        assert not out.info
    # (env_id, episode, t), and the episode begins at 0 again in a fresh env
    assert [(episode, t) for _, episode, t in seen] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (0, 0), (0, 1), (1, 0), (1, 1), (0, 0),
    ]  # fmt: skip
    assert [manager.stats()[i]["renewals"] for i in (0, 1)] == [2, 2]


LAYOUTS = [
    pytest.param(dict(type="subprocess", context="fork"), id="subprocess-fork"),
    pytest.param(
        dict(type="async_subprocess", context="fork", wait_num=1, step_wait_timeout=0), id="async-fork"
    ),
    pytest.param(dict(type="async_subprocess", context="forkserver", wait_num=2), id="async-forkserver"),
]


def story(face: str, dynamic: bool | None = None, **cfg: Any) -> dict[int, list[Any]]:
    with create_env_manager({**cfg, "renew_every": 2}, many(envs.SeededEnv, 2)) as manager:
        manager.seed(7, dynamic_seed=dynamic)
        manager.launch()
        return trajectories(manager, 40, infos=True) if face == "dict" else array_trajectories(manager, 40)


@pytest.fixture(scope="module")
def in_base():
    return {dynamic: story("dict", dynamic, type="base") for dynamic in (None, True)}


@pytest.mark.case("R05")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("cfg", LAYOUTS)
def test_seeds_go_on_alike_in_every_manager(cfg, dynamic, in_base):
    told = story("dict", dynamic, **cfg)
    assert_same_stories(in_base[dynamic], told)
    firsts = [str(event[1]) for event in told[0] if event[0] == "reset"]
    assert len(firsts) > 4 and len(set(firsts)) == len(firsts), "no episode comes twice"


@pytest.mark.case("R05")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("cfg", [dict(type="base"), dict(type="subprocess")])
def test_seeds_go_on_alike_in_both_faces(cfg, dynamic, in_base):
    assert_same_stories(in_base[dynamic], story("arrays", dynamic, **cfg))


def test_params_and_episode_num_hold_over_a_renewal(make):
    manager = make(many(envs.CounterEnv, 2, length=1), renew_every=1, episode_num=3, max_renewals=0)
    manager.launch({0: {"start": 5}, 1: None})
    for k in range(3):
        obs = wait_ready(manager)
        assert {i: row.tolist() for i, row in obs.items()} == {0: [0, 0, 5], 1: [1, 0, 0]}
        result = step_until(manager, {0: 0, 1: 0})
        assert result[0].obs.tolist() == [0, 0, 6] and result[0].done
        assert manager.done is (k == 2)
    assert [manager.stats()[i]["renewals"] for i in (0, 1)] == [2, 2], "the last episode is followed by none"


@in_base_and_start_methods
def test_without_auto_reset_it_is_the_callers_reset_that_renews(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=1), renew_every=1, auto_reset=False)
    step_until(manager, {0: 0})
    assert manager.env_states[0].name == "NEED_RESET" and manager.stats()[0]["renewals"] == 0
    manager.reset({0: None})
    assert [manager.stats()[i]["renewals"] for i in (0, 1)] == [1, 0]
    assert wait_ready(manager, [0, 1])[0].tolist() == [0, 0, 0]


@kinds("subprocess-fork", "async_subprocess-spawn", "base")
def test_a_renewal_is_no_error_in_the_states(make):
    manager = make(many(envs.CounterEnv, 1, length=1), renew_every=1)
    moves: list[tuple[str, str]] = []
    manager.on_state_change(lambda _i, old, new: moves.append((old.name, new.name)))
    manager.launch()
    step_until(manager, {0: 0})
    wait_ready(manager)
    assert moves[-2:] == [("RUN", "RESET"), ("RESET", "RUN")]
    assert not any("ERROR" in move for move in moves)


@in_processes
def test_an_env_that_does_not_close_is_killed_in_the_end(make, caplog):
    manager = make.launched(many(envs.CloseHangsEnv, 2, length=1), renew_every=1, close_grace=0.3)
    with caplog.at_level(logging.WARNING, logger="envmgr"):
        for _ in range(2):
            step_until(manager, {0: 0, 1: 0})
            assert wait_ready(manager)[0].tolist() == [0, 0, 0]
    assert "did not close its envs in time" in caplog.text


@in_processes
def test_an_env_that_raises_in_close_is_named(make, caplog):
    manager = make.launched(many(envs.CloseRaisesEnv, 1, length=1), renew_every=1)
    with caplog.at_level(logging.WARNING, logger="envmgr"):
        step_until(manager, {0: 0})
        wait_ready(manager)
    assert "env 0 raised in close" in caplog.text and "Boom" in caplog.text


@kinds("base", "subprocess-fork", "async_subprocess-spawn")
def test_a_fresh_env_that_cannot_be_built_is_a_reset_error(make, tmp_path):
    once = str(tmp_path / "built")
    manager = make.launched([partial(built_once, once)], renew_every=1, max_retry=2, retry_waiting_time=0.01)
    step_until(manager, {0: 0})
    with pytest.raises(EnvResetError, match="second one") as caught:
        wait_ready(manager)
    assert caught.value.env_id == 0 and manager.closed


def built_once(path: str) -> Any:
    from tests.helpers.sync import first_time

    if not first_time(path):
        raise envs.Boom("no second one")
    return envs.CounterEnv(0, length=1)


@in_processes
@pytest.mark.parametrize("layout", [{"envs_per_worker": 2}, {"num_workers": 1}])
def test_envs_that_share_a_worker_cannot_be_renewed_alone(make, layout):
    with pytest.raises(ConfigError, match="renew_every=2 wants one env per worker"):
        make(many(envs.CounterEnv, 2), renew_every=2, **layout).launch()
