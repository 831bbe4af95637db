"""The array face: ``reset_arrays``, ``send``, ``recv``, ``step_arrays``."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from envmgr.errors import EnvManagerError, IllegalStateError
from envmgr.testing.conformance.envs import NestedEnv, TallyEnv
from envmgr.testing.conformance.harness import Harness, expect, refused, tally


class ArrayFaceConformance(Harness):
    """One row per env in and out, the finished ones after their automatic reset."""

    def test_arrays_over_episodes(self) -> None:
        """Rows are their envs' own; a finished env's row begins anew, and ``final_obs`` has its end."""
        manager = self.made([partial(TallyEnv, i, length=2 + i, truncate=i == 1) for i in range(2)])
        manager.launch()
        obs, info = manager.reset_arrays()
        expect(obs, np.array([[0, 0, 0], [1, 0, 0]], np.float64), "observations of reset_arrays after launch")
        expect({i: info[i]["episode"] for i in info}, {0: 0, 1: 0}, "infos of reset_arrays")
        expect(list(manager.resets), [1, 1], "resets: reset_arrays hands over the launch's own")
        place, kept = {0: (0, 0), 1: (0, 0)}, []
        for _ in range(7):
            obs, reward, terminated, truncated, info, env_id, final_obs = out = manager.step_arrays([0, 0])
            kept.append((out, obs.copy(), reward.copy()))
            expect(sorted(map(int, env_id)), [0, 1], "env_id")
            if self.order_asked:
                expect([int(i) for i in env_id], [0, 1], "the order of the rows")
            expect((obs.dtype, terminated.dtype, truncated.dtype), (np.float64, bool, bool), "dtypes")
            ended = set()
            for k, i in enumerate(map(int, env_id)):
                episode, t = place[i]
                over = t + 1 == 2 + i
                place[i] = (episode + 1, 0) if over else (episode, t + 1)
                expect(obs[k].tolist(), [i, *place[i]], f"the row of env {i}")
                expect(float(reward[k]), 100.0 * i + t + 1, f"the reward of env {i}")
                flags = (bool(terminated[k]), bool(truncated[k]))
                expect(flags, (over and i == 0, over and i == 1), f"env {i}: terminated, truncated")
                expect(info[i]["t"], t + 1, f"the info of env {i}")
                if over:
                    ended.add(i)
                    last = np.asarray(final_obs.get(i)).tolist()
                    expect(last, [i, episode, t + 1], f"final_obs of env {i}")
            expect(set(final_obs), ended, "the envs in final_obs")
        for out, obs, reward in kept:
            expect((out.obs, out.reward), (obs, reward), "arrays that were kept")
        obs, _ = manager.reset_arrays()
        expect(obs[:, 1].tolist(), [place[0][0] + 1, place[1][0] + 1], "episodes after a second reset_arrays")

    def test_some_rows_and_the_two_halves_of_a_step(self) -> None:
        """Each action goes to the env of its row, in any order; ``recv`` without ``send`` is refused."""
        manager = self.launched(tally(3))
        manager.reset_arrays()
        self.rows_of(manager.step_arrays([22, 11], env_id=[2, 1]), [2, 1])
        refused(IllegalStateError, manager.recv, says=("pending",))
        manager.send(np.array([33]), env_id=np.array([0]))
        self.rows_of(manager.recv(), [0])
        expect(list(manager.actions), [[33], [11], [22]], "the actions that each env was given")

    def test_refused_arrays_send_nothing(self) -> None:
        """Too few or too many rows, unknown and repeated ids, another structure."""
        manager = self.launched(tally(3))
        manager.reset_arrays()
        wrong: list[tuple[Any, Any]] = [
            ([0, 0], None),
            ([0] * 4, None),
            ([0, 0], [0]),
            ([0, 0], [1, 1]),
            ([0, 0], [0, 3]),
            ([0, 0], [0, -1]),
            ({"a": [0] * 3}, None),
            (None, None),
        ]
        for actions, ids in wrong:
            refused((EnvManagerError, ValueError), manager.step_arrays, actions, ids)
            refused((EnvManagerError, ValueError), manager.send, actions, ids)
        expect(list(manager.steps), [0, 0, 0], "steps that envs have made")
        self.rows_of(manager.step_arrays([0] * 3), [0, 1, 2])

    def test_trees_of_arrays(self) -> None:
        """A nested space gives a tree with a leading axis in every leaf; actions likewise."""
        manager = self.launched([partial(NestedEnv, i, text=False) for i in range(2)])
        obs, _ = manager.reset_arrays()
        rows = {0: obs}
        moves = np.array([[0.25, 0.5], [0.75, 1.0]], np.float32)
        out = manager.step_arrays({"move": moves, "press": np.array([3, 4])})
        rows[1] = out.obs
        ids = {0: [0, 1], 1: [int(i) for i in out.env_id]}
        for t, tree in rows.items():
            for k, i in enumerate(ids[t]):
                row = {
                    "image": tree["image"][k],
                    "pair": (tree["pair"][0][k], tree["pair"][1][k]),
                    "scalar": np.asarray(tree["scalar"][k]),
                }
                expect(row, NestedEnv.expected(i, t, text=False), f"env {i}'s row after {t} steps")
        for i, given in enumerate(manager.given):
            expect(given, [{"move": moves[i], "press": 3 + i}], f"the action that env {i} was given")

    def rows_of(self, out: Any, ids: list[int]) -> None:
        """Checks the rows of these envs after their first step."""
        got = [int(i) for i in out.env_id]
        expect(got if self.order_asked else sorted(got), ids if self.order_asked else sorted(ids), "env_id")
        expect(out.obs.tolist(), [[i, 0, 1] for i in got], "rows")
