"""For managers that return as soon as some results are in (``wait_num``, ``step_wait_timeout``)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from envmgr.errors import IllegalStateError
from envmgr.testing.conformance.envs import TallyEnv
from envmgr.testing.conformance.harness import Harness, expect, lists, refused


class GatheringConformance(Harness):
    """What comes later is returned later, once, and is its own."""

    def test_a_slow_env_does_not_hold_up_the_others(self) -> None:
        """It is left out until its result is there; it can be neither stepped nor lost meanwhile."""
        gate = self.folder() / "gate"
        fns = [partial(TallyEnv, 0), partial(TallyEnv, 1, gate=str(gate)), partial(TallyEnv, 2)]
        manager = self.launched(fns, wait_num=1, step_wait_timeout=0.0)
        try:
            got = manager.step({0: 0, 1: 0})
            expect(sorted(got), [0], "results while env 1 waits")
            expect(sorted(manager.ready_obs), [0, 2], "ready_obs while env 1 steps")
            refused(IllegalStateError, manager.step, {1: 0}, says=("1", "stepping"))
            for t in range(2, 5):
                expect(lists({i: ts.obs for i, ts in manager.step({0: 0}).items()}), {0: [0, 0, t]}, "env 0")
            manager.reset({2: {"start": 5}})
            expect(manager.ready_obs[2].tolist(), [2, 1, 5], "a reset of another env")
        finally:
            Path(gate).touch()
        late = manager.step({})
        expect(lists({i: ts.obs for i, ts in late.items()}), {1: [1, 0, 1]}, "the late result")
        expect(manager.step({}), {}, "step({}) when nothing is pending")
        expect(list(manager.steps), [4, 1, 0], "steps that envs have made")

    def test_a_reset_discards_what_is_pending(self) -> None:
        """The old episode's result is never taken for the new one's."""
        gate = self.folder() / "gate"
        fns = [partial(TallyEnv, 0), partial(TallyEnv, 1, gate=str(gate))]
        manager = self.launched(fns, wait_num=1, step_wait_timeout=0.0)
        try:
            expect(sorted(manager.step({0: 0, 1: 0})), [0], "results while env 1 waits")
        finally:
            Path(gate).touch()
        manager.reset()
        expect(lists(self.ready(manager)), {0: [0, 1, 0], 1: [1, 1, 0]}, "ready_obs after reset")
        results = self.step(manager, {0: 0, 1: 0})
        expect(lists({i: ts.obs for i, ts in results.items()}), {0: [0, 1, 1], 1: [1, 1, 1]}, "the next step")
