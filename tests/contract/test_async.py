"""When an async ``step`` comes back, with what, and that each result comes exactly once."""

from __future__ import annotations

import pytest

from tests.helpers import envs
from tests.helpers.managers import (
    Sent,
    actions_for,
    kinds,
    making,
    many,
    step_until,
    wait_ready,
    wait_state,
)
from tests.helpers.sync import Background, within


@pytest.fixture(params=["async_subprocess-fork"])
def make(request):
    """A maker of async managers: the only kind that all of this is about."""
    yield from making(request.param)


in_start_methods = kinds("async_subprocess-fork", "async_subprocess-spawn", "async_subprocess-forkserver")


def gated(signals, n, **kwargs):
    """``n`` counters, each with a gate of its own, all closed."""
    gates = [signals(f"gate{i}") for i in range(n)]
    return gates, [lambda i=i: envs.CounterEnv(i, gate=gates[i], **kwargs) for i in range(n)]


@pytest.mark.case("F10")
@pytest.mark.parametrize("first", [0, 1, 2])
def test_back_at_wait_num_and_each_result_exactly_once(make, signals, first):
    gates, fns = gated(signals, 3)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0.05)
    gates[first].post()
    result = manager.step(actions_for(range(3)))
    assert set(result) == {first}
    others = [i for i in range(3) if i != first]
    seen = {}
    for i in reversed(others):
        gates[i].post()
        result = manager.step({})
        assert set(result) == {i}
        seen.update(result)
    assert {i: ts.obs.tolist() for i, ts in seen.items()} == {i: [i, 0, 1] for i in others}
    assert manager.step({}) == {}


@pytest.mark.case("F10")
@in_start_methods
def test_timeout_zero_is_back_at_once_when_wait_num_are_in(make, signals):
    gates, fns = gated(signals, 3)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0)
    gates[0].post()
    assert set(manager.step(actions_for(range(3)))) == {0}
    gates[0].post()
    assert set(manager.step({0: 0})) == {0}
    for gate in gates[1:]:
        gate.post()
    step_until(manager, {}, {1, 2})


@pytest.mark.parametrize("wait_num", [1, 2, 3, 4, 9])
def test_at_least_wait_num_as_far_as_there_are_pending(make, signals, wait_num):
    gates, fns = gated(signals, 4)
    manager = make.launched(fns, wait_num=wait_num, step_wait_timeout=0)
    call = Background(manager.step, actions_for(range(4)))
    for k, gate in enumerate(gates, 1):
        gate.post()
        if k >= min(wait_num, 4):
            break
    result = call.result()
    assert set(result) == set(range(min(wait_num, 4)))
    for gate in gates[len(result) :]:
        gate.post()
    if len(result) < 4:
        step_until(manager, {}, set(range(len(result), 4)))


@pytest.mark.case("F21")
def test_wait_num_is_capped_by_what_is_pending(make, signals):
    gates, fns = gated(signals, 3)
    manager = make.launched(fns, wait_num=3, step_wait_timeout=0)
    gates[1].post()
    assert set(manager.step({1: 0})) == {1}


@pytest.mark.case("F21")
@in_start_methods
def test_wait_num_is_capped_by_the_envs_alive(make):
    manager = make.launched(
        many(envs.CounterEnv, 3, length=1), wait_num=3, step_wait_timeout=0, episode_num=1
    )
    assert set(manager.step({0: 0, 1: 0})) == {0, 1}
    wait_state(manager, 0, "DONE")
    assert set(manager.step({2: 0})) == {2}
    wait_state(manager, 2, "DONE")
    assert manager.done


def test_timeout_none_waits_for_all(make, signals):
    gates, fns = gated(signals, 3)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=None)
    call = Background(manager.step, actions_for(range(3)))
    gates[0].post()
    gates[1].post()
    assert call.running
    gates[2].post()
    assert set(call.result()) == {0, 1, 2}


def test_step_wait_timeout_gathers_those_who_come_within_it(make, signals):
    gates, fns = gated(signals, 3)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=20.0)
    call = Background(manager.step, actions_for(range(3)))
    for gate in gates:
        gate.post()
    assert set(call.result(15.0)) == {0, 1, 2}, "all pending are in: no need to wait out the 20 s"


def test_step_wait_timeout_passes(make, signals):
    gates, fns = gated(signals, 2)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0.2)
    gates[0].post()
    assert set(Background(manager.step, {0: 0, 1: 0}).result(10.0)) == {0}
    gates[1].post()
    assert step_until(manager, {}, {1})[1].obs.tolist() == [1, 0, 1]


def test_only_done_results_in_hand_it_goes_on_until_one_is_not_done(make, signals):
    gates = [signals(f"gate{i}") for i in range(3)]
    fns = [
        lambda: envs.CounterEnv(0, gate=gates[0], length=1),
        lambda: envs.CounterEnv(1, gate=gates[1], length=1),
        lambda: envs.CounterEnv(2, gate=gates[2]),
    ]
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0)
    call = Background(manager.step, actions_for(range(3)))
    gates[0].post()
    gates[1].post()
    wait_state(manager, 0, "RUN")
    assert call.running
    gates[2].post()
    result = call.result()
    assert 2 in result and not result[2].done
    rest = {0, 1} - set(result)
    if rest:
        result.update(step_until(manager, {}, rest))
    assert all(result[i].done and result[i].obs.tolist() == [i, 0, 1] for i in (0, 1))


def test_only_done_results_and_nothing_else_pending(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=1), wait_num=1, step_wait_timeout=0)
    result = step_until(manager, {0: 0, 1: 0})
    assert all(ts.done for ts in result.values())


def test_late_results_keep_their_own_obs(make, signals):
    gates, fns = gated(signals, 2)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0)
    gates[0].post(5)
    assert set(manager.step({0: 0, 1: 0})) == {0}
    for t in range(2, 6):
        assert manager.step({0: 0})[0].obs.tolist() == [0, 0, t]
    gates[1].post()
    late = step_until(manager, {}, {1})
    assert late[1].obs.tolist() == [1, 0, 1] and float(late[1].reward) == 101.0
    assert manager.step({}) == {}


def test_ready_obs_leaves_out_who_is_stepping_and_is_empty_when_all_are(make, signals):
    gates, fns = gated(signals, 2)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0)
    gates[0].post()
    manager.step({0: 0, 1: 0})
    assert {i: o.tolist() for i, o in manager.ready_obs.items()} == {0: [0, 0, 1]}
    assert list(manager.ready_obs_id) == [0] == list(manager.ready_env)
    manager.send([0], [0])
    assert manager.ready_obs == {}
    assert list(manager.ready_obs_id) == []


@pytest.mark.parametrize("envs_per_worker", [1, 2, 4])
def test_a_worker_with_several_envs_gives_each_result_as_soon_as_it_is_there(make, signals, envs_per_worker):
    gates, fns = gated(signals, 4)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0, envs_per_worker=envs_per_worker)
    gates[0].post()
    assert set(manager.step(actions_for(range(4)))) == {0}
    for gate in gates[1:]:
        gate.post()
    got = step_until(manager, {}, {1, 2, 3})
    assert {i: ts.obs.tolist() for i, ts in got.items()} == {i: [i, 0, 1] for i in (1, 2, 3)}


@pytest.mark.case("F12")
@kinds("async_subprocess-fork", "async_subprocess-spawn", "async_subprocess-forkserver")
def test_reset_all_while_one_is_stepping(make, signals):
    gates, fns = gated(signals, 3)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0)
    gates[0].post()
    assert set(manager.step(actions_for(range(3)))) == {0}
    call = Background(manager.reset)
    for i in (1, 2):
        wait_state(manager, i, "RESET")  # asked for, and the steps are still under way
    assert call.running
    for gate in gates[1:]:
        gate.post()
    call.result()
    obs = wait_ready(manager)
    assert {i: o.tolist() for i, o in obs.items()} == {i: [i, 1, 0] for i in range(3)}
    for gate in gates:
        gate.post()
    got = step_until(manager, actions_for(range(3)))
    assert {i: ts.obs.tolist() for i, ts in got.items()} == {i: [i, 1, 1] for i in range(3)}
    assert manager.step({}) == {}


@pytest.mark.case("F12")
def test_reset_all_while_two_of_one_worker_are_stepping(make, signals):
    gates, fns = gated(signals, 4)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0, envs_per_worker=2)
    gates[0].post()
    assert set(manager.step(actions_for(range(4)))) == {0}
    call = Background(manager.reset, [{"start": 10 * i} for i in range(4)])
    for i in range(4):
        wait_state(manager, i, "RESET")
    assert call.running, "env 0 shares its worker with one that steps"
    for gate in gates[1:]:
        gate.post()
    call.result()
    assert {i: o.tolist() for i, o in manager.ready_obs.items()} == {i: [i, 1, 10 * i] for i in range(4)}
    for gate in gates:
        gate.post()
    got = step_until(manager, actions_for(range(4)))
    assert {i: ts.obs.tolist() for i, ts in got.items()} == {i: [i, 1, 10 * i + 1] for i in range(4)}
    assert manager.step({}) == {}


@pytest.mark.case("F12")
def test_reset_of_another_env_leaves_pending_results_alone(make, signals):
    gates, fns = gated(signals, 3)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0)
    gates[0].post()
    manager.step(actions_for(range(3)))
    manager.reset({0: {}})
    assert wait_ready(manager, [0])[0].tolist() == [0, 1, 0]
    gates[1].post()
    gates[2].post()
    got = step_until(manager, {}, {1, 2})
    assert {i: ts.obs.tolist() for i, ts in got.items()} == {1: [1, 0, 1], 2: [2, 0, 1]}


@pytest.mark.case("O17")
def test_a_result_that_is_in_but_not_taken_is_dropped_by_reset(make, signals):
    gates, fns = gated(signals, 2)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0)
    gates[0].post()
    assert set(manager.step({0: 0, 1: 0})) == {0}
    gates[1].post()
    manager.reset({1: {"start": 40}})
    assert wait_ready(manager, [1])[1].tolist() == [1, 1, 40]
    gates[1].post()
    got = step_until(manager, {1: 0}, {1})
    assert got[1].obs.tolist() == [1, 1, 41]


@pytest.mark.case("O04")
@pytest.mark.parametrize("envs_per_worker", [1, 2])
@in_start_methods
def test_an_attribute_waits_for_the_steps_turn_and_takes_no_ones_reply(make, signals, envs_per_worker):
    gates, fns = gated(signals, 2)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0, envs_per_worker=envs_per_worker)
    gates[0].post()
    assert set(manager.step({0: 0, 1: 0})) == {0}
    sent = Sent(manager)
    call = Background(lambda: manager.steps)
    sent.wait(2)
    assert call.running
    gates[1].post()
    assert call.result() == [1, 1]
    assert step_until(manager, {}, {1})[1].obs.tolist() == [1, 0, 1]
    assert manager.step({}) == {}


@pytest.mark.case("O04")
@pytest.mark.parametrize("envs_per_worker", [1, 2])
@in_start_methods
def test_a_seed_sent_while_a_step_is_pending(make, signals, envs_per_worker):
    gates, fns = gated(signals, 2)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0, envs_per_worker=envs_per_worker)
    gates[0].post()
    assert set(manager.step({0: 0, 1: 0})) == {0}
    within(10, manager.seed, 50)
    sent = Sent(manager)
    call = Background(manager.reset, {0: {"start": 7}})  # with its seed
    sent.wait()
    gates[1].post()
    call.result()
    assert manager.ready_obs[0].tolist() == [0, 1, 7]
    assert step_until(manager, {}, {1})[1].obs.tolist() == [1, 0, 1]
    assert manager.seeds == [[None, 50], [None]]
    manager.reset({1: {}})
    assert manager.seeds == [[None, 50], [None, 51]]


def test_done_is_false_while_a_result_is_pending(make, signals):
    gates, fns = gated(signals, 2, length=1)
    manager = make.launched(fns, wait_num=1, step_wait_timeout=0, episode_num=1)
    gates[0].post()
    call = Background(manager.step, {0: 0, 1: 0})
    assert not manager.done
    gates[1].post()
    got = call.result()
    if set(got) != {0, 1}:
        step_until(manager, {}, {0, 1} - set(got))
    wait_state(manager, 1, "DONE")
    assert manager.done
