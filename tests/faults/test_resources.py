"""Nothing grows and nothing is left: launches and closes, many steps, two managers (S01, S04, S05, S07)."""

from __future__ import annotations

import gc
import os
import threading
from functools import partial

import numpy as np
import psutil
import pytest

from envmgr import create_env_manager
from tests.helpers import envs
from tests.helpers.managers import (
    CONTEXTS,
    actions_for,
    in_every_process_kind,
    in_processes,
    many,
    step_until,
    wait_ready,
)


@pytest.fixture
def no_collector():
    """What is closed is given back then, not when the garbage collector comes by some day."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def counts():
    """Processes, descriptors and threads of this process, now."""
    me = psutil.Process()
    return len(me.children(recursive=True)), len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.case("S04", "S01")
@pytest.mark.parametrize(("kind", "same_manager"), [("subprocess", True), ("async_subprocess", False)])
def test_twenty_launches_and_closes(kind, same_manager, capfd, no_collector):
    def manager_of():
        return create_env_manager({"type": kind, "context": "fork"}, many(envs.CounterEnv, 3))

    manager = manager_of()
    seen = []
    for _ in range(21):
        if not same_manager:
            manager = manager_of()
        manager.launch()
        wait_ready(manager)
        step_until(manager, actions_for(range(3)))
        manager.close()
        seen.append(counts())
    assert seen[-1] == seen[0]
    assert capfd.readouterr().err == ""


@pytest.mark.case("S04", "S01")
@pytest.mark.timeout(300)  # 42 interpreters one after the other
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_launches_and_closes_under_other_start_methods(context, capfd, no_collector):
    seen = []
    for _ in range(21):
        with create_env_manager(
            {"type": "subprocess", "context": context}, many(envs.CounterEnv, 1)
        ) as manager:
            manager.launch()
            wait_ready(manager)
        seen.append(counts())
    assert seen[-1] == seen[0]
    assert capfd.readouterr().err == ""


@pytest.mark.case("S04")
@in_processes
def test_renewals_leave_nothing(make):
    manager = make.launched(
        many(envs.FaultyEnv, 2, step_fault="exit", at_step=2), on_error="reset", max_renewals=100
    )
    seen = []
    for _ in range(6):
        assert step_until(manager, {0: 0})[0].obs.tolist() == [0, 0, 1]
        assert step_until(manager, {0: 0})[0].info["abnormal"]
        wait_ready(manager)
        seen.append(counts())
    assert seen[-1] == seen[0]


def memory(pids):
    """Bytes of its own that each process has."""
    return [psutil.Process(pid).memory_full_info().uss for pid in (os.getpid(), *pids)]


@pytest.mark.case("S05")
@pytest.mark.parametrize(
    ("make", "face"),
    [
        ("subprocess-fork", "dict"),
        ("async_subprocess-fork", "dict-infos"),
        ("subprocess-fork", "arrays"),
        ("async_subprocess-spawn", "arrays"),
        ("subprocess-forkserver", "dict-infos"),
    ],
    indirect=["make"],
)
def test_memory_is_flat_over_fifty_thousand_steps(make, face):
    n = 10
    fns = many(envs.CounterEnv, n, length=20, infos=face == "dict-infos")
    manager = make(fns, envs_per_worker=5)
    manager.launch()
    wait_ready(manager)
    pids = sorted(set(manager.where_pid))
    before = counts()
    if face == "arrays":
        manager.reset_arrays()

    def run(rounds):
        for _ in range(rounds):
            if face == "arrays":
                manager.step_arrays(np.zeros(n, np.int64))
            else:
                manager.step(actions_for(manager.ready_obs))
        gc.collect()

    run(1000)
    early = memory(pids)
    run(5000 if face == "arrays" else 5600)
    late = memory(pids)
    assert sum(row["steps"] for row in manager.stats().values()) >= 50_000
    grown = [b - a for a, b in zip(early, late, strict=True)]
    assert max(grown) < 3 << 20, f"bytes gained by the parent and the workers: {grown}"
    assert counts() == before


LOADED = """
manager = make(many(envs.ModulesEnv, 1))
manager.launch()
log.add("loaded", *manager.loaded[0])
manager.close()
"""

HEAVY = ("torch", "ray", "gym", "matplotlib", "pandas", "tensorflow")


@pytest.mark.case("S06")
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_worker_loads_nothing_heavy(script, context, tmp_path, monkeypatch):
    """The modules are stand-ins that any import would find, so that it matters not what is installed."""
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    for name in HEAVY:
        (fakes / f"{name}.py").write_text("")
    monkeypatch.setenv("ENVMGR_TEST_PATH", str(fakes))
    body = 'sys.path.insert(0, os.environ["ENVMGR_TEST_PATH"])\n' + LOADED.strip() + "\n"
    one = script(body, "subprocess", context)
    assert one.wait(40) == 0, one.err
    (words,) = one.log.lines("loaded")
    assert "numpy" in words and "envmgr" in words
    assert not set(HEAVY) & set(words)


@pytest.mark.case("S07")
@in_every_process_kind
def test_two_managers_in_one_process_are_strangers(make):
    one = make.launched(many(envs.CounterEnv, 2))
    two = make.launched([partial(envs.CounterEnv, i + 10) for i in range(3)])
    for t in range(1, 20):
        a = step_until(one, {0: 0, 1: 0})
        b = step_until(two, actions_for(range(3)))
        assert {i: ts.obs.tolist() for i, ts in a.items()} == {i: [i, 0, t] for i in range(2)}
        assert {i: ts.obs.tolist() for i, ts in b.items()} == {i: [i + 10, 0, t] for i in range(3)}
    for pid in one.where_pid:
        psutil.Process(pid).kill()
    assert step_until(two, {0: 0})[0].obs.tolist() == [10, 0, 20]
    one.close()
    assert step_until(two, {1: 0})[1].obs.tolist() == [11, 0, 20]
    three = make.launched(many(envs.CounterEnv, 1))
    two.close()
    assert step_until(three, {0: 0})[0].obs.tolist() == [0, 0, 1]
