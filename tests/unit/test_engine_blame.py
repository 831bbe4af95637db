"""The error that a caller sees: which env, what it did, what happened, what to do."""

import pickle
from typing import Any

import numpy as np
import pytest

from envmgr.engine.blame import Death, Overrun, error_for, error_of, why_killed
from envmgr.engine.events import Fail, Kill
from envmgr.errors import (
    EnvInitError,
    EnvInitTimeoutError,
    EnvManagerError,
    EnvResetError,
    EnvStepError,
    EnvTimeoutError,
    SpaceMismatchError,
    WorkerDied,
)
from envmgr.workers.contract import ExitReport, Failure
from envmgr.workers.failures import capture


class ParserError(Exception):
    """An exception of the user's own."""


def users_line(depth: int = 0) -> None:
    if depth:
        users_line(depth - 1)
    raise ParserError("level 7 has no exit")


def failure(op: str = "step", **changes: Any) -> Failure:
    try:
        users_line(2)
    except ParserError as error:
        made = capture(error, op, in_process=True)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def death(code: int | None = -11, env_ids: tuple[int, ...] = (4,)) -> Death:
    return Death(ExitReport(321, code), env_ids)


# -- an exception of the env --------------------------------------------------------------------------


@pytest.mark.case("F02")
@pytest.mark.parametrize(
    ("op", "what", "cls", "says"),
    [
        ("step", "step", EnvStepError, "env 4 raised in step"),
        ("reset", "reset", EnvResetError, "env 4 raised in reset"),
        ("env_fn", "init", EnvInitError, "env 4 could not be built"),
    ],
)
def test_an_exception_of_the_env(op: str, what: str, cls: type, says: str) -> None:
    error = error_for(4, failure(op), what)
    assert type(error) is cls
    assert error.env_id == 4
    assert error.message.startswith(says)
    assert "ParserError: level 7 has no exit" in error.message
    assert isinstance(error.__cause__, ParserError)
    text = str(error)
    assert "users_line" in text
    assert "test_engine_blame.py" in text
    assert 'raise ParserError("level 7 has no exit")' in text


def test_what_was_called_is_said_when_it_was_not_reset_itself() -> None:
    assert "raised in seed" in error_for(0, failure("seed"), "reset").message


def test_advice_comes_along() -> None:
    assert "try disable_env_checker" in str(error_for(0, failure(advice="try disable_env_checker"), "step"))


def test_an_exception_without_text_or_original() -> None:
    bare = Failure(op="step", kind="ParserError", text="")
    error = error_for(0, bare, "step")
    assert error.message == "env 0 raised in step: ParserError"
    assert error.__cause__ is None
    assert error.child_traceback == ""


def test_the_action_is_in_the_message_of_a_step_and_short() -> None:
    assert "with action 3:" in error_for(0, failure(), "step", action=3).message
    assert "with action" not in error_for(0, failure(), "step").message
    long = error_for(0, failure(), "step", action=list(range(10_000))).message
    assert "..." in long
    assert len(long) < 300


@pytest.mark.parametrize(
    ("action", "written"),
    [
        (np.int64(1), "1"),
        (np.float32(0.1), "0.1"),
        ({"go": np.int64(2), "at": (np.int8(3),)}, "{'go': 2, 'at': (3,)}"),
        ([np.True_, 4], "[True, 4]"),
        (np.zeros(2), "array([0., 0.])"),
    ],
)
def test_numbers_of_an_action_are_written_plainly(action: Any, written: str) -> None:
    assert f"in step with action {written}: " in error_for(0, failure(), "step", action=action).message


def test_a_worker_is_named_where_there_is_one() -> None:
    here, there = failure(), failure(error=None)
    for what in ("step", "reset", "init"):
        error = error_of(Fail(what, 0, here))
        assert "\n--- in the env ---\n" in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert "\n--- in the worker ---\n" in str(error_of(Fail(what, 0, there)))


@pytest.mark.parametrize("what", ["step", "reset", "init"])
def test_a_mismatch_is_a_mismatch_wherever_it_comes_up(what: str) -> None:
    error = error_for(2, failure(what, mismatch=True, text="leaf x: (3,) and not (4,)"), what)
    assert type(error) is SpaceMismatchError
    assert error.env_id == 2
    assert error.message == f"env 2, {what}: leaf x: (3,) and not (4,)"
    assert isinstance(error.__cause__, ParserError)


@pytest.mark.parametrize(
    ("what", "cls"), [("step", EnvStepError), ("reset", EnvResetError), ("init", EnvInitError)]
)
def test_a_text_is_a_cause_too(what: str, cls: type) -> None:
    error = error_for(3, "no worker can be started", what)
    assert type(error) is cls
    assert "env 3" in str(error)
    assert "no worker can be started" in str(error)


# -- a call that took too long ------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["step", "reset"])
def test_an_overrun(op: str) -> None:
    error = error_for(1, Overrun(op, 0.25, stack="File env.py, line 3"), op)
    assert type(error) is EnvTimeoutError
    assert isinstance(error, TimeoutError)
    assert (error.env_id, error.limit) == (1, 0.25)
    assert f"{op} took longer than {op}_timeout=0.25 s" in error.message
    assert f"Raise {op}_timeout" in error.message
    assert "was killed" not in error.message
    assert "File env.py, line 3" in str(error)


@pytest.mark.case("F18")
def test_an_overrun_that_had_to_be_killed_says_so() -> None:
    message = error_for(1, Overrun("step", 60, pid=77, worker_killed=True), "step").message
    assert "did not react to an interrupt" in message
    assert "process 77" in message
    assert "step_timeout=60 s" in message


@pytest.mark.case("F15", "P03")
def test_a_worker_that_does_not_come_up() -> None:
    error = error_for(5, Overrun("connect", 3), "init")
    assert type(error) is EnvInitTimeoutError
    assert isinstance(error, EnvInitError)
    assert isinstance(error, TimeoutError)
    assert "connect_timeout=3 s" in error.message
    assert "Raise connect_timeout" in error.message


# -- a worker that died -------------------------------------------------------------------------------


@pytest.mark.case("F03")
@pytest.mark.parametrize(
    ("code", "says", "name"),
    [
        (7, "ended with exit code 7", None),
        (0, "ended with exit code 0", None),
        (-9, "SIGKILL", "SIGKILL"),
        (-11, "SIGSEGV", "SIGSEGV"),
        (None, "nobody could learn its exit code", None),
    ],
)
@pytest.mark.parametrize(
    ("what", "doing"), [("step", "in step"), ("reset", "in reset"), ("init", "while it was built")]
)
def test_a_death(code: int | None, says: str, name: str | None, what: str, doing: str) -> None:
    error = error_for(4, death(code), what)
    assert type(error) is WorkerDied
    assert (error.env_id, error.pid, error.exitcode, error.signal_name) == (4, 321, code, name)
    assert error.env_ids == (4,)
    assert f"env 4: its worker died {doing}: process 321" in error.message
    assert says in error.message


def test_what_to_do_about_a_death() -> None:
    assert "memory" in error_for(4, death(-9), "step").message
    assert "faulthandler" in error_for(4, death(-11), "step").message
    assert "faulthandler" not in error_for(4, death(-15), "step").message


def test_a_death_names_the_other_envs_that_it_hit() -> None:
    error = error_for(4, death(env_ids=(3, 4, 5)), "step")
    assert isinstance(error, WorkerDied)
    assert error.env_ids == (3, 4, 5)
    assert "the same worker hosted env 3, 5" in error.message
    assert "same worker" not in error_for(4, death(), "step").message


def test_the_stack_of_the_dead_is_in_the_text() -> None:
    gone = death()
    gone.stack = "File env.py, line 3 in step"
    assert "File env.py, line 3 in step" in str(error_for(4, gone, "step"))


# -- what the machine orders --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "cls"),
    [(failure(), EnvStepError), (Overrun("step", 1), EnvTimeoutError), (death(), WorkerDied)],
    ids=["exception", "overrun", "death"],
)
def test_fail_in_a_step(cause: Any, cls: type) -> None:
    for what in ("step", "streak", "budget"):
        error = error_of(Fail(what, 4, cause))
        assert type(error) is cls
        assert error.env_id == 4


def test_fail_in_a_step_passes_the_action_on() -> None:
    assert "with action 9" in error_of(Fail("step", 4, failure()), action=9).message


@pytest.mark.parametrize(
    "cause",
    [failure("reset"), Overrun("reset", 1), death(), "gone", failure("env_fn")],
    ids=["exception", "overrun", "death", "text", "env_fn"],
)
def test_a_reset_without_attempts_left_is_one_error_whatever_the_cause(cause: Any) -> None:
    error = error_of(Fail("reset", 4, cause, count=5))
    assert type(error) is EnvResetError
    assert error.env_id == 4
    assert "the first cause, after 5 attempts; max_retry=5" in str(error)
    assert error.args == (error.message,)
    if isinstance(cause, Overrun):
        assert isinstance(error.__cause__, EnvTimeoutError)
    elif isinstance(cause, Death):
        assert isinstance(error.__cause__, WorkerDied)
        assert "SIGSEGV" in error.message
    elif isinstance(cause, Failure):
        assert isinstance(error.__cause__, ParserError)


def test_the_traceback_of_the_first_cause_is_kept() -> None:
    slow = Overrun("reset", 1, stack="File env.py, line 3")
    assert "File env.py, line 3" in str(error_of(Fail("reset", 0, slow, count=2)))


def test_a_mismatch_in_a_reset_stays_one() -> None:
    assert type(error_of(Fail("reset", 0, failure("reset", mismatch=True)))) is SpaceMismatchError


def test_one_attempt_is_not_counted_in_words() -> None:
    for what in ("reset", "streak", "budget", "step", "init"):
        assert "the first cause" not in str(error_of(Fail(what, 0, failure())))


def test_fail_at_launch() -> None:
    assert type(error_of(Fail("init", 0, failure("env_fn")))) is EnvInitError
    assert type(error_of(Fail("init", 0, death(7)))) is WorkerDied
    assert type(error_of(Fail("init", 0, Overrun("connect", 1)))) is EnvInitTimeoutError


@pytest.mark.case("F14")
def test_a_streak_and_a_budget_say_how_often() -> None:
    streak = error_of(Fail("streak", 0, failure(), count=6))
    assert "6 failures in a row without one good step" in streak.message
    assert isinstance(streak.__cause__, ParserError)
    budget = error_of(Fail("budget", 0, death(), count=11))
    assert "it would be the 11th renewal within renewal_window; max_renewals=10" in budget.message
    assert isinstance(budget, EnvManagerError)
    for n, word in ((1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (12, "12th"), (22, "22nd")):
        text = error_of(Fail("budget", 0, death(), count=n)).message
        assert f"it would be the {word} renewal within renewal_window; max_renewals={n - 1})" in text


@pytest.mark.case("F14")
@pytest.mark.parametrize(
    ("at", "cause", "cls", "says", "root"),
    [
        ("step", failure(), EnvStepError, "raised in step", ParserError),
        ("step", death(), WorkerDied, "died in step", None),
        ("idle", death(), WorkerDied, "died while it did nothing", None),
        ("init", death(), WorkerDied, "died while it was built", None),
        ("init", failure("env_fn"), EnvInitError, "could not be built", ParserError),
        ("reset", failure("reset"), EnvResetError, "raised in reset: ParserError", ParserError),
        ("reset", death(), EnvResetError, "could not be reset: env 4: its worker died in reset", WorkerDied),
        ("reset", Overrun("reset", 1), EnvResetError, "reset took longer", EnvTimeoutError),
    ],
)
def test_a_budget_says_what_the_env_was_at_first(
    at: str, cause: Any, cls: type, says: str, root: type | None
) -> None:
    error = error_of(Fail("budget", 4, cause, count=3, at=at))
    assert type(error) is cls
    assert says in error.message
    assert "3rd renewal" in error.message
    assert type(error.__cause__) is (root or type(None))
    assert "in step" not in error.message or at == "step"


def test_a_reset_that_could_not_be_built_first_says_so() -> None:
    assert "died while it was built" in error_of(Fail("reset", 4, death(), count=2, at="init")).message
    error = error_of(Fail("reset", 4, failure("env_fn"), count=2, at="init"))
    assert type(error) is EnvResetError
    assert "raised in env_fn" in error.message
    assert isinstance(error.__cause__, ParserError)


@pytest.mark.parametrize("siblings", [False, True])
def test_why_a_worker_is_killed_is_said_and_where_it_costs_others_what_to_set(siblings: bool) -> None:
    assert why_killed(Kill(0, 4), siblings) == "env 4 did not come back after it was interrupted"
    renewed = why_killed(Kill(0, 4, renewal=True), siblings)
    assert renewed.startswith("env 4 is renewed, because its reset failed")
    assert ("set retry_type='reset'" in renewed) is siblings
