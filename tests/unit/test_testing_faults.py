"""``envmgr.testing.faults``: when a fault is due, what it does to a result, what the ledger remembers."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from envmgr.envs.adapt import adapt
from envmgr.envs.toy import CounterEnv, OldGymCounterEnv, TimestepCounterEnv
from envmgr.testing.faults import (
    EXIT_CODE,
    KINDS,
    Fault,
    FaultError,
    FaultyEnv,
    Ledger,
    Record,
    with_faults,
)

ROOT = Path(__file__).parents[2]


def steps_that_fail(env, episodes, length):
    """(episode, step) of each step that raised; the step is not tried again."""
    failed = []
    for episode in range(episodes):
        env.reset()
        for t in range(1, length + 1):
            try:
                env.step(0)
            except FaultError:
                failed.append((episode, t))
                break
    return failed


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        (Fault("raise"), [(0, 1), (1, 1), (2, 1)]),
        (Fault("raise", at_step=3), [(0, 3), (1, 3), (2, 3)]),
        (Fault("raise", at_step=range(2, 9)), [(0, 2), (1, 2), (2, 2)]),
        (Fault("raise", in_episode=1), [(1, 1)]),
        (Fault("raise", at_step=4, in_episode={0, 2}), [(0, 4), (2, 4)]),
        (Fault("raise", probability=0.0), []),
        (Fault("raise", at_step=6), []),
    ],
)
def test_when(fault, failed):
    assert steps_that_fail(FaultyEnv(None, [fault]), 3, 5) == failed


def test_a_step_that_failed_was_not_taken():
    env = FaultyEnv(None, [Fault("raise", at_step=2)])
    env.reset()
    assert env.step(0)[0].tolist() == [0, 0, 1]
    for _ in range(2):
        with pytest.raises(FaultError):
            env.step(0)
    assert (env.t, env.env.t) == (1, 1)


def test_in_reset_the_episode_is_the_one_that_would_begin():
    env = FaultyEnv(None, [Fault("raise", where="reset", in_episode=1)])
    assert env.reset()[0].tolist() == [0, 0, 0]
    for _ in range(2):
        with pytest.raises(FaultError):
            env.reset()
    assert (env.episode, env.env.episode) == (0, 0)


def test_in_build_nothing_is_built():
    built = []
    with pytest.raises(FaultError):
        FaultyEnv(lambda: built.append(1), [Fault("raise", where="build")])
    assert not built


def test_in_close():
    env = FaultyEnv(None, [Fault("raise", where="close")])
    with pytest.raises(FaultError):
        env.close()


class TestProbability:
    def draws(self, seed, env_id=0, **kwargs):
        env = FaultyEnv(None, [Fault("raise", probability=0.3)], seed=seed, env_id=env_id, **kwargs)
        return steps_that_fail(env, 50, 5)

    def test_the_same_seed_gives_the_same_faults(self):
        assert self.draws(1) == self.draws(1)
        assert len({tuple(self.draws(1)), tuple(self.draws(2)), tuple(self.draws(1, env_id=1))}) == 3

    def test_about_as_often_as_was_said(self):
        env = FaultyEnv(None, [Fault("slow", probability=0.3, amount=0.0)], seed=0)
        env.reset()
        drawn = sum(env.due("step") is not None for _ in range(2000))
        assert 500 < drawn < 700

    def test_a_renewed_instance_draws_anew_where_there_is_a_ledger(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger")
        first, second = self.draws(1, ledger=ledger), self.draws(1, ledger=ledger)
        assert first != second
        other = Ledger(tmp_path / "other")
        assert [self.draws(1, ledger=other) for _ in range(2)] == [first, second]

    def test_the_global_generators_are_left_alone(self):
        import random

        random.seed(5)
        np.random.seed(5)
        before = random.getstate(), np.random.get_state()[1].tolist()
        self.draws(3)
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before


class TestLedger:
    def test_once_over_instances_and_envs(self, tmp_path):
        faults = [Fault("raise", at_step=2, times=1)]
        envs = [FaultyEnv(None, faults, env_id=i, ledger=tmp_path / "ledger") for i in (0, 1, 0)]
        assert [steps_that_fail(env, 2, 3) for env in envs] == [[(0, 2)], [], []]
        (record,) = Ledger(tmp_path / "ledger").records("fault")
        assert record == Record("fault", "raise", "step", 0, 0, 0, 2, os.getpid(), faults[0].key)
        assert [env.instance for env in envs] == [0, 0, 1]

    def test_in_the_second_instance_only(self, tmp_path):
        faults = [Fault("raise", in_instance=1)]
        envs = [FaultyEnv(None, faults, ledger=tmp_path / "ledger") for _ in range(3)]
        assert [len(steps_that_fail(env, 1, 1)) for env in envs] == [0, 1, 0]

    def test_faults_that_differ_are_counted_apart(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger")
        for fault in (Fault("raise", at_step=1, times=2), Fault("raise", at_step=2, times=2)):
            assert [ledger.claim(fault.key, 2) for _ in range(3)] == [True, True, False]

    def test_of_many_who_ask_at_once_just_so_many_have_it(self, tmp_path):
        ledger, start = Ledger(tmp_path / "ledger"), threading.Barrier(8)

        def ask(_):
            start.wait()
            return sum(ledger.claim("key", 5) for _ in range(3))

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(ask, range(8))) == 5

    def test_it_knows_what_killed_a_process(self, tmp_path):
        program = (
            "import sys; from envmgr.testing.faults import Fault, FaultyEnv\n"
            "env = FaultyEnv(None, [Fault('exit', at_step=1, times=1)], env_id=3, ledger=sys.argv[1])\n"
            "env.reset(); print(env.step(0)[0].tolist())"
        )
        runs = [
            subprocess.run(
                [sys.executable, "-c", program, str(tmp_path / "ledger")],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=50,
                check=False,
            )
            for _ in range(2)
        ]
        assert [run.returncode for run in runs] == [EXIT_CODE, 0]
        assert runs[1].stdout == "[3.0, 0.0, 1.0]\n"
        (record,) = Ledger(tmp_path / "ledger").records("fault")
        assert (record.kind, record.env_id, record.step) == ("exit", 3, 1)

    def test_an_empty_one(self, tmp_path):
        assert Ledger(tmp_path / "nothing").records() == []

    @pytest.mark.parametrize("fault", [Fault("raise", times=1), Fault("raise", in_instance=0)])
    def test_counting_without_one_is_refused(self, fault):
        with pytest.raises(ValueError, match="ledger"):
            FaultyEnv(None, [fault])


class TestResults:
    @pytest.mark.parametrize("make", [CounterEnv, OldGymCounterEnv, TimestepCounterEnv])
    def test_misfit_and_rubbish_and_abnormal(self, make):
        env = FaultyEnv(
            make,
            [
                Fault("misfit", at_step=1, in_episode=0),
                Fault("abnormal", at_step=2, in_episode=0),
                Fault("rubbish", at_step=3, in_episode=0),
            ],
        )
        env.reset()
        plain = make()
        plain.reset()
        for change in ("obs", "info"):
            got, as_it_was = env.step(0), plain.step(0)
            assert type(got) is type(as_it_was) and len(got) == len(as_it_was)
            assert list(got[1:-1]) == list(as_it_was[1:-1])
            if change == "obs":
                assert got[0].shape == (13, 1, 7) and got[-1] == as_it_was[-1]
            else:
                assert got[-1] == {"abnormal": True}
                assert got[0].tolist() == as_it_was[0].tolist()
        assert env.step(0) is None

    @pytest.mark.parametrize(("make", "pair"), [(CounterEnv, True), (OldGymCounterEnv, False)])
    def test_misfit_in_reset(self, make, pair):
        result = FaultyEnv(make, [Fault("misfit", where="reset")]).reset()
        assert (result[0] if pair else result).shape == (13, 1, 7)

    def test_harmless_kinds_change_nothing(self, capsys):
        faults = [
            Fault("leak_fds", at_step=1, amount=0),
            Fault("leak_memory", at_step=2, amount=0),
            Fault("slow", at_step=3, amount=0),
            Fault("print", at_step=4, amount=0.01),
        ]
        assert all(KINDS[fault.kind].harmless for fault in faults)
        env = FaultyEnv(None, faults)
        env.reset()
        assert [env.step(0)[0].tolist() for _ in range(4)] == [[0, 0, t] for t in range(1, 5)]
        assert capsys.readouterr().out.count("x") == 10 * 1023

    def test_leaks_leak(self):
        program = (
            "import os, psutil; from envmgr.testing.faults import KINDS\n"
            "me = psutil.Process(); fds, uss = me.num_fds(), me.memory_full_info().uss\n"
            "KINDS['leak_fds'].strike(5); KINDS['leak_memory'].strike(20)\n"
            "assert me.num_fds() == fds + 5\n"
            "assert me.memory_full_info().uss > uss + 19 * 2**20"
        )
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=50, check=True)


class TestTransparency:
    def test_attributes_are_those_of_the_env(self):
        env = FaultyEnv(partial(CounterEnv, 4))
        assert env.observation_space == env.env.observation_space
        assert env.episode == -1
        assert env.unwrapped is env.env
        with pytest.raises(AttributeError):
            env.no_such_thing  # noqa: B018

    @pytest.mark.parametrize(
        ("make", "style"),
        [(CounterEnv, "gymnasium"), (TimestepCounterEnv, "timestep"), (OldGymCounterEnv, "gym_old")],
    )
    def test_the_style_of_the_env_is_kept(self, make, style):
        adapted = adapt(FaultyEnv(make))
        assert adapted.style == adapt(make()).style
        adapted.reset(3)
        assert len(adapted.step(0)) == 5
        assert adapted.style == style

    def test_seeds_and_options_reach_the_env(self):
        ours = adapt(FaultyEnv(lambda: gymnasium.make("CartPole-v1")))
        theirs = gymnasium.make("CartPole-v1")
        assert ours.reset(7, {"options": {"low": -0.01}})[0].tolist() == (
            theirs.reset(seed=7, options={"low": -0.01})[0].tolist()
        )
        ours.close()
        theirs.close()

    def test_an_env_a_class_or_nothing(self):
        assert FaultyEnv(CounterEnv(2)).env.env_id == 2
        assert FaultyEnv(CounterEnv).env.env_id == 0
        assert FaultyEnv(None, env_id=5).env.env_id == 5

    def test_env_fns_pickle(self, tmp_path):
        fns = with_faults(
            [CounterEnv, None], [Fault("raise", at_step=range(2, 4))], seed=1, ledger=tmp_path / "l"
        )
        first, second = (pickle.loads(pickle.dumps(fn))() for fn in fns)
        assert (first.env_id, second.env_id) == (0, 1)
        assert steps_that_fail(second, 1, 3) == [(0, 2)]
        assert [r.env_id for r in Ledger(tmp_path / "l").records("fault")] == [1]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"kind": "explode"}, "segfault"),
        ({"kind": "raise", "where": "render"}, "reset"),
        ({"kind": "raise", "probability": 1.5}, "probability"),
        ({"kind": "raise", "times": 0}, "times"),
        ({"kind": "raise", "amount": 1.0}, "amount"),
        ({"kind": "sleep", "amount": -1.0}, "amount"),
        ({"kind": "rubbish", "where": "close"}, "step or a reset"),
        ({"kind": "abnormal", "where": "reset"}, "step"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        Fault(**wrong)
