"""The soak's judges: each sort of mistake that a manager could make is seen, and a right run has none."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from envmgr.errors import EnvStepError, EnvTimeoutError, WorkerDied
from envmgr.testing.faults import KINDS, Record
from envmgr.testing.soak import Checker, Notice
from envmgr.testing.soak.envs import Board, SoakEnv, soak_faults
from envmgr.testing.soak.phase import Usage
from envmgr.testing.soak.report import Report
from envmgr.testing.soak.tally import ERRORS, OUTSIDE, tally
from envmgr.timestep import BaseEnvTimestep


class Run:
    """Two envs stepped by hand, the way a right manager would; ``spoil`` puts a mistake into it."""

    def __init__(self, path, overruns=lambda _: 0):
        self.board = Board.create(str(path / "board"), 2)
        self.checker = Checker(2, overruns)
        self.envs = [SoakEnv(i, 0, self.board) for i in range(2)]
        self.obs = {}
        for i in range(2):
            self.reset(i)

    def reset(self, i):
        self.obs[i] = self.envs[i].reset()[0]

    def renew(self, i):
        self.envs[i] = SoakEnv(i, self.envs[i].instance + 1, self.board)
        self.reset(i)

    def answer(self, i, action):
        obs, reward, terminated, truncated, info = self.envs[i].step(action)
        self.obs[i] = obs
        info = {**info, "TimeLimit.truncated": True} if truncated else info
        return BaseEnvTimestep(obs, reward, terminated or truncated, info)

    def failed(self, i, error):
        info = {"abnormal": True, "err": error, "TimeLimit.truncated": True}
        return BaseEnvTimestep(self.obs[i], 0.0, True, info)

    def round(self, spoil=None):
        self.checker.ready(self.obs)
        actions = self.checker.sends([0, 1])
        timesteps = {i: self.answer(i, action) for i, action in actions.items()}
        if spoil is not None:
            spoil(timesteps)
        want_reset = self.checker.got(timesteps)
        for i, timestep in timesteps.items():
            if timestep.done:
                self.reset(i)
        return want_reset

    @property
    def wrong(self):
        checker = self.checker
        return checker.lost, checker.duplicated, checker.mixed_up


@pytest.fixture
def run(tmp_path):
    one = Run(tmp_path)
    yield one
    vars(one).clear()  # the board's file is open for as long as somebody holds it


def test_a_right_run_has_nothing_wrong(run):
    for _ in range(300):
        run.round()
    run.checker.ready(run.obs)
    run.checker.ends()
    assert run.wrong == (0, 0, 0) and not run.checker.stories
    assert run.checker.good == [300, 300] == run.board.steps.tolist()
    assert run.envs[0].episode > 3
    assert run.checker.all_back()


def swap(timesteps):
    timesteps[0], timesteps[1] = timesteps[1], timesteps[0]


def swap_obs(timesteps):
    a, b = timesteps[0], timesteps[1]
    timesteps[0], timesteps[1] = a._replace(obs=b.obs), b._replace(obs=a.obs)


def tear(timesteps):
    body = timesteps[1].obs["body"].copy()
    body[300:] = (body[300:] + 1) % 251
    timesteps[1] = timesteps[1]._replace(obs={"head": timesteps[1].obs["head"], "body": body})


def wrong_number(timesteps):
    head = timesteps[1].obs["head"].copy()
    head[3] += 1
    timesteps[1] = timesteps[1]._replace(obs={"head": head, "body": timesteps[1].obs["body"]})


MIXED = {
    "two envs swapped": (swap, 2),
    "two observations swapped": (swap_obs, 2),
    "an observation torn": (tear, 1),
    "a number changed": (wrong_number, 1),
    "another reward": (lambda t: t.update({0: t[0]._replace(reward=1.0)}), 1),
    "an end that is none": (lambda t: t.update({0: t[0]._replace(done=not t[0].done)}), 1),
    "an info from elsewhere": (lambda t: t.update({0: t[0]._replace(info={"t": 1})}), 1),
    "an error in a good timestep": (
        lambda t: t.update({0: t[0]._replace(info={"err": EnvStepError("x")}, done=False)}),
        2,  # that it is not abnormal, and that its observation is not the last good one
    ),
}


@pytest.mark.parametrize("what", MIXED)
def test_what_is_mixed_up_is_seen(run, what):
    spoil, count = MIXED[what]
    run.round()
    run.round(spoil)
    assert run.wrong == (0, 0, count)
    assert len(run.checker.stories) == count


def test_the_answer_to_another_action(run):
    run.round()
    run.checker.ready(run.obs)
    actions = run.checker.sends([0, 1])
    run.checker.got({i: run.answer(i, actions[1 - i]) for i in (0, 1)})
    assert run.wrong == (0, 0, 2)


def test_a_step_that_is_skipped_is_lost(run):
    run.round()
    run.envs[1].step(0)
    run.round()
    assert run.wrong == (1, 0, 0)


def test_an_answer_that_comes_twice(run):
    run.checker.ready(run.obs)
    answers = {i: run.answer(i, action) for i, action in run.checker.sends([0, 1]).items()}
    run.checker.got(answers)
    run.checker.got({1: answers[1]})
    assert run.wrong == (0, 1, 0)
    run.checker.sends([1])
    run.checker.got({1: answers[1]})
    assert run.wrong == (0, 2, 0), "in the place of another answer too"


def test_an_answer_that_never_comes(run):
    run.checker.ready(run.obs)
    actions = run.checker.sends([0, 1])
    run.checker.got({0: run.answer(0, actions[0])})
    assert run.checker.unanswered == 1 and not run.checker.all_back()
    run.checker.ends()
    assert run.wrong == (1, 0, 0)


def test_an_action_that_was_not_sent_after_all_is_not_missed(run):
    run.checker.ready(run.obs)
    run.checker.takes_back(run.checker.sends([0, 1]))
    run.checker.ends()
    assert run.wrong == (0, 0, 0)


class TestObservationsBetweenSteps:
    def test_of_an_env_that_has_not_answered(self, run):
        run.checker.ready(run.obs)
        run.checker.sends([0])
        run.checker.ready(run.obs)
        assert run.wrong == (0, 0, 1)

    def test_that_is_not_the_one_of_the_last_step(self, run):
        old = dict(run.obs)
        run.round()
        run.checker.ready({1: old[1]})
        assert run.wrong == (0, 0, 1)

    def test_that_begins_in_the_middle(self, run):
        run.answer(0, 1)
        run.checker.ready(run.obs)
        assert run.wrong == (0, 0, 1)

    @pytest.mark.parametrize(("overruns", "lost"), [(0, 1), (1, 0)])
    def test_that_leaves_an_episode_out(self, tmp_path, overruns, lost):
        run = Run(tmp_path, lambda _: overruns)
        run.checker.ready(run.obs)
        run.checker.sends([0])
        run.checker.got({0: run.failed(0, EnvTimeoutError("x"))})
        run.reset(0)
        run.reset(0)
        run.checker.ready({0: run.obs[0]})
        assert run.wrong == (lost, 0, 0)

    def test_of_an_episode_that_was_there_already(self, run):
        first = dict(run.obs)
        run.checker.ready(first)
        run.checker.sends([0])
        run.checker.got({0: run.failed(0, EnvStepError("x"))})
        run.checker.ready({0: first[0]})
        assert run.wrong == (0, 1, 0)


class TestAbnormal:
    def test_noticed_and_recovered(self, run):
        for _ in range(3):
            run.round()
        at = (run.envs[1].episode, run.envs[1].t)
        run.checker.ready(run.obs)
        actions = run.checker.sends([0, 1])
        run.checker.got({0: run.answer(0, actions[0]), 1: run.failed(1, WorkerDied("x", pid=5))})
        notice = Notice(1, 0, at[0], at[1] + 1, "WorkerDied", 5, "x")
        assert run.checker.notices == [notice] and not run.checker.recovered
        assert not run.checker.all_back()
        run.renew(1)
        run.checker.ready(run.obs)
        assert run.checker.recovered == [notice] and run.checker.all_back()
        run.round()
        assert run.wrong == (0, 0, 0)

    def test_with_another_observation_than_the_last_good_one(self, run):
        run.checker.ready(run.obs)
        run.checker.sends([0])
        run.answer(0, 1)
        run.checker.got({0: run.failed(0, EnvStepError("x"))})
        assert run.wrong == (0, 0, 1)

    def test_by_the_env_s_own_word_it_wants_a_reset(self, run):
        def say(timesteps):
            timesteps[1] = timesteps[1]._replace(info={**timesteps[1].info, "abnormal": True})

        assert run.round(say) == [1]
        assert [notice.error for notice in run.checker.notices] == ["said"]
        run.reset(1)
        run.round()
        assert run.wrong == (0, 0, 0) and len(run.checker.recovered) == 1


def record(kind="raise", where="step", env_id=0, instance=0, episode=0, step=1, pid=10):
    return Record("fault", kind, where, env_id, instance, episode, step, pid)


def judged(faults, notices=(), recovered=None, *, failed_resets=0, gone=(), all_back=True, **kwargs):
    notices = list(notices)
    return tally(
        faults,
        notices,
        notices if recovered is None else recovered,
        failed_resets=failed_resets,
        gone=gone,
        all_back=all_back,
        **kwargs,
    )


class TestTally:
    @pytest.mark.parametrize("kind", ERRORS)
    def test_a_fault_that_was_told(self, kind):
        out = judged([record(kind)], [Notice(0, 0, 0, 1, ERRORS[kind], 10)], gone={10})
        row = out.rows["step", kind]
        assert (row.made, row.noticed, row.recovered) == (1, 1, 1) and not out.wrong

    @pytest.mark.parametrize(
        "notice", [None, Notice(0, 0, 0, 2, "EnvStepError"), Notice(1, 0, 0, 1, "EnvStepError")]
    )
    def test_one_that_was_not_told_or_of_another_step_or_env(self, notice):
        out = judged([record()], [] if notice is None else [notice])
        assert out.rows["step", "raise"].noticed == 0
        assert any("nobody told of" in text for text in out.wrong)

    def test_one_that_was_told_as_something_else(self):
        out = judged([record()], [Notice(0, 0, 0, 1, "WorkerDied")])
        assert out.rows["step", "raise"].noticed == 0 and out.wrong

    @pytest.mark.parametrize(("pid", "wrong"), [(10, False), (11, True)])
    def test_one_that_was_overtaken_by_a_kill_from_outside(self, pid, wrong):
        faults = [record("hang"), record("kill", OUTSIDE, pid=10)]
        out = judged(faults, [Notice(0, 0, 0, 1, "WorkerDied", pid)], gone={10})
        assert bool(out.wrong) == wrong

    def test_an_env_that_did_not_come_back(self):
        out = judged([record()], [Notice(0, 0, 0, 1, "EnvStepError")], [])
        assert (out.rows["step", "raise"].noticed, out.rows["step", "raise"].recovered) == (1, 0)

    def test_what_is_harmless_is_not_noticed(self):
        out = judged([record("slow"), record("print")])
        assert out.rows["step", "slow"].noticed is None and not out.wrong

    @pytest.mark.parametrize(("error", "wrong", "slow"), [("EnvStepError", 1, 0), ("EnvTimeoutError", 0, 1)])
    def test_what_nobody_made(self, error, wrong, slow):
        out = judged([], [Notice(0, 0, 0, 1, error)])
        assert (len(out.wrong), out.too_slow) == (wrong, slow)

    def test_a_step_that_is_called_abnormal_twice(self):
        notice = Notice(0, 0, 0, 1, "EnvStepError")
        assert judged([record()], [notice, notice]).wrong

    @pytest.mark.parametrize(("gone", "noticed"), [({10}, 1), (set(), 0)])
    def test_a_worker_that_is_killed_from_outside(self, gone, noticed):
        out = judged([record("kill", OUTSIDE)], [Notice(0, 0, 3, 7, "WorkerDied", 10)], gone=gone)
        assert out.rows[OUTSIDE, "kill"].noticed == noticed
        assert bool(out.wrong) == (noticed == 0)

    @pytest.mark.parametrize(("counted", "wrong"), [(2, False), (1, True), (5, False)])
    def test_resets(self, counted, wrong):
        faults = [record(where="reset"), record("sleep", "reset"), record("slow", "reset")]
        out = judged(faults, failed_resets=counted)
        assert (out.rows["reset", "all"].made, out.rows["reset", "all"].noticed) == (2, counted)
        assert bool(out.wrong) == wrong

    @pytest.mark.parametrize("again", [True, False])
    def test_renewals(self, again):
        built = [Record("built", env_id=0)] * (3 if again else 2)
        out = judged([*built, record(where="build", instance=1)])
        assert out.rows["build", "raise"].noticed == int(again) and bool(out.wrong) != again

    def test_neighbours_in_a_shared_worker(self):
        faults = [record("exit")]
        notices = [Notice(0, 0, 0, 1, "WorkerDied", 10), Notice(1, 0, 0, 4, "WorkerDied", 10)]
        assert judged(faults, notices, gone={10}, shared=True).neighbours == 1


class TestReport:
    def report(self, begin=None, end=None, **changes):
        usage = Usage(memory=1 << 20, fds=5, threads=1, processes=0)
        checker = Checker(1)
        checker._envs[0].running = True
        for name, value in changes.items():
            setattr(checker, name, value)
        phase = SimpleNamespace(name="subprocess, fork", envs=1)
        result = SimpleNamespace(
            phase=phase, checker=checker, tally=judged([]), begin=usage, end=usage, seconds=1.0,
            stats={"episodes": 0, "renewals": 0, "timeouts": 0}, broke="",
        )  # fmt: skip
        return Report([result], Usage(usage | (begin or {})), Usage(usage | (end or {})))

    def test_all_is_well(self):
        assert self.report().ok and "all is well" in str(self.report())

    @pytest.mark.parametrize("what", ["lost", "duplicated", "mixed_up"])
    def test_the_three_that_must_be_zero(self, what):
        assert not self.report(**{what: 1}).ok

    @pytest.mark.parametrize(
        "end", [{"fds": 6}, {"threads": 2}, {"processes": 1}, {"memory": 40 << 20}], ids=str
    )
    def test_growth(self, end):
        report = self.report(end=end)
        assert not report.ok and "grew" in str(report)


def test_a_phase_that_cannot_even_be_launched_is_a_complaint(monkeypatch):
    from envmgr.testing.soak import phase as module

    def refuse(*_):
        raise OSError("no processes left")

    monkeypatch.setattr("envmgr.managers.base.BaseEnvManager.launch", refuse)
    result = module.run_phase(module.Phase("subprocess", "fork", envs=2, seconds=0.1))
    assert "no processes left" in result.broke
    report = Report([result], result.begin, result.end)
    assert not report.ok and "no processes left" in str(report)


def test_the_soak_has_every_kind_of_fault():
    faults = soak_faults(0.01)
    assert {fault.kind for fault in faults} == set(KINDS)
    assert sum(f.probability for f in faults if f.where == "step") == pytest.approx(0.01)
    assert {fault.where for fault in faults} == {"step", "reset", "build"}
    assert np.isclose(sum(f.probability for f in soak_faults(1.0) if f.where == "build"), 0.5)
