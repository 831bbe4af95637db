"""``step``: whose results come back, what they are, and what is refused before anything is sent."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from envmgr.errors import EnvManagerError, IllegalStateError
from envmgr.testing.conformance.envs import NestedEnv
from envmgr.testing.conformance.harness import Harness, expect, lists, refused, tally


class SteppingConformance(Harness):
    """``step``, ``ready_obs``, ``random_action``."""

    def test_each_result_is_its_envs_own(self) -> None:
        """Observation, reward and info; the others do not move; a timestep is four values and more."""
        manager = self.launched(tally(3))
        expect(manager.step({}), {}, "step({}) with nothing pending")
        for t in range(1, 4):
            results = self.step(manager, {2: 20 + t, 0: t})
            if self.order_asked:
                expect(list(results), [2, 0], "the order of the results")
            for i in (0, 2):
                obs, reward, done, info = results[i]
                expect(obs, np.array([i, 0, t], np.float64), f"env {i}'s observation")
                expect(float(reward), 100.0 * i + t, f"env {i}'s reward")
                expect((done, info["t"]), (False, t), f"env {i}'s done and info")
                expect((results[i].terminated, results[i].truncated), (False, False), "how the episode ended")
            expect(lists(manager.ready_obs), {0: [0, 0, t], 1: [1, 0, 0], 2: [2, 0, t]}, "ready_obs")
        expect(list(manager.actions), [[1, 2, 3], [], [21, 22, 23]], "the actions that each env was given")

    def test_what_is_returned_is_the_callers_own(self) -> None:
        """Kept observations do not change with later steps, and may be written to."""
        manager = self.launched(tally(2))
        kept = [manager.ready_obs[0]] + [self.step(manager, {0: 0, 1: 0})[0].obs for _ in range(3)]
        expect([obs.tolist() for obs in kept], [[0, 0, t] for t in range(4)], "observations kept")
        for obs in kept:
            obs[:] = -1
        manager.ready_obs[0][:] = -2
        expect(lists(manager.ready_obs), {0: [0, 0, 3], 1: [1, 0, 3]}, "ready_obs after writing into it")
        expect(self.step(manager, {0: 0})[0].obs.tolist(), [0, 0, 4], "the next observation")

    def test_refused_steps_send_nothing(self) -> None:
        """An unknown env (a KeyError too), no dict, a wrong action: no env is stepped, and all can be."""
        manager = self.launched(tally(2))
        unknown: list[Any] = [{0: 0, 2: 0}, {0: 0, -1: 0}, {0: 0, "1": 0}]
        for actions in unknown:
            error = refused(EnvManagerError, manager.step, actions)
            expect(isinstance(error, KeyError), True, f"the error of {actions} is a KeyError")
        for actions in ([0, 0], 5, None, {0: 0, 1: np.zeros(3)}, {0: 0, 1: {"a": 1}}):
            refused((EnvManagerError, TypeError), manager.step, actions)
        expect(list(manager.steps), [0, 0], "steps that envs have made")
        results = self.step(manager, {0: 0, 1: 0})
        expect(lists({i: ts.obs for i, ts in results.items()}), {0: [0, 0, 1], 1: [1, 0, 1]}, "a step after")

    def test_nested_observations_and_actions_arrive_as_they_were(self) -> None:
        """In structure, dtype and value, one leaf having no fixed layout; kept ones do not change."""
        manager = self.launched([partial(NestedEnv, i) for i in range(2)])
        kept = [self.ready(manager)]
        actions = []
        for t in range(3):
            actions.append({i: {"move": np.array([i, t], np.float32) / 4, "press": i + t} for i in range(2)})
            kept.append({i: ts.obs for i, ts in self.step(manager, actions[-1]).items()})
        for t, seen in enumerate(kept):
            for i in range(2):
                expect(seen[i], NestedEnv.expected(i, t), f"env {i}'s observation after {t} steps")
        for i, given in enumerate(manager.given):
            expect(given, [action[i] for action in actions], f"the actions that env {i} was given")

    def test_random_action_is_for_the_ready_ids(self) -> None:
        """In their action spaces, and reproducible after ``seed``."""
        manager = self.launched(tally(2, length=1), auto_reset=False)
        drawn = []
        for _ in range(2):
            manager.seed(5)
            drawn.append([manager.random_action() for _ in range(3)])
        expect(drawn[0], drawn[1], "random actions after the same seed")
        for action in drawn[0]:
            expect(sorted(action), [0, 1], "the envs that random_action is for")
            expect(
                all(manager.action_space.contains(a) for a in action.values()), True, "they are in the space"
            )
        self.step(manager, {0: 0})
        expect(sorted(manager.random_action()), [1], "env 0's episode is over: the envs of random_action")
        refused(IllegalStateError, manager.step, {0: 0}, says=("0", "NEED_RESET"))
