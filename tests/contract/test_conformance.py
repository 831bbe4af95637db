"""The public suite, ``envmgr.testing.conformance``: our managers pass it, broken ones do not."""

from __future__ import annotations

import numpy as np
import pytest

from envmgr import BaseEnvManager, EnvManagerError, EnvState, create_env_manager
from envmgr.testing.conformance import (
    ArrayFaceConformance,
    GatheringConformance,
    Harness,
    ManagerConformance,
)


class TestBase(ManagerConformance):
    separate_processes = False
    closes_on_error = False

    def make_manager(self, env_fns, **cfg):
        return create_env_manager({"type": "base", **cfg}, env_fns)


class TestSubprocess(ManagerConformance):
    separate_processes = True

    def make_manager(self, env_fns, **cfg):
        return create_env_manager({"type": "subprocess", "context": "fork", **cfg}, env_fns)


class TestAsyncSubprocess(ManagerConformance, GatheringConformance):
    separate_processes = True
    order_asked = False

    def make_manager(self, env_fns, **cfg):
        rule = {"wait_num": len(env_fns), "step_wait_timeout": None}
        return create_env_manager({"type": "async_subprocess", "context": "fork", **rule, **cfg}, env_fns)


class TestUnderSpawn(Harness):
    """One test of the suite, so that its envs are known to reach a fresh interpreter."""

    test_arrays_over_episodes = ArrayFaceConformance.test_arrays_over_episodes

    def make_manager(self, env_fns, **cfg):
        return create_env_manager({"type": "subprocess", "context": "spawn", **cfg}, env_fns)


class MixesUp(BaseEnvManager):
    def step(self, actions):
        results = super().step(actions)
        return dict(zip(results, reversed(results.values()), strict=True))


class SharesOneBuffer(BaseEnvManager):
    def step(self, actions):
        results = super().step(actions)
        buffers = self.__dict__.setdefault("buffers", {})
        for i, timestep in results.items():
            buffers.setdefault(i, np.zeros(3))[:] = timestep.obs
            results[i] = timestep._replace(obs=buffers[i])
        return results


class LosesTheEnd(BaseEnvManager):
    """Gives the first observation of the next episode where the last of this one belongs."""

    def step(self, actions):
        results = super().step(actions)
        ready = self.ready_obs
        return {i: ts._replace(obs=ready[i]) if ts.done and i in ready else ts for i, ts in results.items()}


class TakesUnknownIds(BaseEnvManager):
    def step(self, actions):
        return super().step({i: action for i, action in actions.items() if i in range(self.env_num)})


class SendsBeforeItRefuses(BaseEnvManager):
    def step(self, actions):
        try:
            return super().step(actions)
        except EnvManagerError:
            super().step({0: 0})
            raise


class ResetsEveryone(BaseEnvManager):
    def reset(self, reset_param=None):
        super().reset()


class ForgetsParams(BaseEnvManager):
    """At an automatic reset."""

    def step(self, actions):
        results = super().step(actions)
        if any(ts.done for ts in results.values()):
            super().reset({i: {} for i in results})
        return results


class IgnoresSeeds(BaseEnvManager):
    def seed(self, seed, dynamic_seed=None):
        pass


class SeedsAllAlike(BaseEnvManager):
    def seed(self, seed, dynamic_seed=None):
        super().seed([seed] * self.env_num if isinstance(seed, int) else seed, dynamic_seed)


class IsNeverDone(BaseEnvManager):
    @property
    def done(self):
        return False


class SaysRun(BaseEnvManager):
    @property
    def env_states(self):
        return dict.fromkeys(range(self.env_num), EnvState.RUN)


class ClosesOnceForGood(BaseEnvManager):
    def launch(self, reset_param=None):
        if self._was_closed:
            raise EnvManagerError("closed for good")
        super().launch(reset_param)


class HidesTheError(BaseEnvManager):
    def step(self, actions):
        try:
            return super().step(actions)
        except EnvManagerError:
            raise RuntimeError("an env failed") from None


class AnswersEverything(BaseEnvManager):
    def __getattr__(self, name):
        return [None] * len(self._env_fns)


class ReversesRows(BaseEnvManager):
    def step_arrays(self, actions, env_id=None):
        out = super().step_arrays(actions, env_id)
        return out._replace(obs=out.obs[::-1])


class HasNoFinalObs(BaseEnvManager):
    def step_arrays(self, actions, env_id=None):
        return super().step_arrays(actions, env_id)._replace(final_obs={})


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        (MixesUp, "test_each_result_is_its_envs_own"),
        (SharesOneBuffer, "test_what_is_returned_is_the_callers_own"),
        (LosesTheEnd, "test_terminal_observations_and_automatic_resets"),
        (TakesUnknownIds, "test_refused_steps_send_nothing"),
        (SendsBeforeItRefuses, "test_refused_steps_send_nothing"),
        (ResetsEveryone, "test_reset_touches_those_named_and_no_others"),
        (ResetsEveryone, "test_refused_resets_touch_nobody"),
        (ForgetsParams, "test_params_hold_until_others_are_given"),
        (IgnoresSeeds, "test_the_same_seeds_give_the_same_numbers"),
        (IgnoresSeeds, "test_dynamic_seeds_vary_by_episode_and_can_be_repeated"),
        (SeedsAllAlike, "test_who_gets_which_seed_and_when"),
        (IsNeverDone, "test_after_episode_num_episodes_it_is_done"),
        (SaysRun, "test_a_life"),
        (SaysRun, "test_without_auto_reset_an_env_waits"),
        (ClosesOnceForGood, "test_a_life"),
        (HidesTheError, "test_an_env_that_raises_in_step"),
        (HidesTheError, "test_an_observation_of_a_wrong_shape"),
        (AnswersEverything, "test_what_python_asks_of_an_object"),
        (ReversesRows, "test_arrays_over_episodes"),
        (HasNoFinalObs, "test_arrays_over_episodes"),
    ],
)
def test_a_broken_manager_is_caught(broken, caught_by):
    class Suite(ManagerConformance):
        separate_processes = False
        closes_on_error = False
        deadline = 0.5

        def make_manager(self, env_fns, **cfg):
            return broken(env_fns, cfg)

    suite = Suite()
    suite.setup_method()
    try:
        with pytest.raises((AssertionError, EnvManagerError)) as caught:
            getattr(suite, caught_by)()
    finally:
        suite.teardown_method()
    assert str(caught.value)


def test_a_suite_without_its_manager_says_what_is_missing():
    suite = ManagerConformance()
    suite.setup_method()
    with pytest.raises(NotImplementedError, match="make_manager"):
        suite.test_a_life()
    suite.teardown_method()
