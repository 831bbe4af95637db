"""Ends of episodes: automatic resets, terminal observations, ``episode_num``, ``done``."""

from __future__ import annotations

import pytest

from envmgr import EnvState
from tests.helpers import envs
from tests.helpers.managers import (
    actions_for,
    everywhere,
    in_base_and_start_methods,
    in_every_process_kind,
    in_processes,
    in_start_methods,
    many,
    state_of,
    step_until,
    wait_ready,
    wait_state,
)


@pytest.mark.case("D04", "D06")
@pytest.mark.parametrize("reuse", [False, True], ids=["fresh-arrays", "reused-buffer"])
@in_base_and_start_methods
def test_every_transition_is_exact(make, reuse):
    """Episodes of 4: every (s, a, s') exact, terminal obs too, each row its env's own."""
    manager = make.launched(
        many(envs.CounterEnv, 4, length=4, reuse=reuse), **({} if make.is_base else {"envs_per_worker": 2})
    )
    place = dict.fromkeys(range(4), (0, 0))
    for _ in range(13):
        obs = wait_ready(manager)
        assert {i: o.tolist() for i, o in obs.items()} == {i: [i, *place[i]] for i in range(4)}
        result = step_until(manager, actions_for(range(4)))
        for i, ts in result.items():
            episode, t = place[i]
            assert ts.obs.tolist() == [i, episode, t + 1]
            assert float(ts.reward) == 100 * i + t + 1
            assert ts.done == ts.terminated == (t + 1 == 4) and not ts.truncated
            place[i] = (episode + 1, 0) if ts.done else (episode, t + 1)


@pytest.mark.case("D04")
def test_truncated_episodes_are_exact_too(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=3, truncate=True))
    for episode in range(3):
        for t in range(1, 4):
            wait_ready(manager)
            ts = step_until(manager, {0: 0, 1: 0})[1]
            assert ts.obs.tolist() == [1, episode, t]
            assert (ts.done, ts.terminated, ts.truncated) == (t == 3, False, t == 3)


@in_start_methods
def test_step_does_not_wait_for_the_automatic_reset(make, signals):
    manager = make.launched(many(envs.CounterEnv, 2, length=1, reset_gate=signals("gate")))
    ts = manager.step({0: 0})[0]
    assert ts.done and ts.obs.tolist() == [0, 0, 1]
    assert state_of(manager, 0) == "RESET"
    assert set(manager.ready_obs) == {1}
    assert not manager.done
    assert not manager.env_state_done(0)
    terminal = ts.obs
    signals("gate").post()
    wait_state(manager, 0, "RUN")
    assert manager.ready_obs[0].tolist() == [0, 1, 0]
    assert terminal.tolist() == [0, 0, 1], "the terminal observation is not overwritten by the reset"


@in_processes
def test_the_automatic_reset_goes_on_while_the_caller_does_something_else(make, tmp_path):
    from tests.helpers.sync import Log

    log = Log(tmp_path / "log")
    manager = make.launched(many(envs.CounterEnv, 2, length=1, log=log))
    manager.step({0: 0})
    assert [w[1] for w in log.wait("reset", 3)].count("0") == 2, "no further call was needed"


@in_processes
def test_a_shared_worker_serves_the_others_after_a_reset(make):
    manager = make.launched(many(envs.CounterEnv, 4, length=2), envs_per_worker=4)
    for k in range(20):
        ready = list(wait_ready(manager))
        result = step_until(manager, actions_for(ready))
        assert all(ts.obs.tolist() == [i, k // 2, k % 2 + 1] for i, ts in result.items())


@pytest.mark.case("O11")
@everywhere
def test_without_auto_reset_one_episode_of_three_is_not_done(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=1), auto_reset=False, episode_num=3)
    for episode in range(3):
        assert not manager.done
        manager.step({0: 0, 1: 0})
        last = episode == 2
        for i in (0, 1):
            wait_state(manager, i, "DONE" if last else "NEED_RESET")
            assert manager.env_state_done(i) is last
        assert manager.done is last
        if not last:
            manager.reset()
            wait_ready(manager, [0, 1])
    assert manager.resets == [3, 3]


@in_base_and_start_methods
def test_after_episode_num_episodes_it_is_done(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=2), episode_num=2)
    ends = {0: 0, 1: 0}
    while not manager.done:
        for i, ts in manager.step(actions_for(manager.ready_obs)).items():
            ends[i] += ts.done
    assert ends == {0: 2, 1: 2}
    assert {EnvState(s) for s in manager.env_states.values()} == {EnvState.DONE}
    assert manager.env_state_done(0) and manager.env_state_done(1)
    assert manager.resets == [2, 2], "no reset after the last episode"


@pytest.mark.case("O24")
@in_every_process_kind
def test_done_is_false_while_an_automatic_reset_is_pending(make, signals):
    manager = make.launched(many(envs.CounterEnv, 2, length=1, reset_gate=signals("gate")), episode_num=2)
    assert all(ts.done for ts in manager.step({0: 0, 1: 0}).values())
    assert [state_of(manager, i) for i in (0, 1)] == ["RESET", "RESET"]
    assert not manager.done
    signals("gate").post(2)
    wait_ready(manager, [0, 1])
    assert not manager.done
    manager.step({0: 0, 1: 0})
    wait_state(manager, 0, "DONE")
    assert manager.done


def test_done_env_is_left_out_and_the_other_goes_on(make):
    manager = make.launched(
        [lambda: envs.CounterEnv(0, length=1), lambda: envs.CounterEnv(1, length=3)], episode_num=1
    )
    manager.step({0: 0, 1: 0})
    wait_state(manager, 0, "DONE")
    assert set(manager.ready_obs) == {1}
    assert not manager.done
    manager.step({1: 0})
    assert manager.step({1: 0})[1].done
    wait_state(manager, 1, "DONE")
    assert manager.done


@pytest.mark.case("A07")
def test_ready_obs_when_all_are_done_is_empty_or_says_so(make):
    from envmgr import EnvManagerError

    manager = make.launched(many(envs.CounterEnv, 1, length=1), episode_num=1)
    manager.step({0: 0})
    wait_state(manager, 0, "DONE")
    try:
        told = str(manager.ready_obs or "done")
    except EnvManagerError as error:
        told = str(error).lower()
    assert "done" in told


@pytest.mark.case("D07")
def test_no_extra_resets(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=3))
    episodes = 0
    while episodes < 10:
        wait_ready(manager)
        episodes += sum(ts.done for ts in step_until(manager, {0: 0, 1: 0}).values())
    wait_ready(manager)
    assert manager.resets == [6, 6]


def test_relaunch_counts_episodes_anew(make):
    manager = make(many(envs.CounterEnv, 1, length=1), episode_num=2)
    for _ in range(2):
        manager.launch()
        for _ in range(2):
            wait_ready(manager, [0])
            assert not manager.done
            manager.step({0: 0})
        wait_state(manager, 0, "DONE")
        assert manager.done
        manager.close()


def test_reset_after_done_begins_anew(make):
    """A collector that has had its episodes resets and collects again."""
    manager = make.launched(many(envs.CounterEnv, 2, length=1), episode_num=1)
    manager.step({0: 0, 1: 0})
    wait_state(manager, 1, "DONE")
    assert manager.done
    manager.reset()
    obs = wait_ready(manager, [0, 1])
    assert obs[0].tolist() == [0, 1, 0]
    assert not manager.done
    manager.step({0: 0, 1: 0})
    wait_state(manager, 0, "DONE")


def test_counts_in_stats(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=2))
    for _ in range(5):
        wait_ready(manager)
        step_until(manager, {0: 0, 1: 0})
    stats = manager.stats()
    assert set(stats) == {0, 1}
    for row in stats.values():
        assert (row["steps"], row["episodes"]) == (5, 2)
        assert (row["retries"], row["renewals"], row["timeouts"]) == (0, 0, 0)
        assert row["step_time"] >= 0 and row["reset_time"] >= 0 and row["wait_time"] >= 0
