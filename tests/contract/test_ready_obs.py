"""``ready_obs``: never early (O09), never without end (O10)."""

from __future__ import annotations

import pytest

from envmgr import EnvManagerError, EnvResetError, EnvState, EnvTimeoutError
from tests.helpers import envs
from tests.helpers.managers import (
    actions_for,
    in_base_and_start_methods,
    in_every_process_kind,
    in_processes,
    many,
    state_of,
    step_until,
    wait_ready,
    wait_state,
)
from tests.helpers.sync import Background, Log, within


@in_base_and_start_methods
def test_right_after_launch_it_waits_for_an_env(make):
    manager = make(many(envs.CounterEnv, 2))
    manager.launch()
    obs = manager.ready_obs
    assert obs and all(o.tolist() == [i, 0, 0] for i, o in obs.items())
    assert list(manager.ready_obs_id) == sorted(manager.ready_obs_id)


@in_processes
def test_it_waits_while_all_are_being_reset(make, signals):
    manager = make.launched(many(envs.CounterEnv, 2, length=1, reset_gate=signals("gate")))
    manager.step({0: 0, 1: 0})
    call = Background(lambda: manager.ready_obs)
    assert [state_of(manager, i) for i in (0, 1)] == ["RESET", "RESET"]
    assert call.running
    signals("gate").post(2)
    obs = call.result()
    assert obs and all(o.tolist() == [i, 1, 0] for i, o in obs.items())


@pytest.mark.case("O09")
@in_base_and_start_methods
def test_run_means_that_its_observation_can_be_read(make, signals):
    """Looked at in the very moment after each automatic reset, which waits until somebody looks."""
    gate, looks = signals("gate"), 0
    manager = make.launched(many(envs.CounterEnv, 3, length=1, reset_gate=gate))

    def first_in_run(ids):
        while not (new := [i for i in ids if EnvState(manager.env_states[i]) is EnvState.RUN]):
            pass
        return new, manager.ready_obs

    for episode in range(1, 21):
        if make.is_base:
            gate.post(3)  # where the resets are in the step itself
        step_until(manager, actions_for(range(3)))
        waiting = set(range(3))
        if not make.is_base:
            assert [state_of(manager, i) for i in waiting] == ["RESET"] * 3
        while waiting:
            if not make.is_base:
                gate.post()
            new, obs = within(20, first_in_run, waiting)
            assert {i: obs[i].tolist() for i in new} == {i: [i, episode, 0] for i in new}
            looks += len(new)
            waiting.difference_update(new)
    assert looks == 60


@pytest.mark.case("O10")
@in_processes
def test_with_every_env_in_error_it_raises(make):
    manager = make.launched(many(envs.AbnormalEnv, 2, at=1))
    manager.step({0: 0, 1: 0})
    assert [state_of(manager, i) for i in (0, 1)] == ["ERROR", "ERROR"]
    with pytest.raises(EnvManagerError, match=r"(?s)ERROR.*reset"):
        within(10, lambda: manager.ready_obs)
    manager.reset()
    assert wait_ready(manager)[0].tolist() == [0, 1, 0]


@pytest.mark.case("O10")
def test_with_every_env_in_need_of_a_reset_it_raises(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=1), auto_reset=False)
    manager.step({0: 0, 1: 0})
    with pytest.raises(EnvManagerError, match=r"(?s)NEED_RESET.*reset"):
        within(10, lambda: manager.ready_obs)
    manager.reset()
    assert wait_ready(manager)[1].tolist() == [1, 1, 0]


@pytest.mark.case("O10")
@in_base_and_start_methods
def test_after_a_reset_that_failed_in_the_background_it_raises(make, tmp_path):
    log = Log(tmp_path / "log")
    manager = make.launched(
        many(envs.FaultyEnv, 1, length=1, reset_fault="raise", at_reset=2, log=log),
        max_retry=2,
        retry_waiting_time=0.01,
    )
    try:
        manager.step({0: 0})
    except EnvResetError:
        assert make.is_base, "where resets are in the background, the step's own result comes first"
    else:
        with pytest.raises(EnvResetError, match="boom in user code") as caught:
            within(10, lambda: manager.ready_obs)
        assert caught.value.env_id == 0
        assert isinstance(caught.value.__cause__, envs.Boom)
    assert len(log.lines("fault")) == 2
    assert manager.closed


@pytest.mark.case("O10", "O19")
@in_every_process_kind
def test_reset_timeout_bounds_it(make, signals):
    manager = make.launched(
        many(envs.CounterEnv, 1, length=1, reset_gate=signals("gate")),
        reset_timeout=1.1,
        max_retry=1,
        close_grace=0.5,
    )
    manager.step({0: 0})
    with pytest.raises((EnvTimeoutError, EnvResetError)) as caught:
        within(15, lambda: manager.ready_obs)
    error = caught.value if isinstance(caught.value, EnvTimeoutError) else caught.value.__cause__
    assert isinstance(error, EnvTimeoutError)
    assert caught.value.env_id == 0
    assert "reset_timeout" in str(caught.value) + str(error) or "1.1" in str(caught.value) + str(error)


def test_ids_and_envs_agree(make):
    manager = make.launched(many(envs.CounterEnv, 3, length=1), auto_reset=False)
    assert list(manager.ready_obs) == list(manager.ready_obs_id) == list(manager.ready_env) == [0, 1, 2]
    manager.step({1: 0})
    wait_state(manager, 1, "NEED_RESET")
    assert list(manager.ready_obs) == list(manager.ready_obs_id) == list(manager.ready_env) == [0, 2]
    assert list(manager.active_env) == [0, 2]


def test_ready_imgs(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    imgs = manager.ready_imgs
    assert {i: (img.shape, int(img[0, 0, 0])) for i, img in imgs.items()} == {
        0: ((2, 2, 3), 0),
        1: ((2, 2, 3), 1),
    }
