"""Threads of the caller: serialised or refused, never mixed (A10); what never waits; launch in a thread."""

from __future__ import annotations

import threading

import pytest

from envmgr import EnvManagerError, EnvState, IllegalStateError
from tests.helpers import envs
from tests.helpers.managers import (
    Sent,
    in_every_process_kind,
    in_processes,
    in_start_methods,
    many,
    wait_ready,
)
from tests.helpers.sync import Background, within


@pytest.mark.case("A10")
def test_two_threads_step_envs_of_their_own(make):
    manager = make.launched(many(envs.CounterEnv, 4))
    start = threading.Barrier(2)

    def work(ids):
        counts = dict.fromkeys(ids, 0)
        start.wait()
        for _ in range(100):
            try:
                result = manager.step(dict.fromkeys(ids, 0))
            except IllegalStateError:
                continue
            for i, ts in result.items():
                assert ts.obs.tolist()[0] == i
                counts[i] += 1
        return counts

    calls = [Background(work, [0, 1]), Background(work, [2, 3])]
    counts = [call.result() for call in calls]
    total = [0] * 4
    for c in counts:
        for i, k in c.items():
            total[i] += k
    if make.is_async:  # one thread may be handed the other's results, but none is lost or doubled
        left = manager.step({})
        for i in left:
            total[i] += 1
    else:
        assert set(counts[0]) == {0, 1} and set(counts[1]) == {2, 3}
    assert manager.steps == total


@pytest.mark.case("A10")
def test_two_threads_step_the_same_env(make):
    manager = make.launched(many(envs.CounterEnv, 1))
    start = threading.Barrier(2)

    def work():
        seen = []
        start.wait()
        for _ in range(100):
            try:
                result = manager.step({0: 0})
            except IllegalStateError:
                continue
            seen += [ts.obs.tolist()[2] for ts in result.values()]
        return seen

    calls = [Background(work), Background(work)]
    seen = [t for call in calls for t in call.result()]
    seen += [ts.obs.tolist()[2] for ts in manager.step({}).values()]
    assert sorted(seen) == list(range(1, len(seen) + 1)), "each step's result exactly once"
    assert manager.steps == [len(seen)]


@pytest.mark.case("A10")
@in_processes
def test_reading_never_waits_for_an_env(make, signals):
    manager = make.launched(many(envs.CounterEnv, 2, gate=signals("gate"), entered=signals("entered")))
    call = Background(manager.step, {0: 0, 1: 0})
    signals("entered").wait(2)

    def read():
        assert {EnvState(s) for s in manager.env_states.values()} == {EnvState.RUN}
        assert manager.observation_space.shape == (3,) and manager.action_space.n == 1000
        assert manager.env_num == 2 and not manager.done and not manager.closed
        assert not manager.env_state_done(0)
        assert list(manager.ready_obs_id) == list(manager.ready_env) == []
        assert list(manager.active_env) == [0, 1]
        assert set(manager.stats()) == {0, 1}
        return True

    assert within(5, read)
    assert call.running
    signals("gate").post(2)
    call.result()


@pytest.mark.case("O04")
@pytest.mark.parametrize("envs_per_worker", [1, 2])
@in_every_process_kind
def test_an_attribute_waits_for_its_turn(make, signals, envs_per_worker):
    fns = many(envs.CounterEnv, 2, gate=signals("gate"), entered=signals("entered"))
    manager = make.launched(fns, envs_per_worker=envs_per_worker)
    manager.reset_arrays()
    manager.send([0, 0])
    signals("entered").wait()
    sent = Sent(manager)
    attribute = Background(lambda: manager.steps)
    sent.wait(2)
    assert attribute.running
    signals("gate").post(2)
    assert attribute.result() == [1, 1]
    out = manager.recv()
    assert dict(zip(out.env_id.tolist(), out.obs.tolist(), strict=True)) == {0: [0, 0, 1], 1: [1, 0, 1]}


@in_start_methods
def test_launch_in_a_thread_that_ends(make):
    """Linux tells a child that its parent died when the *thread* that started it ends: not wanted here."""
    manager = make(many(envs.CounterEnv, 2))
    Background(manager.launch).result(40)
    wait_ready(manager)
    for t in range(1, 50):
        assert manager.step({0: 0, 1: 0})[1].obs.tolist() == [1, 0, t]
    assert all(row["renewals"] == 0 for row in manager.stats().values())


@pytest.mark.case("O03")
@in_processes
def test_close_from_another_thread_ends_a_blocked_step(make, signals):
    manager = make.launched(
        many(envs.CounterEnv, 2, gate=signals("gate"), entered=signals("entered")),
        close_grace=0.3,
        interrupt_grace=0.3,
    )
    step = Background(manager.step, {0: 0, 1: 0})
    signals("entered").wait(2)
    within(15, manager.close)
    with pytest.raises(EnvManagerError, match=r"(?i)closed"):
        step.result(5)
    assert manager.closed


@pytest.mark.case("O03")
def test_close_from_several_threads_at_once(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    calls = [Background(manager.close) for _ in range(4)]
    for call in calls:
        call.result()
    assert manager.closed


@pytest.mark.case("A10")
def test_seeds_attributes_and_steps_from_three_threads(make):
    manager = make.launched(many(envs.AttributeEnv, 2))

    def attributes():
        for _ in range(40):
            assert manager.colour == ["colour-0", "colour-1"]

    def seeds():
        for k in range(40):
            manager.seed(k)

    calls = [Background(attributes), Background(seeds)]
    for t in range(1, 41):
        result = manager.step({0: 0, 1: 0})
        assert {i: ts.obs.tolist() for i, ts in result.items()} == {0: [0, 0, t], 1: [1, 0, t]}
    for call in calls:
        call.result()
