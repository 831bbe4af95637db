"""Whether anybody polls before it sleeps (``spin``) changes nothing that a caller sees."""

from __future__ import annotations

from functools import partial

import pytest

from envmgr.errors import WorkerDied
from tests.helpers import envs
from tests.helpers.managers import (
    array_trajectories,
    assert_same_stories,
    in_processes,
    in_sync,
    many,
    trajectories,
    wait_ready,
)

N, STEPS, SEED = 4, 30, 5
spins = pytest.mark.parametrize("spin", [False, True, 0.1])
layouts = pytest.mark.parametrize("per_worker", [1, 2])


def seeded(make, **cfg):
    manager = make(many(envs.SeededEnv, N), **cfg)
    manager.seed(SEED)
    manager.launch()
    return manager


@spins
@layouts
@in_processes
def test_the_same_steps_in_both_faces(make, spin, per_worker):
    stories = []
    for setting in ("auto", spin):
        manager = seeded(make, spin=setting, envs_per_worker=per_worker)
        stories.append(trajectories(manager, STEPS, infos=True))
        manager.seed(SEED)
        assert_same_stories(stories[-1], array_trajectories(manager, STEPS))
        manager.close()
    assert_same_stories(*stories)


@spins
@layouts
@in_sync
def test_calls_between_steps_are_answered(make, spin, per_worker):
    """While a worker polls its rows, messages come another way."""
    manager = make(many(envs.AttributeEnv, N), spin=spin, envs_per_worker=per_worker)
    manager.launch()
    wait_ready(manager)
    for k in range(1, 40):
        assert [ts.obs[-1] for ts in manager.step(dict.fromkeys(range(N), 0)).values()] == [k] * N
        assert manager.colour == [f"colour-{i}" for i in range(N)]


@spins
@layouts
@in_processes
def test_actions_that_come_as_messages(make, spin, per_worker):
    manager = make(many(envs.FreeFormEnv, N), spin=spin, envs_per_worker=per_worker)
    manager.launch()
    wait_ready(manager)
    for k in range(200):
        told = manager.step({i: f"{i} says {k}" for i in range(N)})
        assert {i: ts.obs["got"] for i, ts in told.items()} == {i: f"{i} says {k}" for i in range(N)}


@in_sync
def test_an_answer_that_nobody_wants_any_more_holds_up_nobody(make):
    """It is longer than a socket holds, so its worker waits until it is read."""
    manager = make(many(envs.BigAnswerEnv, 3), step_timeout=20.0, on_error="reset")
    manager.launch()
    wait_ready(manager)
    with pytest.raises(WorkerDied):
        manager.big_answer()
    for k in range(1, 4):
        assert {i: ts.obs[-1] for i, ts in manager.step({1: 0, 2: 0}).items()} == {1: k, 2: k}
    assert [manager.stats()[i]["timeouts"] for i in range(3)] == [0, 0, 0]


@in_processes
def test_an_action_longer_than_a_socket_holds_goes_out_while_the_caller_computes(make, signals):
    heard = signals("heard")
    manager = make([partial(envs.HeardEnv, i, heard) for i in range(2)])
    manager.launch()
    manager.reset_arrays()
    for _ in range(3):
        manager.send([bytes(5_000_000)], [0])
        heard.wait(1)
        assert manager.recv().env_id.tolist() == [0]
