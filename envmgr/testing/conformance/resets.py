"""``reset``: whom it touches, its params and how long they hold, what is refused."""

from __future__ import annotations

from typing import Any

from envmgr.errors import EnvManagerError
from envmgr.testing.conformance.harness import Harness, expect, lists, refused, tally


class ResetsConformance(Harness):
    """``reset`` and ``launch`` with params; ``ready_info``."""

    def test_reset_touches_those_named_and_no_others(self) -> None:
        """All without an argument, none with an empty dict."""
        manager = self.launched(tally(3))
        self.step(manager, dict.fromkeys(range(3), 0))
        manager.reset({})
        manager.reset({1: {}})
        expect(
            lists(self.ready(manager)), {0: [0, 0, 1], 1: [1, 1, 0], 2: [2, 0, 1]}, "after a reset of env 1"
        )
        expect(list(manager.resets), [1, 2, 1], "resets of each env")
        results = self.step(manager, {0: 0, 1: 0})
        expect(lists({i: ts.obs for i, ts in results.items()}), {0: [0, 0, 2], 1: [1, 1, 1]}, "the next step")
        manager.reset()
        expect(
            [obs[1] for obs in lists(self.ready(manager)).values()],
            [1, 2, 1],
            "episodes after a reset of all",
        )
        infos = manager.ready_info
        expect([infos[i]["episode"] for i in range(3)], [1, 2, 1], "episodes in ready_info")

    def test_params_hold_until_others_are_given(self) -> None:
        """Through automatic resets; ``None`` keeps them; the caller's own dict is left alone."""
        given: dict[int, Any] = {0: {"start": 10}, 1: {"start": 20}}
        manager = self.launched(tally(2, length=1), given)
        for episode in range(3):
            obs = lists(self.ready(manager))
            expect(obs, {0: [0, episode, 10], 1: [1, episode, 20]}, f"ready_obs of episode {episode}")
            self.step(manager, {0: 0, 1: 0})
        self.ready(manager)
        manager.reset({1: {"start": 77}})
        expect(
            [obs[2] for obs in lists(self.ready(manager)).values()], [10, 77], "starts: new params for env 1"
        )
        manager.reset({0: None})
        expect([obs[2] for obs in lists(self.ready(manager)).values()], [10, 77], "starts: None keeps params")
        manager.reset([{"start": 5}, None])
        expect([obs[2] for obs in lists(self.ready(manager)).values()], [5, 77], "starts: a list")
        self.step(manager, {0: 0, 1: 0})
        expect(
            [obs[2] for obs in lists(self.ready(manager)).values()], [5, 77], "starts: automatic resets after"
        )
        expect(given, {0: {"start": 10}, 1: {"start": 20}}, "the caller's params")

    def test_refused_resets_touch_nobody(self) -> None:
        """An unknown env (a KeyError too), a list of the wrong length, what is no params at all."""
        manager = self.launched(tally(2))
        self.step(manager, {0: 0, 1: 0})
        unknown: list[Any] = [{0: {}, 2: {}}, {0: {}, -1: {}}]
        for params in unknown:
            error = refused(EnvManagerError, manager.reset, params)
            expect(isinstance(error, KeyError), True, f"the error of {params} is a KeyError")
        wrong: list[Any] = [[{}], [{}, {}, {}], 5, "all", {0: 5}]
        for params in wrong:
            refused(EnvManagerError, manager.reset, params)
        expect(lists(self.ready(manager)), {0: [0, 0, 1], 1: [1, 0, 1]}, "ready_obs after refused resets")
