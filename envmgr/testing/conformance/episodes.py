"""Ends of episodes: terminal observations, automatic resets, ``episode_num``, ``done``."""

from __future__ import annotations

from functools import partial

from envmgr.errors import IllegalStateError
from envmgr.testing.conformance.envs import TallyEnv
from envmgr.testing.conformance.harness import Harness, expect, lists, refused, state, tally


class EpisodesConformance(Harness):
    """What happens when an episode is over."""

    def test_terminal_observations_and_automatic_resets(self) -> None:
        """Every transition is exact, and terminated and truncated are kept apart."""
        manager = self.launched([partial(TallyEnv, i, length=2 + i, truncate=i == 1) for i in range(2)])
        place = {0: (0, 0), 1: (0, 0)}
        kept = []
        for _ in range(7):
            expect(lists(self.ready(manager)), {i: [i, *place[i]] for i in place}, "ready_obs")
            for i, timestep in self.step(manager, {0: 0, 1: 0}).items():
                episode, t = place[i]
                over = t + 1 == 2 + i
                kept.append((timestep, [i, episode, t + 1]))
                flags = (timestep.done, timestep.terminated, timestep.truncated)
                expect(
                    flags, (over, over and i == 0, over and i == 1), f"env {i}: done, terminated, truncated"
                )
                told = bool(timestep.info.get("TimeLimit.truncated", False))
                expect(told, over and i == 1, f"env {i}: info['TimeLimit.truncated']")
                place[i] = (episode + 1, 0) if over else (episode, t + 1)
            expect(manager.done, False, "done while there are episodes to come")
        self.ready(manager)
        for timestep, obs in kept:
            expect(timestep.obs.tolist(), obs, "an observation, some resets later")
        expect(list(manager.resets), [4, 3], "resets of each env: one per episode, none besides")

    def test_without_auto_reset_an_env_waits(self) -> None:
        """For ``reset``, and it is not done before its ``episode_num``."""
        manager = self.launched(tally(2, length=1), auto_reset=False, episode_num=2)
        self.step(manager, {0: 0, 1: 0})
        self.wait_state(manager, 0, "NEED_RESET")
        expect((manager.done, manager.env_state_done(0)), (False, False), "done after one episode of two")
        refused(IllegalStateError, manager.step, {0: 0}, says=("0", "NEED_RESET", "reset"))
        refused(IllegalStateError, lambda: manager.ready_obs, says=("NEED_RESET",))
        manager.reset({0: {}})
        expect(lists(self.ready(manager, [0])), {0: [0, 1, 0]}, "ready_obs after a reset of env 0")
        expect(state(manager, 1), "NEED_RESET", "the state of env 1, which nobody reset")
        self.step(manager, {0: 0})
        self.wait_state(manager, 0, "DONE")
        expect((manager.done, manager.env_state_done(0)), (False, True), "done, and of env 0")

    def test_after_episode_num_episodes_it_is_done(self) -> None:
        """No reset after the last one; a step is refused; ``reset`` begins anew, and so does ``launch``."""
        manager = self.launched([partial(TallyEnv, i, length=1 + i) for i in range(2)], episode_num=2)
        ends = [0, 0]

        def step_who_is_ready() -> bool:
            for i, timestep in manager.step(dict.fromkeys(manager.ready_obs, 0)).items():
                ends[i] += timestep.done
            return bool(manager.done)

        self.wait_for(step_who_is_ready, "the manager to be done")
        expect(ends, [2, 2], "episodes of each env")
        expect([state(manager, i) for i in range(2)], ["DONE"] * 2, "states")
        expect(list(manager.resets), [2, 2], "resets of each env")
        expect(manager.ready_obs, {}, "ready_obs when all are done")
        refused(IllegalStateError, manager.step, {0: 0}, says=("0", "DONE"))
        manager.reset()
        expect(lists(self.ready(manager)), {i: [i, 2, 0] for i in range(2)}, "ready_obs after reset")
        expect(manager.done, False, "done after reset")
