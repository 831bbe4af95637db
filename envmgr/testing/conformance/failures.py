"""When an env fails: in its env_fn, in a reset, in a step, by an observation of a wrong shape.

Deaths of workers and overruns are not tried here: what can die and how differs from manager to manager.
"""

from __future__ import annotations

from functools import partial

from envmgr.errors import EnvInitError, EnvResetError, EnvStepError, SpaceMismatchError
from envmgr.testing.conformance.envs import TallyEnv, failing_env_fn, no_env
from envmgr.testing.conformance.harness import Harness, expect, lists, refused, state, tally


class FailuresConformance(Harness):
    """The error names the env and the user's own line, and what comes after is as documented."""

    def test_an_env_that_raises_in_step(self) -> None:
        """By default EnvStepError; and the manager closes, or stays open with that env in ERROR."""
        manager = self.launched([partial(TallyEnv, 0), partial(TallyEnv, 1, fail_step=2)])
        self.step(manager, {0: 0, 1: 0})
        error = refused(EnvStepError, self.step, manager, {1: 0}, says=("told", "step 2 of env 1", "envs.py"))
        expect(error.env_id, 1, "env_id of the error")
        expect(manager.closed, self.closes_on_error, "closed after an error in a step")
        if self.closes_on_error:
            manager.launch()
            expect(lists(self.ready(manager)), {0: [0, 0, 0], 1: [1, 0, 0]}, "ready_obs after a relaunch")
        else:
            expect(state(manager, 1), "ERROR", "the state of the env that raised")
            manager.reset({1: {}})
            expect(lists(self.ready(manager)), {0: [0, 0, 1], 1: [1, 1, 0]}, "ready_obs after its reset")

    def test_an_env_that_raises_in_step_with_on_error_reset(self) -> None:
        """One abnormal timestep, with the last good observation; the env is reset, the others go on."""
        manager = self.launched([partial(TallyEnv, 0), partial(TallyEnv, 1, fail_step=2)], on_error="reset")
        self.step(manager, {0: 0, 1: 0})
        results = self.step(manager, {0: 0, 1: 0})
        expect(results[0].obs.tolist(), [0, 0, 2], "the observation of the env that is well")
        bad = results[1]
        expect(bad.obs.tolist(), [1, 0, 1], "the last good observation of the env that failed")
        expect((float(bad.reward), bad.done, bad.truncated), (0.0, True, True), "its reward, done, truncated")
        expect(bool(bad.info.abnormal), True, "info.abnormal")
        expect("step 2 of env 1" in str(bad.info.err), True, f"info.err says what happened: {bad.info.err}")
        expect(self.ready(manager)[1].tolist(), [1, 1, 0], "its first observation after the reset")
        expect(self.step(manager, {1: 0})[1].obs.tolist(), [1, 1, 1], "its next step")

    def test_an_env_that_raises_in_reset(self) -> None:
        """``max_retry`` attempts in all; then EnvResetError, and everything is closed."""
        log = self.log()
        fns = [partial(TallyEnv, 0), partial(TallyEnv, 1, fail_resets=(1,), log=log)]
        manager = self.launched(fns, max_retry=2, retry_waiting_time=0.01)
        expect(self.ready(manager)[1].tolist(), [1, 0, 0], "the observation of the second attempt")
        expect(len(log.lines("failed")), 1, "attempts that failed")
        log = self.log()
        fns = [partial(TallyEnv, 0), partial(TallyEnv, 1, fail_resets=tuple(range(1, 9)), log=log)]
        manager = self.made(fns, max_retry=2, retry_waiting_time=0.01)
        error = refused(EnvResetError, self.launch_until_ready, manager, says=("of env 1", "envs.py"))
        expect(error.env_id, 1, "env_id of the error")
        expect(len(log.lines("failed")), 2, "attempts")
        expect(manager.closed, True, "closed after a reset that failed for good")

    def test_an_env_that_cannot_be_built(self) -> None:
        """EnvInitError, naming the env and why."""
        for fn, says in ((failing_env_fn, "cannot be built"), (no_env, "none")):
            manager = self.made([*tally(1), fn])
            error = refused(EnvInitError, self.launch_until_ready, manager, says=(says,))
            expect(error.env_id, 1, f"env_id of the error of {fn.__name__}")

    def test_an_observation_of_a_wrong_shape(self) -> None:
        """SpaceMismatchError, with what was expected and what came."""
        manager = self.launched(tally(1, wrong_shape_at=1))
        error = refused(SpaceMismatchError, self.step, manager, {0: 0}, says=("(3,)", "(4,)"))
        expect(error.env_id, 0, "env_id of the error")

    def launch_until_ready(self, manager: object) -> None:
        """What fails in a launch may show in the launch or in ``ready_obs``."""
        manager.launch()  # type: ignore[attr-defined]
        self.ready(manager)
