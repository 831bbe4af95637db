"""Build, launch, close, launch again; spaces before launch; who builds the envs, and how often."""

from __future__ import annotations

import os
import re
from functools import partial

import psutil
import pytest

import envmgr
from envmgr import (
    AsyncSubprocessEnvManager,
    BaseEnvManager,
    EnvInitError,
    EnvManagerError,
    EnvState,
    ManagerClosedError,
    SpaceMismatchError,
    SyncSubprocessEnvManager,
    create_env_manager,
    get_env_manager_cls,
)
from tests.helpers import envs
from tests.helpers.managers import (
    actions_for,
    error_of,
    everywhere,
    in_base_and_start_methods,
    in_processes,
    in_start_methods,
    many,
    wait_ready,
)
from tests.helpers.sync import Log, wait_until

CLASSES = {
    "base": BaseEnvManager,
    "subprocess": SyncSubprocessEnvManager,
    "async_subprocess": AsyncSubprocessEnvManager,
}


@everywhere
def test_launch_step_close_and_again(make):
    manager = make(many(envs.CounterEnv, 2))
    for _ in range(2):
        manager.launch()
        assert not manager.closed
        obs = wait_ready(manager)
        assert {i: o.tolist() for i, o in obs.items()} == {0: [0, 0, 0], 1: [1, 0, 0]}
        result = manager.step({0: 1, 1: 2})
        assert {i: ts.obs.tolist() for i, ts in result.items()} == {0: [0, 0, 1], 1: [1, 0, 1]}
        manager.close()
        assert manager.closed


@pytest.mark.parametrize("name", CLASSES)
def test_registered_classes_are_built_with_env_fn_and_cfg(name):
    cls = CLASSES[name]
    assert get_env_manager_cls({"type": name}) is cls
    assert envmgr.ENV_MANAGER_REGISTRY.get(name) is cls
    with cls(many(envs.CounterEnv, 2), {"episode_num": 1}) as manager:
        assert manager.env_num == 2
        assert manager.closed is False or manager.closed is True
    with cls(env_fn=many(envs.CounterEnv, 1), cfg=cls.default_config()) as manager:
        manager.launch()
        assert wait_ready(manager)[0].tolist() == [0, 0, 0]


def test_with_closes(make):
    with make(many(envs.CounterEnv, 2)) as manager:
        manager.launch()
        wait_ready(manager)
    assert manager.closed


@pytest.mark.case("F07")
def test_close_twice_and_without_launch(make):
    manager = make(many(envs.CounterEnv, 2))
    manager.close()
    manager.launch()
    manager.close()
    manager.close()
    assert manager.closed


@in_start_methods
def test_closing_without_launch_after_the_spaces_were_read(make):
    manager = make(many(envs.CounterEnv, 2))
    assert manager.observation_space.shape == (3,)
    children = psutil.Process().children(recursive=True)
    assert children
    manager.close()
    _, alive = psutil.wait_procs(
        [c for c in children if "forkserver" not in _cmd(c) and "resource_tracker" not in _cmd(c)], 5
    )
    assert not alive


def _cmd(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return "gone"


USES = {
    "step": lambda m: m.step({0: 0}),
    "step of nothing": lambda m: m.step({}),
    "reset": lambda m: m.reset(),
    "reset of some": lambda m: m.reset({0: {}}),
    "ready_obs": lambda m: m.ready_obs,
    "ready_imgs": lambda m: m.ready_imgs,
    "random_action": lambda m: m.random_action(),
    "reset_arrays": lambda m: m.reset_arrays(),
    "step_arrays": lambda m: m.step_arrays([0, 0]),
    "send": lambda m: m.send([0, 0], [0, 1]),
    "recv": lambda m: m.recv(),
}


@pytest.mark.case("A07", "F08", "O10")
@pytest.mark.parametrize("use", USES)
def test_use_before_launch_says_so(make, use):
    manager = make(many(envs.CounterEnv, 2))
    with pytest.raises(ManagerClosedError, match=r"(?is)not.{0,20}launched.*launch") as caught:
        USES[use](manager)
    assert isinstance(caught.value, AssertionError)


@pytest.mark.case("F08")
@everywhere
def test_use_after_close_says_closed_and_how_to_relaunch(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    manager.close()
    for use, call in USES.items():
        error = error_of(ManagerClosedError, call, manager)
        assert re.search(r"(?is)closed.*launch\(", str(error)), use
    manager.launch()
    wait_ready(manager)
    assert manager.step({0: 0})[0].obs.tolist() == [0, 0, 1]


@pytest.mark.case("F08", "O05")
def test_attributes_of_envs_before_launch_and_after_close(make):
    """An AttributeError, so that ``hasattr`` has an answer; and it says what is missing."""
    manager = make(many(envs.CounterEnv, 2))
    with pytest.raises(AttributeError, match="launch"):
        _ = manager.where_pid
    manager.launch()
    assert len(manager.where_pid) == 2
    manager.close()
    with pytest.raises(AttributeError, match=r"(?i)launch|closed"):
        _ = manager.where_pid


@pytest.mark.case("A07")
def test_launch_while_launched_says_what_to_do(make):
    manager = make.launched(many(envs.CounterEnv, 2))
    manager.step({0: 0, 1: 0})
    with pytest.raises(EnvManagerError, match=r"(?is)launched.*(reset|close)\("):
        manager.launch()
    assert manager.step({0: 0})[0].obs.tolist() == [0, 0, 2]


def test_states_over_a_life(make):
    manager = make(many(envs.CounterEnv, 2))
    assert set(manager.env_states) == {0, 1}
    assert {EnvState(s) for s in manager.env_states.values()} <= {EnvState.VOID, EnvState.INIT}
    manager.launch()
    wait_ready(manager)
    assert {EnvState(s) for s in manager.env_states.values()} == {EnvState.RUN}
    manager.close()
    assert {EnvState(s) for s in manager.env_states.values()} == {EnvState.VOID}


def test_states_are_the_numbers_of_the_contract():
    expected = {"VOID": 0, "INIT": 1, "RUN": 2, "RESET": 3, "DONE": 4, "ERROR": 5, "NEED_RESET": 6}
    assert {s.name: int(s) for s in EnvState} == expected


class TestSpaces:
    @pytest.mark.case("A08")
    @in_base_and_start_methods
    def test_spaces_before_launch_and_one_call_of_env_fn_per_env(self, make, tmp_path):
        log = Log(tmp_path / "log")
        manager = make(many(envs.CounterEnv, 3, log=log))
        assert manager.observation_space.shape == (3,)
        assert manager.action_space.n == 1000
        assert manager.env_num == 3
        manager.launch()
        wait_ready(manager)
        assert manager.observation_space.shape == (3,)
        made = log.lines("init")
        assert sorted(words[1] for words in made) == ["0", "1", "2"]
        if not make.is_base:
            assert str(os.getpid()) not in {words[2] for words in made}
        assert manager.where_pid == [int(words[2]) for words in sorted(made)]

    @pytest.mark.parametrize("envs_per_worker", [1, 2, 4])
    @in_processes
    def test_envs_per_worker_says_how_many_processes(self, make, envs_per_worker):
        manager = make.launched(many(envs.CounterEnv, 4), envs_per_worker=envs_per_worker)
        pids = manager.where_pid
        assert len(set(pids)) == 4 // envs_per_worker
        assert os.getpid() not in pids
        assert pids == sorted(pids, key=pids.index), "envs of a worker are neighbours"

    @in_processes
    def test_num_workers_with_an_uneven_split(self, make):
        manager = make.launched(many(envs.CounterEnv, 5), num_workers=2)
        pids = manager.where_pid
        assert sorted(pids.count(p) for p in set(pids)) == [2, 3]
        result = manager.step(actions_for(range(5)))
        assert [result[i].obs.tolist() for i in range(5)] == [[i, 0, 1] for i in range(5)]

    def test_reward_space_is_the_envs_own(self, make):
        manager = make.launched(many(envs.TimestepEnv, 2))
        assert manager.reward_space.shape == (1,)

    @in_start_methods
    def test_envs_run_in_the_main_thread_of_their_worker(self, make):
        manager = make.launched(many(envs.CounterEnv, 2))
        assert manager.where_thread == [True, True]

    def test_envs_of_different_structure_are_refused(self, make):
        manager = make([partial(envs.different_env, 0), partial(envs.different_env, 1, size=4)])
        with pytest.raises(SpaceMismatchError, match=r"(?s)3.*4|4.*3") as caught:
            manager.launch()
        assert caught.value.env_id == 1
        assert "1" in str(caught.value)


@pytest.mark.case("F15")
class TestBadEnvFn:
    @in_base_and_start_methods
    def test_returns_none(self, make):
        manager = make([partial(envs.CounterEnv, 0), envs.no_env])
        with pytest.raises(EnvInitError, match=r"(?i)none") as caught:
            manager.launch()
        assert caught.value.env_id == 1
        assert "return" in str(caught.value), "the usual reason is a forgotten return"

    def test_raises(self, make):
        manager = make([partial(envs.CounterEnv, 0), envs.failing_env_fn])
        with pytest.raises(EnvInitError) as caught:
            manager.launch()
        assert caught.value.env_id == 1
        assert isinstance(caught.value.__cause__, envs.Boom)
        assert "raise_boom" in str(caught.value) and "envs.py" in str(caught.value)

    def test_spaces_of_a_bad_env_fn(self, make):
        manager = make([envs.failing_env_fn])
        with pytest.raises(EnvInitError):
            _ = manager.observation_space

    def test_not_callable(self, make):
        with pytest.raises(EnvManagerError, match=r"(?i)callable"):
            make([partial(envs.CounterEnv, 0), envs.CounterEnv(1)])

    def test_no_env_at_all(self, make):
        with pytest.raises(EnvManagerError, match=r"(?i)env_fn"):
            make([])


def test_lambdas_and_closures_are_env_fns(make):
    manager = make.launched([lambda i=i: envs.CounterEnv(i + 10) for i in range(2)])
    assert manager.ready_obs[1].tolist() == [11, 0, 0]


@in_start_methods
@pytest.mark.case("O06")
def test_closures_under_every_start_method(make):
    offset = 10

    def build(i):
        return lambda: envs.CounterEnv(i + offset)

    manager = make.launched([build(0), build(1)])
    assert manager.ready_obs[1].tolist() == [11, 0, 0]
    assert manager.step({1: 0})[1].obs.tolist() == [11, 0, 1]


@pytest.mark.case("F09")
@everywhere
def test_close_calls_every_envs_close_once(make, tmp_path):
    log = Log(tmp_path / "log")
    manager = make.launched(
        many(envs.CounterEnv, 4, log=log), **({} if make.is_base else {"envs_per_worker": 2})
    )
    manager.close()
    assert sorted(words[1] for words in log.lines("close")) == ["0", "1", "2", "3"]
    manager.close()
    assert len(log.lines("close")) == 4


@in_start_methods
def test_close_leaves_no_worker(make):
    manager = make.launched(many(envs.CounterEnv, 4), envs_per_worker=2)
    pids = set(manager.where_pid)
    manager.close()
    wait_until(lambda: not any(psutil.pid_exists(p) for p in pids), f"workers {pids} to be gone", 2.0)


@in_processes
def test_relaunch_starts_new_workers_and_new_envs(make):
    manager = make.launched(many(envs.CounterEnv, 2, length=2))
    manager.step({0: 0, 1: 0})
    before = set(manager.where_pid)
    manager.close()
    manager.launch()
    assert wait_ready(manager)[0].tolist() == [0, 0, 0]
    assert not before & set(manager.where_pid)
    assert manager.step({0: 0})[0].obs.tolist() == [0, 0, 1]


def test_unknown_manager_name_lists_near_matches():
    with pytest.raises(KeyError, match=r"(?s)subproces\b.*subprocess"):
        create_env_manager({"type": "subproces"}, many(envs.CounterEnv, 1))
    with pytest.raises(KeyError, match="subprocess"):
        get_env_manager_cls({"type": "no_such"})


def test_type_is_missing():
    with pytest.raises(EnvManagerError, match="type"):
        create_env_manager({}, many(envs.CounterEnv, 1))
