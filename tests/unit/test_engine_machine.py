"""The rules of section 4.12 of the design, one by one, on plain data: no process, no clock, no sleep."""

from typing import Any

import numpy as np
import pytest

from envmgr.engine import events as e
from envmgr.engine.machine import IDLE, RESETTING, STEPPING, Machine, Policy
from envmgr.engine.states import EnvState as S
from envmgr.engine.states import IllegalMoveError


class Run:
    """A machine with a hand-wound clock, and short words for what a test does with it."""

    def __init__(self, sizes: tuple[int, ...] = (1,), **policy: Any) -> None:
        self.now = 0.0
        self.moves: list[tuple[int, str, str]] = []
        envs_of = [range(sum(sizes[:w]), sum(sizes[: w + 1])) for w in range(len(sizes))]
        self.m = Machine(
            Policy(**policy), envs_of, lambda i, old, new: self.moves.append((i, old.name, new.name))
        )
        self.n, self.workers = sum(sizes), len(sizes)

    def __call__(self, event: e.Event, at: float | None = None) -> list[e.Instruction]:
        self.now = self.now if at is None else at
        return self.m.handle(event, self.now)

    def tick(self, at: float) -> list[e.Instruction]:
        return self(e.Tick(), at)

    def launched(self) -> "Run":
        """Every worker is up and every env in its first reset."""
        self(e.Opened())
        for w in range(self.workers):
            self(e.WorkerCameUp(w))
        for i in range(self.n):
            assert self(e.ResetAsked(i)) == [e.SendReset(i)]
        return self

    def running(self) -> "Run":
        """Every env is in RUN and idle."""
        self.launched()
        for i in range(self.n):
            assert self(e.ResetDone(i)) == []
        self.moves.clear()
        return self

    def stepping(self, *ids: int) -> "Run":
        """Every env is in RUN, and steps of these (of all, when none is named) are under way."""
        self.running()
        self.step(*(ids or range(self.n)))
        return self

    def step(self, *ids: int) -> None:
        assert all(self.m.state(i) == S.RUN and self.m.op[i] == IDLE for i in ids)
        self.m.steps_sent(list(ids))

    def good_step(self, i: int) -> None:
        self.m.good_step(i)
        self.m.steps_done([i])

    def states(self) -> list[str]:
        return [self.m.state(i).name for i in range(self.n)]


def fails(orders: list[e.Instruction]) -> list[e.Fail]:
    return [order for order in orders if isinstance(order, e.Fail)]


# -- coming up ----------------------------------------------------------------------------------------


def test_the_way_of_an_env_from_void_to_its_second_episode() -> None:
    run = Run()
    assert run.states() == ["VOID"]
    assert run(e.Opened()) == []
    assert run(e.WorkerCameUp(0)) == []
    assert run(e.ResetAsked(0)) == [e.SendReset(0)]
    assert run.m.op[0] == RESETTING
    assert run(e.ResetDone(0)) == []
    assert run.m.op[0] == IDLE
    run.step(0)
    assert run.m.op[0] == STEPPING
    run.m.steps_done([0])
    assert run(e.EpisodeEnded(0)) == [e.SendReset(0)]
    assert run(e.ResetDone(0)) == []
    assert run.moves == [
        (0, "VOID", "INIT"),
        (0, "INIT", "RESET"),
        (0, "RESET", "RUN"),
        (0, "RUN", "RESET"),
        (0, "RESET", "RUN"),
    ]


def test_a_reset_that_is_asked_before_the_worker_is_up_goes_out_when_it_is() -> None:
    run = Run((2,))
    run(e.Opened())
    assert run(e.ResetAsked(1)) == []
    assert run.states() == ["INIT", "INIT"]
    assert run(e.WorkerCameUp(0)) == [e.SendReset(1)]
    assert run.states() == ["INIT", "RESET"]


@pytest.mark.case("O09")
def test_run_is_said_only_when_the_reset_is_done() -> None:
    run = Run((1, 1)).launched()
    assert run.states() == ["RESET", "RESET"]
    run(e.ResetDone(1))
    assert run.states() == ["RESET", "RUN"]


@pytest.mark.case("F15")
def test_a_worker_that_cannot_build_at_launch_is_an_init_error_of_the_env_that_failed() -> None:
    run = Run((2, 2), max_retry=5)
    run(e.Opened())
    run(e.WorkerCameUp(0))
    assert run(e.WorkerFailedToBuild(1, 3, "no ROM")) == [e.Fail("init", 3, "no ROM")]


@pytest.mark.case("F03")
def test_a_worker_that_dies_at_launch_is_an_init_error() -> None:
    run = Run((2, 2), max_retry=5)
    run(e.Opened())
    assert run(e.WorkerEnded(1, "exit 7")) == [e.Fail("init", 2, "exit 7")]


# -- resets that fail ---------------------------------------------------------------------------------


@pytest.mark.case("F13", "F14")
@pytest.mark.parametrize("max_retry", [1, 2, 5])
def test_max_retry_counts_attempts_in_all_and_the_first_cause_is_told(max_retry: int) -> None:
    run = Run(max_retry=max_retry, retry_wait=0.5).launched()
    for attempt in range(1, max_retry):
        assert run(e.ResetFailed(0, f"cause {attempt}"), at=attempt * 10.0) == []
        assert run.states() == ["ERROR"]
        assert run.tick(attempt * 10.0 + 0.5) == [e.SendReset(0)]
    assert run(e.ResetFailed(0, f"cause {max_retry}")) == [e.Fail("reset", 0, "cause 1", max_retry)]
    assert run.tick(1e9) == []
    assert run.m.counts(0)[0] == max_retry - 1


def test_between_two_attempts_it_waits() -> None:
    run = Run(max_retry=2, retry_wait=0.1).launched()
    run(e.ResetFailed(0, "x"), at=7.0)
    assert run.m.next_due() == pytest.approx(7.1)
    assert run.tick(7.05) == []
    assert run.tick(7.1) == [e.SendReset(0)]
    assert run.m.next_due() is None
    assert run.tick(8.0) == []


def test_every_env_waits_for_itself() -> None:
    run = Run((1, 1), max_retry=2, retry_wait=1.0).launched()
    run(e.ResetFailed(0, "x"), at=0.0)
    run(e.ResetFailed(1, "y"), at=0.5)
    assert run.m.next_due() == 1.0
    assert run.tick(1.2) == [e.SendReset(0)]
    assert run.m.next_due() == 1.5
    assert run.tick(1.5) == [e.SendReset(1)]


def test_a_tick_that_comes_late_does_all_that_is_due() -> None:
    run = Run((1, 1, 1), max_retry=2, retry_wait=1.0).launched()
    for i in range(3):
        run(e.ResetFailed(i, "x"))
    assert run.tick(99.0) == [e.SendReset(0), e.SendReset(1), e.SendReset(2)]


def test_a_reset_that_succeeds_begins_the_count_anew() -> None:
    run = Run(max_retry=2, retry_wait=0.0).launched()
    for episode in range(5):
        assert run(e.ResetFailed(0, f"in {episode}")) == []
        assert run.tick(run.now) == [e.SendReset(0)]
        assert run(e.ResetDone(0)) == []
        assert run(e.EpisodeEnded(0)) == [e.SendReset(0)]
    run(e.ResetFailed(0, "first"))
    run.tick(run.now)
    assert run(e.ResetFailed(0, "second")) == [e.Fail("reset", 0, "first", 2)]


def test_a_final_failure_is_not_tried_again() -> None:
    """A shape mismatch: the next attempt would have the same shape."""
    run = Run(max_retry=5).launched()
    assert run(e.ResetFailed(0, "shape", final=True)) == [e.Fail("reset", 0, "shape")]
    assert run.m.next_due() is None


@pytest.mark.case("F13")
def test_renew_tries_again_on_a_new_worker() -> None:
    run = Run(max_retry=3, retry_wait=0.1, renew=True).launched()
    assert run(e.ResetFailed(0, "stale instance")) == []
    (kill,) = run.tick(0.1)
    assert kill == e.Kill(0, 0, renewal=True)
    assert run(e.WorkerEnded(0, "killed")) == [e.Renew(0)]
    assert run.states() == ["INIT"]
    assert run(e.WorkerCameUp(0)) == [e.SendReset(0)]
    assert run(e.ResetDone(0)) == []
    assert run.m.counts(0) == (1, 1, 0)


def test_renew_counts_attempts_in_all_and_the_kill_is_none() -> None:
    run = Run(max_retry=2, retry_wait=0.0, renew=True).launched()
    run(e.ResetFailed(0, "first"))
    run.tick(0.0)
    run(e.WorkerEnded(0, "killed"))
    run(e.WorkerCameUp(0))
    assert run(e.ResetFailed(0, "second")) == [e.Fail("reset", 0, "first", 2)]


@pytest.mark.case("F03", "F14")
def test_a_dead_worker_in_a_reset_is_an_attempt_and_always_renewed() -> None:
    run = Run(max_retry=3, retry_wait=0.1).launched()
    for attempt in (1, 2):
        assert run(e.WorkerEnded(0, f"exit {attempt}"), at=10.0 * attempt) == []
        assert run.states() == ["INIT"]
        assert run.tick(10.0 * attempt + 0.1) == [e.Renew(0)]
        assert run(e.WorkerCameUp(0)) == [e.SendReset(0)]
    assert fails(run(e.WorkerEnded(0, "exit 3"))) == [e.Fail("reset", 0, "exit 1", 3)]


def test_a_worker_that_dies_while_it_comes_up_for_a_reset_is_an_attempt() -> None:
    run = Run(max_retry=3, retry_wait=0.1).launched()
    run(e.WorkerEnded(0, "first"), at=0.0)
    assert run.tick(0.1) == [e.Renew(0)]
    assert run(e.WorkerEnded(0, "second"), at=1.0) == []
    assert run.tick(1.05) == []
    assert run.tick(1.1) == [e.Renew(0)]
    assert fails(run(e.WorkerEnded(0, "third"), at=2.0)) == [e.Fail("reset", 0, "first", 3)]


@pytest.mark.case("F15")
def test_a_renewal_that_cannot_build_is_an_attempt() -> None:
    run = Run(max_retry=3, retry_wait=0.1).launched()
    run(e.WorkerEnded(0, "died"), at=0.0)
    run.tick(0.1)
    assert run(e.WorkerFailedToBuild(0, 0, "env_fn"), at=1.0) == []
    assert run.tick(1.1) == [e.Renew(0)]
    assert run(e.WorkerFailedToBuild(0, 0, "env_fn"), at=2.0) == [e.Fail("reset", 0, "died", 3)]


def test_kinds_of_attempts_count_together() -> None:
    run = Run(max_retry=4, retry_wait=0.0).launched()
    run(e.ResetFailed(0, "raised"))
    run.tick(0.0)
    run(e.WorkerEnded(0, "died"))
    run.tick(0.0)
    run(e.WorkerFailedToBuild(0, 0, "env_fn"))
    run.tick(0.0)
    run(e.WorkerCameUp(0))
    assert run(e.ResetFailed(0, "raised")) == [e.Fail("reset", 0, "raised", 4)]


@pytest.mark.parametrize("renew", [False, True])
def test_a_worker_that_dies_while_a_retry_waits_is_renewed_and_the_retry_goes_on(renew: bool) -> None:
    run = Run(max_retry=3, retry_wait=10.0, renew=renew).launched()
    run(e.ResetFailed(0, "first"), at=0.0)
    assert run(e.WorkerEnded(0, "died"), at=1.0) == [e.Renew(0)]
    orders = run.tick(10.0)
    orders += run(e.WorkerCameUp(0), at=11.0)
    assert orders == [e.SendReset(0)]


# -- resets that are asked ----------------------------------------------------------------------------


@pytest.mark.case("F12")
def test_a_reset_asked_while_stepping_drops_the_reply_and_goes_out_then() -> None:
    run = Run().stepping()
    assert run(e.ResetAsked(0)) == []
    assert run.states() == ["RESET"]
    assert run.m.op[0] == STEPPING
    assert run.m.wants_again(0)
    assert run.m.drop(0) == [e.SendReset(0)]
    assert not run.m.wants_again(0)
    assert run.m.op[0] == RESETTING


def test_a_reset_asked_while_stepping_and_the_step_fails() -> None:
    for policy in ({}, {"reset_on_error": True}, {"retry_step": True, "max_retry": 3}):
        run = Run(**policy).stepping()
        run(e.ResetAsked(0))
        assert run(e.StepFailed(0, "nobody cares")) == [e.SendReset(0)]
        assert run(e.ResetDone(0)) == []
        assert run.states() == ["RUN"]


@pytest.mark.case("O16")
def test_a_reset_asked_while_resetting_is_a_reset_of_its_own() -> None:
    run = Run().launched()
    assert run(e.ResetAsked(0)) == []
    assert run(e.ResetAsked(0)) == []  # three are two: the one under way, and one after it
    assert run(e.ResetDone(0)) == [e.SendReset(0)]
    assert run.states() == ["RESET"]
    assert run(e.ResetDone(0)) == []
    assert run.states() == ["RUN"]


def test_a_reset_asked_while_resetting_and_that_one_fails() -> None:
    """What failed is not what is wanted now: it is no attempt, final or not."""
    for final in (False, True):
        run = Run(max_retry=2, retry_wait=0.0).launched()
        run(e.ResetAsked(0))
        assert run(e.ResetFailed(0, "old", final)) == [e.SendReset(0)]
        assert run(e.ResetFailed(0, "new")) == []
        run.tick(0.0)
        assert run(e.ResetFailed(0, "newer")) == [e.Fail("reset", 0, "new", 2)]


@pytest.mark.parametrize("under_way", ["step", "reset"])
def test_a_reset_asked_and_the_worker_dies(under_way: str) -> None:
    run = Run(max_retry=1)
    run.stepping() if under_way == "step" else run.launched()
    run(e.ResetAsked(0))
    assert run(e.WorkerEnded(0, "died")) == [e.Renew(0)]
    assert run.states() == ["INIT"]
    assert run(e.WorkerCameUp(0)) == [e.SendReset(0)]
    assert run(e.ResetDone(0)) == []


def test_a_reset_asked_from_every_state() -> None:
    run = Run((1, 1, 1, 1), episode_num=1).running()
    run(e.EpisodeEnded(1))
    run(e.SaidAbnormal(2))
    run(e.WorkerEnded(3, "died"))
    assert run.states() == ["RUN", "DONE", "ERROR", "RUN"]
    assert [run(e.ResetAsked(i)) for i in range(4)] == [
        [e.SendReset(0)],
        [e.SendReset(1)],
        [e.SendReset(2)],
        [],
    ]
    assert run.states() == ["RESET", "RESET", "RESET", "INIT"]
    assert run(e.WorkerCameUp(3)) == [e.SendReset(3)]
    held = Run(auto_reset=False).running()
    held(e.EpisodeEnded(0))
    assert held.states() == ["NEED_RESET"]
    assert held(e.ResetAsked(0)) == [e.SendReset(0)]


def test_a_reset_asked_while_a_retry_waits_goes_out_at_once_with_all_its_attempts() -> None:
    run = Run(max_retry=2, retry_wait=1.0).launched()
    run(e.ResetFailed(0, "old"))
    assert run(e.ResetAsked(0), at=0.5) == [e.SendReset(0)]
    assert run(e.ResetFailed(0, "new"), at=0.6) == []
    assert run.tick(1.6) == [e.SendReset(0)]
    assert run(e.ResetFailed(0, "newer")) == [e.Fail("reset", 0, "new", 2)]


def test_a_retry_that_was_overtaken_does_not_cut_the_next_wait_short() -> None:
    run = Run(max_retry=3, retry_wait=1.0).launched()
    run(e.ResetFailed(0, "old"), at=0.0)
    run(e.ResetAsked(0), at=0.5)
    run(e.ResetFailed(0, "new"), at=0.6)
    assert run.tick(1.0) == []
    assert run.tick(1.6) == [e.SendReset(0)]


@pytest.mark.parametrize("renew", [False, True])
def test_a_retry_that_was_overtaken_leaves_an_env_in_error_alone(renew: bool) -> None:
    run = Run(max_retry=3, retry_wait=10.0, renew=renew).launched()
    run(e.ResetFailed(0, "old"), at=0.0)
    run(e.ResetAsked(0), at=1.0)
    run(e.ResetDone(0), at=2.0)
    run.step(0)
    run.good_step(0)
    run(e.SaidAbnormal(0), at=3.0)  # in ERROR until the caller resets it
    assert run.tick(10.0) == []
    assert run.states() == ["ERROR"]


@pytest.mark.case("F13")
def test_a_new_worker_is_not_killed_for_what_the_old_one_did() -> None:
    """Envs that succeed on a fresh worker, two on one worker, failing shortly after each other."""
    run = Run((2,), max_retry=2, retry_wait=0.1, renew=True).launched()
    run(e.ResetFailed(0, "stale"), at=0.0)
    run(e.ResetFailed(1, "stale"), at=0.05)
    assert run.tick(0.1) == [e.Kill(0, 0, renewal=True)]
    assert run(e.WorkerEnded(0, "killed"), at=0.11) == [e.Renew(0)]
    orders = run(e.WorkerCameUp(0), at=0.14)
    assert e.SendReset(0) in orders
    orders = run.tick(0.2)
    assert not [order for order in orders if isinstance(order, e.Kill)]


def test_a_reset_asked_while_the_worker_is_being_killed_has_all_its_attempts() -> None:
    run = Run(max_retry=2, retry_wait=0.0, renew=True).launched()
    run(e.ResetFailed(0, "old"))
    assert run.tick(0.0) == [e.Kill(0, 0, renewal=True)]
    run(e.ResetAsked(0))
    run(e.WorkerEnded(0, "killed"))
    run.tick(0.0)
    run(e.WorkerCameUp(0))
    assert run(e.ResetFailed(0, "new")) == []  # the first attempt that any env had a part in
    run.tick(0.0)


def test_a_reset_that_the_caller_has_got_is_not_done_again_behind_its_back() -> None:
    run = Run(max_retry=2, retry_wait=0.0, renew=True).launched()
    run(e.ResetFailed(0, "old"))
    assert run.tick(0.0) == [e.Kill(0, 0, renewal=True)]
    if run(e.ResetAsked(0)) == [e.SendReset(0)]:
        run(e.ResetDone(0))  # it was quicker than the kill: the caller has this observation
        run(e.WorkerEnded(0, "killed"))
        assert run.states() == ["RUN"]
        assert run.m.owed(0) == "killed"


# -- steps that fail ----------------------------------------------------------------------------------


@pytest.mark.parametrize("close", [True, False])
def test_on_error_raise(close: bool) -> None:
    run = Run((1, 1), close_on_error=close, max_retry=5).stepping()
    assert run(e.StepFailed(0, "boom")) == [e.Fail("step", 0, "boom", close=close)]
    assert run.states() == ["ERROR", "RUN"]
    assert run.m.op.tolist() == [IDLE, STEPPING]
    assert run.m.next_due() is None


def test_base_stays_open_and_reset_helps() -> None:
    run = Run(close_on_error=False).stepping()
    run(e.StepFailed(0, "boom"))
    assert run(e.ResetAsked(0)) == [e.SendReset(0)]
    assert run(e.ResetDone(0)) == []
    assert run.states() == ["RUN"]


@pytest.mark.case("F14")
def test_on_error_reset_gives_exactly_one_abnormal_timestep_and_then_resets() -> None:
    run = Run((1, 1), reset_on_error=True, max_retry=5).stepping()
    assert run(e.StepFailed(0, "boom")) == [e.GiveAbnormal(0, "boom")]
    assert run.states() == ["RUN", "RUN"]
    assert run.m.op.tolist() == [IDLE, STEPPING]
    assert run(e.EpisodeEnded(0, abnormal=True)) == [e.SendReset(0)]
    assert run(e.ResetDone(0)) == []
    assert run.m.episodes.tolist() == [0, 0]
    assert run.tick(1e9) == []


@pytest.mark.case("O08", "O11")
def test_an_abnormal_timestep_is_no_episode_and_resets_whatever_auto_reset_says() -> None:
    run = Run(reset_on_error=True, auto_reset=False, episode_num=1, max_retry=5).stepping()
    run(e.StepFailed(0, "boom"))
    assert run(e.EpisodeEnded(0, abnormal=True)) == [e.SendReset(0)]
    assert run.m.episodes[0] == 0


def test_a_failed_step_is_not_sent_again_unless_retry_step() -> None:
    for on_reset in (False, True):
        run = Run(max_retry=5, reset_on_error=on_reset).stepping()
        (order,) = run(e.StepFailed(0, "boom"))
        assert isinstance(order, e.GiveAbnormal if on_reset else e.Fail)
        assert run.m.next_due() is None


@pytest.mark.case("F14")
def test_a_row_of_failures_without_one_good_step_ends() -> None:
    run = Run(reset_on_error=True, max_retry=3).running()
    for k in range(3):
        run.step(0)
        assert run(e.StepFailed(0, f"boom {k}")) == [e.GiveAbnormal(0, f"boom {k}")]
        assert run(e.EpisodeEnded(0, abnormal=True)) == [e.SendReset(0)]
        run(e.ResetDone(0))
        assert run.m.failed_before() == [0]
    run.step(0)
    assert run(e.StepFailed(0, "boom 3")) == [e.Fail("streak", 0, "boom 0", 4)]
    assert run.states() == ["ERROR"]


def test_one_good_step_ends_the_row() -> None:
    run = Run(reset_on_error=True, max_retry=1).running()
    for k in range(10):
        run.step(0)
        assert run(e.StepFailed(0, f"boom {k}")) == [e.GiveAbnormal(0, f"boom {k}")]
        run(e.EpisodeEnded(0, abnormal=True))
        run(e.ResetDone(0))
        run.step(0)
        run.good_step(0)
        assert run.m.failed_before() == []


def test_rows_are_counted_per_env() -> None:
    run = Run((1, 1), reset_on_error=True, max_retry=1).stepping()
    assert run(e.StepFailed(0, "a")) == [e.GiveAbnormal(0, "a")]
    assert run(e.StepFailed(1, "b")) == [e.GiveAbnormal(1, "b")]


def test_retry_step_sends_the_same_action_after_a_wait() -> None:
    run = Run(retry_step=True, max_retry=3, retry_wait=0.5).stepping()
    assert run(e.StepFailed(0, "once"), at=1.0) == []
    assert run.states() == ["RUN"]
    assert run.m.op[0] == STEPPING  # for the caller the step is still under way
    assert run.tick(1.4) == []
    assert run.tick(1.5) == [e.SendStepAgain(0)]
    run.good_step(0)
    assert run.m.op[0] == IDLE
    assert run.m.counts(0)[0] == 1
    assert run.tick(1e9) == []


@pytest.mark.parametrize("on_reset", [False, True])
def test_retry_step_counts_attempts_in_all(on_reset: bool) -> None:
    run = Run(retry_step=True, max_retry=3, retry_wait=0.0, reset_on_error=on_reset).stepping()
    for cause in ("first", "second"):
        assert run(e.StepFailed(0, cause)) == []
        assert run.tick(run.now) == [e.SendStepAgain(0)]
    expected = e.GiveAbnormal(0, "first") if on_reset else e.Fail("step", 0, "first", 3)
    assert run(e.StepFailed(0, "last")) == [expected]
    assert run.m.next_due() is None


def test_a_good_step_begins_the_count_of_retry_step_anew() -> None:
    run = Run(retry_step=True, max_retry=2, retry_wait=0.0).running()
    for _ in range(4):
        run.step(0)
        assert run(e.StepFailed(0, "x")) == []
        assert run.m.failed_before() == [0]
        run.tick(run.now)
        run.good_step(0)


def test_retry_step_never_repeats_what_is_final() -> None:
    """A step that was broken off has done a part of its work; a second one would do it twice."""
    run = Run(retry_step=True, max_retry=5).stepping()
    assert run(e.StepFailed(0, "overrun", final=True)) == [e.Fail("step", 0, "overrun")]


def test_a_worker_that_dies_before_the_second_attempt_ends_the_step() -> None:
    run = Run(retry_step=True, max_retry=5, retry_wait=1.0, reset_on_error=True).stepping()
    run(e.StepFailed(0, "x"))
    assert run(e.WorkerEnded(0, "died"), at=0.5) == [e.GiveAbnormal(0, "died"), e.Renew(0)]
    assert run.tick(1.0) == []


def test_a_retry_of_a_step_that_is_over_does_not_send_another_step_twice() -> None:
    run = Run(retry_step=True, max_retry=5, retry_wait=10.0, reset_on_error=True).stepping()
    run(e.StepFailed(0, "x"), at=0.0)
    run(e.WorkerEnded(0, "died"), at=1.0)
    run(e.EpisodeEnded(0, abnormal=True))
    run(e.WorkerCameUp(0), at=2.0)
    run(e.ResetDone(0), at=3.0)
    run.step(0)  # a new step is under way; to send it again would step the env twice
    assert run.tick(10.0) == []


def test_a_reset_asked_while_a_step_waits_for_its_retry_steps_no_more() -> None:
    run = Run(retry_step=True, max_retry=5, retry_wait=10.0).stepping()
    run(e.StepFailed(0, "x"), at=0.0)
    orders = run(e.ResetAsked(0), at=1.0)
    orders += run.tick(10.0)
    assert orders == [e.SendReset(0)]


def test_a_step_after_a_reset_has_all_its_attempts() -> None:
    run = Run(retry_step=True, max_retry=2, retry_wait=0.0).stepping()
    run(e.StepFailed(0, "x"))
    run(e.ResetAsked(0))
    run.tick(0.0)
    if run.m.op[0] == STEPPING:
        run.m.drop(0)
    run(e.ResetDone(0))
    run.step(0)
    assert run(e.StepFailed(0, "y")) == []


# -- workers that die ---------------------------------------------------------------------------------


@pytest.mark.case("F03")
@pytest.mark.parametrize("close", [True, False])
def test_a_worker_that_dies_in_a_step_and_on_error_raise(close: bool) -> None:
    run = Run(close_on_error=close).stepping()
    orders = run(e.WorkerEnded(0, "SIGKILL"))
    assert orders[0] == e.Fail("step", 0, "SIGKILL", close=close)
    assert orders[1:] == ([] if close else [e.Renew(0)])
    assert run.states() == ["ERROR"]


@pytest.mark.case("F03")
def test_a_worker_that_dies_in_a_step_and_on_error_reset() -> None:
    run = Run((1, 1), reset_on_error=True, max_retry=5).stepping()
    assert run(e.WorkerEnded(0, "SIGSEGV")) == [e.GiveAbnormal(0, "SIGSEGV"), e.Renew(0)]
    assert run.m.op.tolist() == [IDLE, STEPPING]
    assert run(e.EpisodeEnded(0, abnormal=True)) == []
    assert run.states() == ["INIT", "RUN"]
    assert run(e.WorkerCameUp(0)) == [e.SendReset(0)]
    assert run(e.ResetDone(0)) == []
    assert run.m.counts(0) == (0, 1, 0)
    assert run.m.counts(1) == (0, 0, 0)


def test_the_worker_may_be_up_before_the_abnormal_timestep_is_handed_over() -> None:
    run = Run(reset_on_error=True, max_retry=5).stepping()
    run(e.WorkerEnded(0, "died"))
    assert run(e.WorkerCameUp(0)) == []
    assert run.states() == ["RUN"]
    assert run(e.EpisodeEnded(0, abnormal=True)) == [e.SendReset(0)]


@pytest.mark.parametrize("up_first", [True, False])
def test_an_idle_env_whose_worker_died_answers_the_next_step_with_an_abnormal_timestep(
    up_first: bool,
) -> None:
    run = Run((1, 1), reset_on_error=True, max_retry=5).running()
    assert not run.m.any_owed()
    assert run(e.WorkerEnded(0, "SIGKILL")) == [e.Renew(0)]
    assert run.states() == ["RUN", "RUN"]
    assert run.m.any_owed()
    assert (run.m.owed(0), run.m.owed(1)) == ("SIGKILL", None)
    if up_first:
        assert run(e.WorkerCameUp(0)) == []
    assert run.m.take_owed(0) == [e.GiveAbnormal(0, "SIGKILL")]
    assert run.m.owed(0) is None
    assert not run.m.any_owed()
    orders = run(e.EpisodeEnded(0, abnormal=True))
    if not up_first:
        assert orders == []
        orders = run(e.WorkerCameUp(0))
    assert orders == [e.SendReset(0)]


@pytest.mark.parametrize("close", [True, False])
def test_an_idle_env_whose_worker_died_answers_the_next_step_with_an_error(close: bool) -> None:
    run = Run(close_on_error=close).running()
    run(e.WorkerEnded(0, "SIGKILL"))
    assert run.m.take_owed(0) == [e.Fail("step", 0, "SIGKILL", close=close)]
    assert run.states() == ["ERROR"]


def test_a_reset_pays_what_is_owed() -> None:
    run = Run().running()
    run(e.WorkerEnded(0, "SIGKILL"))
    assert run(e.ResetAsked(0)) == []
    assert run.m.owed(0) is None
    assert run(e.WorkerCameUp(0)) == [e.SendReset(0)]
    run(e.ResetDone(0))
    assert not run.m.any_owed()


def test_an_automatic_reset_pays_what_is_owed_too() -> None:
    """The step came back done, its worker died before the caller took it: the reset makes it good."""
    run = Run(max_retry=5).stepping()
    run.m.steps_done([0])
    run(e.WorkerEnded(0, "SIGKILL"))
    run(e.EpisodeEnded(0))
    assert run(e.WorkerCameUp(0)) == [e.SendReset(0)]
    run(e.ResetDone(0))
    assert run.m.owed(0) is None


def test_one_abnormal_timestep_even_if_the_new_worker_dies_before_it_is_handed_over() -> None:
    run = Run(reset_on_error=True, max_retry=5).stepping()
    assert run(e.WorkerEnded(0, "first")) == [e.GiveAbnormal(0, "first"), e.Renew(0)]
    run(e.WorkerCameUp(0))
    run(e.WorkerEnded(0, "second"))
    run(e.EpisodeEnded(0, abnormal=True))
    run(e.WorkerCameUp(0))
    run(e.ResetDone(0))
    assert run.m.owed(0) is None


@pytest.mark.parametrize("state", ["DONE", "NEED_RESET", "ERROR"])
def test_envs_that_need_no_worker_owe_nothing_when_it_dies(state: str) -> None:
    run = Run(episode_num=1 if state == "DONE" else 5, auto_reset=False).running()
    run(e.SaidAbnormal(0) if state == "ERROR" else e.EpisodeEnded(0))
    assert run.states() == [state]
    assert run(e.WorkerEnded(0, "died")) == [e.Renew(0)]
    assert run.states() == [state]
    assert not run.m.any_owed()
    assert run(e.WorkerCameUp(0)) == []


def test_envs_of_one_worker_are_hit_together_and_each_by_what_it_did() -> None:
    run = Run((5, 1), reset_on_error=True, max_retry=5, retry_wait=0.1, auto_reset=False).running()
    run.step(0, 1, 5)
    run.m.steps_done([1])
    run(e.ResetAsked(2))
    run(e.EpisodeEnded(3))
    run(e.SaidAbnormal(4))
    assert run.states() == ["RUN", "RUN", "RESET", "NEED_RESET", "ERROR", "RUN"]
    orders = run(e.WorkerEnded(0, "SIGKILL"), at=1.0)
    assert orders == [e.GiveAbnormal(0, "SIGKILL")]  # an attempt of env 2 failed, so the renewal waits
    assert [run.m.owed(i) for i in range(6)] == [None, "SIGKILL", None, None, None, None]
    assert run.states() == ["RUN", "RUN", "INIT", "NEED_RESET", "ERROR", "RUN"]
    assert run.m.op.tolist() == [IDLE] * 5 + [STEPPING]
    assert run.tick(1.1) == [e.Renew(0)]
    assert run(e.EpisodeEnded(0, abnormal=True)) == []
    assert run(e.WorkerCameUp(0)) == [e.SendReset(0), e.SendReset(2)]
    assert [run.m.counts(i)[1] for i in range(6)] == [1, 1, 1, 1, 1, 0]


def test_both_envs_of_a_worker_step_when_it_dies() -> None:
    run = Run((2,), reset_on_error=True, max_retry=5).stepping()
    assert run(e.WorkerEnded(0, "x")) == [e.GiveAbnormal(0, "x"), e.GiveAbnormal(1, "x"), e.Renew(0)]


def test_other_workers_envs_are_left_alone() -> None:
    run = Run((2, 2), reset_on_error=True, max_retry=5).stepping()
    run(e.WorkerEnded(1, "x"))
    assert run.m.op.tolist() == [STEPPING, STEPPING, IDLE, IDLE]
    assert run.m.worker_up == [True, False]


def test_an_episode_that_ends_while_the_worker_is_away_starts_when_it_is_back() -> None:
    run = Run().stepping()
    run.m.steps_done([0])
    run(e.WorkerEnded(0, "x"))
    run.moves.clear()
    assert run(e.EpisodeEnded(0)) == []
    assert run.states() == ["INIT"]
    assert run(e.WorkerCameUp(0)) == [e.SendReset(0)]
    assert run.moves == [(0, "RUN", "ERROR"), (0, "ERROR", "INIT"), (0, "INIT", "RESET")]


@pytest.mark.case("F14")
def test_renewals_are_bounded_within_the_window() -> None:
    run = Run(max_renewals=3, renewal_window=100.0).running()
    for k in range(3):
        assert run(e.WorkerEnded(0, f"death {k}"), at=float(k)) == [e.Renew(0)]
        run(e.WorkerCameUp(0))
    assert run(e.WorkerEnded(0, "death 3"), at=100.0) == [e.Fail("budget", 0, "death 0", 4, at="idle")]


def test_renewals_long_ago_do_not_count() -> None:
    run = Run(max_renewals=3, renewal_window=100.0).running()
    for k in range(20):
        assert run(e.WorkerEnded(0, f"death {k}"), at=k * 40.0) == [e.Renew(0)]
        run(e.WorkerCameUp(0))


@pytest.mark.case("F14")
def test_a_renewal_that_can_never_build_ends_even_if_nobody_waits_for_it() -> None:
    run = Run(max_renewals=3, max_retry=2, retry_wait=0.1).running()
    orders = run(e.WorkerEnded(0, "died"))
    for k in range(100):
        if fails(orders):
            return
        orders = run(e.WorkerFailedToBuild(0, 0, "env_fn"), at=float(k)) + run.tick(k + 0.5)
    raise AssertionError("100 processes were started for nothing")


# -- deadlines ----------------------------------------------------------------------------------------


@pytest.mark.case("F18")
@pytest.mark.parametrize("on_reset", [False, True])
def test_a_step_that_overruns_is_broken_off_first(on_reset: bool) -> None:
    run = Run((1, 1), reset_on_error=on_reset, max_retry=5).stepping()
    assert run(e.DeadlinePassed(0, "60 s")) == [e.Interrupt(0)]
    assert run.m.interrupted(0) == "60 s"
    assert run.m.interrupted(1) is None
    expected = e.GiveAbnormal(0, "60 s") if on_reset else e.Fail("step", 0, "60 s")
    assert run(e.StepFailed(0, "60 s", final=True)) == [expected]
    assert run.m.interrupted(0) is None
    assert run.m.op.tolist() == [IDLE, STEPPING]
    assert run.m.counts(0) == (0, 0, 1)


@pytest.mark.case("F18")
def test_a_step_that_does_not_come_back_is_killed_and_told_as_an_overrun() -> None:
    run = Run(reset_on_error=True, max_retry=5).stepping()
    run(e.DeadlinePassed(0, "60 s"))
    (kill,) = run(e.DeadlinePassed(0, "61 s"))
    assert kill == e.Kill(0, 0)
    assert run(e.WorkerEnded(0, "SIGKILL")) == [e.GiveAbnormal(0, "60 s"), e.Renew(0)]
    assert run.m.counts(0) == (0, 1, 1)


def test_a_worker_is_killed_once_however_often_its_deadline_passes() -> None:
    run = Run((2,)).stepping(0)
    run(e.DeadlinePassed(0, "too long"))
    assert run(e.DeadlinePassed(0, "too long"))[0] == e.Kill(0, 0)
    run.step(1)
    for i in (0, 1, 0):
        assert run(e.DeadlinePassed(i, "still")) == []
    assert run.m.counts(1)[2] == 0, "a call that never ran has not timed out"
    assert fails(run(e.WorkerEnded(0, "died"))) == [e.Fail("step", 0, "too long"), e.Fail("step", 1, "died")]


def test_two_envs_of_one_worker_whose_resets_failed_renew_it_once() -> None:
    run = Run((2,), max_retry=3, renew=True).launched()
    for i in (0, 1):
        run(e.ResetFailed(i, "no"))
    assert len(run.tick(1.0)) == 1
    assert run(e.WorkerEnded(0, "died"))[-1] == e.Renew(0)
    assert run(e.WorkerCameUp(0)) == [e.SendReset(0), e.SendReset(1)]


def test_siblings_of_the_stuck_env_are_hit_by_the_death_not_by_the_overrun() -> None:
    run = Run((2,), reset_on_error=True, max_retry=5).stepping()
    run(e.DeadlinePassed(1, "60 s"))
    run(e.DeadlinePassed(1, "60 s"))
    assert run(e.WorkerEnded(0, "SIGKILL")) == [
        e.GiveAbnormal(1, "60 s"), e.GiveAbnormal(0, "SIGKILL"), e.Renew(0),
    ]  # fmt: skip


@pytest.mark.parametrize("stepping", [True, False])
def test_with_on_error_raise_a_sibling_of_a_killed_env_is_an_error_too(stepping: bool) -> None:
    """Decided so: its episode is lost; to go on with another in silence is what on_error='reset' is for."""
    run = Run((2,), max_retry=5).launched()
    run(e.ResetDone(0))
    if stepping:
        run.step(0)
    run(e.DeadlinePassed(1, "60 s"))
    assert isinstance(run(e.DeadlinePassed(1, "60 s"))[0], e.Kill)
    failed = [e.Fail("step", 0, "SIGKILL")]
    assert fails(run(e.WorkerEnded(0, "SIGKILL"))) == (failed if stepping else [])
    if not stepping:  # the next step that names it is told, and nobody before
        assert run.m.take_owed(0) == failed


def test_a_step_that_comes_back_well_within_its_grace_is_a_good_step() -> None:
    run = Run().stepping()
    run(e.DeadlinePassed(0, "60 s"))
    run.good_step(0)
    assert run.m.interrupted(0) is None
    run.step(0)
    assert run(e.DeadlinePassed(0, "60 s")) == [e.Interrupt(0)]  # not a kill: it is another call


@pytest.mark.case("O19")
def test_a_reset_that_overruns_is_an_attempt() -> None:
    run = Run(max_retry=2, retry_wait=0.0).launched()
    assert run(e.DeadlinePassed(0, "slow")) == [e.Interrupt(0)]
    assert run(e.ResetFailed(0, "slow")) == []
    run.tick(0.0)
    assert run(e.DeadlinePassed(0, "slow again")) == [e.Interrupt(0)]
    assert isinstance(run(e.DeadlinePassed(0, "slow again"))[0], e.Kill)
    assert fails(run(e.WorkerEnded(0, "SIGKILL"))) == [e.Fail("reset", 0, "slow", 2)]


def test_a_reset_that_was_killed_is_told_as_an_overrun() -> None:
    run = Run(max_retry=1).launched()
    run(e.DeadlinePassed(0, "slow"))
    run(e.DeadlinePassed(0, "slow"))
    assert fails(run(e.WorkerEnded(0, "SIGKILL"))) == [e.Fail("reset", 0, "slow", 1)]


def test_a_deadline_of_an_env_that_does_nothing_is_nothing() -> None:
    run = Run().running()
    assert run(e.DeadlinePassed(0, "late news")) == []
    assert run.m.counts(0) == (0, 0, 0)


def test_a_reset_asked_for_a_stuck_step_still_breaks_it_off_and_kills() -> None:
    run = Run(max_retry=1).stepping()
    run(e.ResetAsked(0))
    assert run(e.DeadlinePassed(0, "60 s")) == [e.Interrupt(0)]
    assert isinstance(run(e.DeadlinePassed(0, "60 s"))[0], e.Kill)
    assert run(e.WorkerEnded(0, "SIGKILL")) == [e.Renew(0)]
    assert run(e.WorkerCameUp(0)) == [e.SendReset(0)]


def test_a_reset_asked_while_one_is_broken_off_is_a_call_of_its_own() -> None:
    run = Run().launched()
    assert run(e.DeadlinePassed(0, "60 s")) == [e.Interrupt(0)]
    run(e.ResetAsked(0))
    assert run(e.ResetFailed(0, "60 s")) == [e.SendReset(0)]
    assert run.m.interrupted(0) is None
    assert run(e.DeadlinePassed(0, "60 s again")) == [e.Interrupt(0)]


# -- episodes -----------------------------------------------------------------------------------------


@pytest.mark.case("O11")
@pytest.mark.parametrize("auto_reset", [True, False])
def test_done_comes_after_episode_num_episodes(auto_reset: bool) -> None:
    run = Run((1, 1), episode_num=3, auto_reset=auto_reset).running()
    for episode in range(1, 3):
        orders = run(e.EpisodeEnded(0))
        if not auto_reset:
            assert orders == []
            assert run.states()[0] == "NEED_RESET"
            orders = run(e.ResetAsked(0))
        assert orders == [e.SendReset(0)]
        assert run.m.episodes[0] == episode
        run(e.ResetDone(0))
    assert run(e.EpisodeEnded(0)) == []
    assert run.states() == ["DONE", "RUN"]
    assert not run.m.all_done()
    for _ in range(3):
        for order in run(e.EpisodeEnded(1)) or ([] if run.states()[1] == "DONE" else run(e.ResetAsked(1))):
            assert order == e.SendReset(1)
            run(e.ResetDone(1))
    assert run.states() == ["DONE", "DONE"]
    assert run.m.all_done()


@pytest.mark.case("O24")
def test_not_done_while_an_automatic_reset_is_pending() -> None:
    run = Run(episode_num=2).running()
    run(e.EpisodeEnded(0))
    assert not run.m.all_done()


def test_without_auto_reset_nothing_moves_by_itself() -> None:
    run = Run(auto_reset=False).running()
    assert run(e.EpisodeEnded(0)) == []
    assert run.tick(1e9) == []
    assert run.states() == ["NEED_RESET"]


def test_no_end_by_default() -> None:
    run = Run().running()
    for _ in range(1000):
        assert run(e.EpisodeEnded(0)) == [e.SendReset(0)]
        run(e.ResetDone(0))
    assert run.m.episodes[0] == 1000


def test_an_env_that_calls_itself_abnormal_waits_for_reset() -> None:
    run = Run((1, 1)).running()
    assert run(e.SaidAbnormal(0)) == []
    assert run.states() == ["ERROR", "RUN"]
    assert run.tick(1e9) == []
    assert run(e.ResetAsked(0)) == [e.SendReset(0)]


def test_a_reset_that_the_worker_did_by_itself_may_fail_and_is_tried_again() -> None:
    run = Run(max_retry=2, retry_wait=0.1).stepping()
    run.m.good_step(0)
    run.m.steps_done([0])
    run.m.reset_followed(0)
    assert run.states() == ["RESET"]
    assert run.m.op[0] == RESETTING
    assert run(e.ResetFailed(0, "first"), at=1.0) == []
    assert run.tick(1.1) == [e.SendReset(0)]
    assert run(e.ResetFailed(0, "second")) == [e.Fail("reset", 0, "first", 2)]


# -- whole batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [slice(None), np.array([0, 1, 2]), [0, 1, 2]], ids=["slice", "array", "list"])
def test_batches_move_op_and_nothing_else(ids: Any) -> None:
    run = Run((1, 1, 1)).running()
    run.m.steps_sent(ids)
    assert run.m.op.tolist() == [STEPPING] * 3
    run.m.steps_done(ids)
    assert run.m.op.tolist() == [IDLE] * 3
    assert run.moves == []


# -- the end ------------------------------------------------------------------------------------------


@pytest.mark.case("O03")
def test_close_from_every_state_at_once() -> None:
    run = Run((1,) * 6, episode_num=2, auto_reset=False, max_retry=3).running()
    run.m.episodes[1] = 1
    run(e.EpisodeEnded(1))
    run(e.EpisodeEnded(2))
    run(e.SaidAbnormal(3))
    run(e.ResetAsked(4))
    run(e.WorkerEnded(5, "died"))
    run(e.ResetAsked(5))
    run.step(0)
    assert run.states() == ["RUN", "DONE", "NEED_RESET", "ERROR", "RESET", "INIT"]
    run.moves.clear()
    assert run(e.Closed()) == []
    assert run.states() == ["VOID"] * 6
    assert [new for _, _, new in run.moves] == ["VOID"] * 6
    assert not run.m.op.any()


def test_close_before_anything_was_opened() -> None:
    run = Run()
    assert run(e.Closed()) == []
    assert run.moves == []


def test_close_ends_all_waits_and_nothing_happens_after_it() -> None:
    run = Run((1, 1), max_retry=5, retry_wait=1.0).launched()
    run(e.ResetFailed(0, "x"))
    run(e.WorkerEnded(1, "x"))
    assert run.m.next_due() is not None
    run(e.Closed())
    assert run.m.next_due() is None
    late: list[e.Event] = [
        e.ResetDone(0), e.ResetFailed(0, "late"), e.StepFailed(0, "late"), e.WorkerEnded(0, "late"),
        e.WorkerCameUp(1), e.WorkerFailedToBuild(1, 1, "late"), e.ResetAsked(0), e.EpisodeEnded(0),
        e.SaidAbnormal(0), e.DeadlinePassed(0, "late"), e.Opened(), e.Closed(),
    ]  # fmt: skip
    for event in late:
        assert run(event) == []
    assert run.tick(1e9) == []
    assert run.states() == ["VOID", "VOID"]


def test_an_illegal_move_tells_the_story_of_the_env() -> None:
    run = Run((1, 1)).stepping()
    run(e.SaidAbnormal(1))
    with pytest.raises(
        IllegalMoveError, match=r"env 1 would go from ERROR to RUN.*SaidAbnormal, ResetDone"
    ) as caught:
        run(e.ResetDone(1))
    assert "EpisodeEnded" not in str(caught.value)
    assert caught.value.env_id == 1
    assert run.states() == ["RUN", "ERROR"]


def test_the_story_is_short() -> None:
    run = Run().running()
    for _ in range(50):
        run(e.EpisodeEnded(0))
        run(e.ResetDone(0))
    with pytest.raises(IllegalMoveError) as caught:
        run(e.Opened())
    assert str(caught.value).count("ResetDone") == 4
