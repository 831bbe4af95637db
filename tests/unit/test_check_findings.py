"""What facts of an env mean, without an env: each fault is named by its check, and a sound env has none."""

import json
from dataclasses import replace
from typing import Any

import pytest

from envmgr.cli.checking.facts import Facts, Misfit, Seeding, Times, Trouble
from envmgr.cli.checking.finding import Finding, Level, seconds, size
from envmgr.cli.checking.findings import judge
from envmgr.cli.checking.layouts import Cost
from envmgr.cli.checking.report import make_report

CHEAP = Cost(base=1e-6, few=10e-6, each=30e-6, envs=8, cores=2)


def facts(**seen: Any) -> Facts:
    """Those of an env that keeps its word, but for what is given."""
    sound = Facts(
        name="a:b",
        env="Env",
        style="gymnasium",
        factory_bytes=30,
        build_time=0.01,
        observation_space="Box",
        action_space="Discrete(2)",
        leaves=[("", "float32 (3,)")],
        obs_bytes=12,
        step_times=[1e-3] * 50,
        reset_times=[1e-3] * 5,
        episode_lengths=[10, 10],
        seeding=Seeding(True, 50, seeds_differ=True),
        closed=True,
        finished=True,
    )
    return replace(sound, **seen)


def found(**seen: Any) -> list[Finding]:
    return make_report(facts(**seen), None).findings


def test_a_sound_env_has_no_findings_and_every_check_says_something() -> None:
    checks = judge(facts())
    assert {check.level for check in checks} == {Level.OK}
    assert len({check.check for check in checks}) == len(checks) == 15


FAULTS = [
    (dict(pickle_error="TypeError: a lock"), "factory", Level.ERROR, "a lock"),
    (dict(factory_bytes=5_000_000), "factory", Level.WARNING, "5 MB"),
    (dict(observation_space=None), "spaces", Level.WARNING, "no observation_space"),
    (dict(action_space=None), "spaces", Level.WARNING, "no action_space"),
    (dict(leaves=[("['text']", "side")]), "spaces", Level.NOTE, "['text']"),
    (dict(misfits=[Misfit("", "shape", "got (4,)", "reset 1", 7)]), "spaces", Level.ERROR, "got (4,)"),
    (dict(misfits=[Misfit("", "structure", "no 'b'", "step 3")]), "spaces", Level.ERROR, "step 3"),
    (dict(misfits=[Misfit("['t']", "foreign", "1 is none", "step 3")]), "spaces", Level.ERROR, "['t']: 1"),
    (dict(misfits=[Misfit("", "lossy", "300 does not", "step 3")]), "dtypes", Level.ERROR, "300"),
    (dict(misfits=[Misfit("", "rounded", "float64", "step 3")]), "dtypes", Level.WARNING, "float64"),
    (dict(misfits=[Misfit("", "cast", "int64", "step 3")]), "dtypes", Level.NOTE, "int64"),
    (dict(misfits=[Misfit("", "bounds", "9 is not", "step 3")]), "bounds", Level.WARNING, "9 is not"),
    (dict(misfits=[Misfit("", "range", "9 is not", "step 3")]), "bounds", Level.ERROR, "9 is not"),
    (dict(misfits=[Misfit("", "nan", "NaN in", "step 3")]), "bounds", Level.WARNING, "NaN"),
    (dict(values={"reward": "'a'"}), "values", Level.ERROR, "'a'"),
    (dict(values={"reward shape": "(2,)"}), "values", Level.WARNING, "(2,)"),
    (dict(values={"reward dtype": "0.5 does not"}), "values", Level.ERROR, "0.5 does not"),
    (dict(values={"reward rounded": "float64"}), "values", Level.WARNING, "float64"),
    (dict(values={"info": "a list"}), "values", Level.ERROR, "a list"),
    (dict(unpicklable={"info['lock']": "a lock"}), "infos", Level.WARNING, "info['lock']"),
    (dict(episode_lengths=[]), "resets", Level.NOTE, "no episode ended within 50 steps"),
    (dict(seeding=Seeding(True, 9, "at step 2", "at step 2")), "seeds", Level.ERROR, "not reproducible"),
    (dict(seeding=Seeding(False, 9, "at step 2", "at step 2")), "seeds", Level.WARNING, "takes no seed"),
    (dict(seeding=Seeding(True, 9, "at step 2", "")), "seeds", Level.WARNING, "seed alone"),
    (dict(seeding=Seeding(True, 9, "at step 2", "at step 2", "")), "seeds", Level.WARNING, "lives on"),
    (dict(seeding=Seeding(True, 9, "at 2", "at 2", "at 2")), "seeds", Level.ERROR, "not reproducible"),
    (dict(seeding=Seeding(True, 9)), "seeds", Level.NOTE, "two seeds"),
    (dict(globals_used=[("random", "step")]), "global generators", Level.WARNING, "random"),
    (dict(globals_used=[("torch", "env_fn")]), "global generators", Level.NOTE, "building"),
    (dict(reused={"['img']": "written"}), "buffers", Level.WARNING, "['img']"),
    (dict(troubles=[Trouble("raised", "close", 1, "OSError")]), "close", Level.ERROR, "OSError"),
]


@pytest.mark.parametrize(("seen", "check", "level", "words"), FAULTS)
def test_a_fault_is_named_by_one_finding(seen: Any, check: str, level: Level, words: str) -> None:
    (finding,) = found(**seen)
    assert (finding.check, finding.level) == (check, level)
    assert words in finding.what
    assert make_report(facts(**seen), None).ok == (level is not Level.ERROR)


@pytest.mark.parametrize(
    ("trouble", "check", "words"),
    [
        (Trouble("raised", "env_fn", 1, "KeyError: 1", "e.py:3 in make"), "build", "building the env raised"),
        (Trouble("raised", "import", 1, "SyntaxError", "e.py:3"), "build", "importing the module raised"),
        (Trouble("raised", "reset", 1, "KeyError: 1", "e.py:3"), "resets", "reset 1 raised KeyError"),
        (Trouble("raised", "reset", 2, "KeyError: 1", "e.py:3"), "resets", "only the first reset works"),
        (Trouble("raised", "reset", 5, "KeyError: 1", "e.py:3"), "resets", "do not always work"),
        (Trouble("hung", "reset", 2, "reset 2 did not come back", "e.py:3"), "resets", "did not come back"),
        (Trouble("raised", "step", 4, "KeyError: 1", "e.py:3"), "steps", "step 4 raised KeyError"),
        (Trouble("died", "step", 4, "the process ended", "e.py:3"), "steps", "the process ended"),
        (Trouble("hung", "step", 4, "step 4 did not come back", "e.py:3"), "steps", "did not come back"),
        (Trouble("raised", "random_action", 1, "KeyError", "e.py:3"), "steps", "random_action raised"),
    ],
)
def test_a_failed_call_is_an_error_with_the_users_line(trouble: Trouble, check: str, words: str) -> None:
    early = facts(seeding=None, episode_lengths=[], troubles=[trouble], closed=False)
    (error,) = make_report(early, None).errors
    assert error.check == check
    assert words in error.what
    assert error.place.startswith("e.py:3")
    assert error.do


def test_what_was_not_reached_is_said_to_be_skipped() -> None:
    trouble = Trouble("raised", "env_fn", 1, "KeyError: 1")
    checks = judge(Facts(factory_bytes=3, troubles=[trouble]))
    levels = {check.check: check.level for check in checks}
    assert levels.pop("build") is Level.ERROR
    assert levels.pop("factory") is Level.OK
    assert set(levels.values()) == {Level.SKIPPED}


def test_the_first_call_is_left_out_of_the_times() -> None:
    assert Times.of([]) is None
    assert Times.of([9.0]) == Times(9.0, 9.0, 9.0, 9.0, 9.0)
    times = Times.of([9.0, *[1.0] * 98, 3.0])
    assert times is not None
    assert (times.median, times.p95, times.p99, times.most) == (1.0, 1.0, 3.0, 3.0)
    assert times.mean < 1.1


def test_a_report_says_whether_processes_pay_and_what_to_paste() -> None:
    slow = make_report(facts(step_times=[1e-3] * 50), CHEAP)
    assert slow.verdict is not None
    assert not slow.verdict.in_process
    assert slow.config == {"type": "subprocess", "num_workers": 2}
    (said,) = [check.what for check in slow.checks if check.check == "processes"]
    assert said.startswith("processes are faster: a step takes 1 ms, one through a worker costs 10 us")
    quick = make_report(facts(step_times=[3e-6] * 50), CHEAP)
    assert quick.config == {"type": "base"}
    (said,) = [check.what for check in quick.checks if check.check == "processes"]
    assert said.startswith("in-process is faster: a step takes 3 us, one through a worker costs 10 us")
    (line,) = [check.what for check in quick.checks if check.check == "config"]
    assert line == "manager=dict(type='base')"


def test_uneven_steps_and_slow_resets_ask_for_async() -> None:
    assert make_report(facts(reset_times=[1.0] * 5), CHEAP).config["type"] == "async_subprocess"
    uneven = [1e-3] * 95 + [50e-3] * 5
    assert make_report(facts(step_times=uneven), CHEAP).config["type"] == "async_subprocess"
    once = [1e-3] * 99 + [50e-3]  # the system did something else
    assert make_report(facts(step_times=once), CHEAP).config["type"] == "subprocess"
    seldom = facts(reset_times=[0.1] * 5, episode_lengths=[5000])
    assert make_report(seldom, CHEAP).config["type"] == "subprocess"


def test_an_env_that_draws_from_global_generators_is_kept_apart() -> None:
    config = make_report(facts(globals_used=[("random", "step")]), CHEAP).config
    assert config == {"type": "subprocess", "num_workers": 2, "isolate_rng": True}


def test_a_report_is_text_and_json() -> None:
    report = make_report(facts(troubles=[Trouble("raised", "step", 1, "KeyError", "e.py:3")]), CHEAP)
    assert str(report) == "error: steps: step 1 raised KeyError [e.py:3]"
    assert str(make_report(facts(), None)) == "nothing found"
    data = json.loads(json.dumps(report.as_dict()))
    assert data["ok"] is False
    assert data["facts"]["step_times"]["count"] == 50
    assert {check["level"] for check in data["checks"]} == {"ok", "error"}


def test_errors_come_first() -> None:
    seen = found(
        misfits=[Misfit("", "cast", "int64", "step 3")],
        globals_used=[("random", "step")],
        troubles=[Trouble("raised", "step", 1, "KeyError", "e.py:3")],
    )
    assert [finding.level for finding in seen] == [Level.ERROR, Level.WARNING, Level.NOTE]


@pytest.mark.parametrize(
    ("value", "text"), [(3.14159e-6, "3.14 us"), (0.02, "20 ms"), (1.5, "1.5 s"), (75.0, "75 s")]
)
def test_seconds(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(16, "16 bytes"), (28_224, "28.2 kB"), (3e6, "3 MB"), (2e9, "2 GB")]
)
def test_size(value: float, text: str) -> None:
    assert size(value) == text
