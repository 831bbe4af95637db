"""Seeds: who gets which and when, and that the same ones give the same numbers."""

from __future__ import annotations

from typing import Any

from envmgr.errors import EnvManagerError
from envmgr.testing.conformance.envs import ChanceEnv
from envmgr.testing.conformance.harness import Harness, expect, refused, tally


class SeedsConformance(Harness):
    """``seed``."""

    def test_who_gets_which_seed_and_when(self) -> None:
        """An int is offset by env_id, a list and a dict are exact; used at the next reset only."""
        seeds: list[Any] = [9, 3]
        manager = self.made(tally(2, length=1))
        manager.seed(100)
        manager.seed({1: 7})
        manager.launch()
        self.ready(manager)
        expect(list(manager.seeds), [[100], [7]], "seeds of the launch: 100 for all, then 7 for env 1")
        self.step(manager, {0: 0, 1: 0})
        self.ready(manager)
        expect(list(manager.seeds), [[100, None], [7, None]], "seeds of an automatic reset")
        manager.seed(seeds)
        manager.reset()
        self.ready(manager)
        expect([given[-1] for given in manager.seeds], [9, 3], "seeds given as a list")
        expect(seeds, [9, 3], "the caller's list")
        manager.seed(None)
        manager.reset()
        self.ready(manager)
        for bad in ([1, 2, 3], [1], {5: 1}, "abc", 1.5, -1):
            refused(EnvManagerError, manager.seed, bad)
        manager.seed(50)
        manager.reset({1: {}})
        self.ready(manager)
        expect(manager.seeds[1][-1], 51, "the seed of env 1, offset by its env_id")
        expect(manager.seeds[0][-1] == 50, False, "env 0, which was not reset, has its seed already")

    def test_the_same_seeds_give_the_same_numbers(self) -> None:
        """As in a plain loop over the envs, whatever hosts them and however often it is launched."""
        expected = {i: plain_loop(11 + i, i, 30) for i in range(3)}
        manager = self.made([ChanceEnv] * 3)
        for _ in range(2):
            manager.seed(11)
            manager.launch()
            story = self.story(manager, 30)
            for i in range(3):
                for k, (got, wanted) in enumerate(zip(story[i], expected[i], strict=True)):
                    expect(got, wanted, f"event {k} of env {i} with seed {11 + i}")
            manager.close()

    def test_dynamic_seeds_vary_by_episode_and_can_be_repeated(self) -> None:
        """Each episode has a seed of its own, and the same ones the next time."""
        runs = []
        manager = self.made(tally(2, length=1))
        for _ in range(2):
            manager.seed(5, True)
            manager.launch()
            for _ in range(2):
                self.ready(manager)
                self.step(manager, {0: 0, 1: 0})
            self.ready(manager)
            runs.append([list(given) for given in manager.seeds])
            manager.close()
        expect(runs[0], runs[1], "the seeds of two runs")
        flat = [seed for given in runs[0] for seed in given]
        expect(len({seed for seed in flat if seed is not None}), 6, f"different seeds among {flat}")

    def story(self, manager: Any, steps: int) -> dict[int, list[Any]]:
        """What each env gives in so many steps; its actions depend on nothing but it and its count."""
        events: dict[int, list[Any]] = {i: [] for i in range(manager.env_num)}
        over = dict.fromkeys(events, True)
        for k in range(steps):
            obs = self.ready(manager)
            for i in events:
                if over[i]:
                    events[i].append(("reset", obs[i]["x"], int(obs[i]["n"])))
            results = self.step(manager, {i: action(i, k) for i in events})
            for i, ts in results.items():
                flags = (bool(ts.terminated), bool(ts.truncated))
                events[i].append(("step", ts.obs["x"], int(ts.obs["n"]), float(ts.reward), *flags))
                over[i] = bool(ts.done)
        return events


def action(i: int, k: int) -> int:
    """The action of env ``i`` in its step ``k``."""
    return (7 * i + 3 * k) % 5


def plain_loop(seed: int, i: int, steps: int) -> list[Any]:
    """What an env gives when nothing manages it."""
    env = ChanceEnv()
    events: list[tuple[Any, ...]] = []
    first, _ = env.reset(seed=seed)
    for k in range(steps):
        if k == 0 or events[-1][-2] or events[-1][-1]:
            if k:
                first, _ = env.reset()
            events.append(("reset", first["x"].copy(), first["n"]))
        obs, reward, terminated, truncated, _ = env.step(action(i, k))
        events.append(("step", obs["x"].copy(), obs["n"], reward, terminated, truncated))
    return events
