"""Life: built, launched, closed, launched again; who builds the envs, and what is refused when."""

from __future__ import annotations

import os
from typing import Any

from envmgr.engine.states import LEGAL_MOVES, EnvState
from envmgr.errors import EnvManagerError, ManagerClosedError
from envmgr.testing.conformance.harness import Harness, expect, lists, refused, state, tally

USES = {
    "step": lambda manager: manager.step({0: 0}),
    "step of nothing": lambda manager: manager.step({}),
    "reset": lambda manager: manager.reset(),
    "ready_obs": lambda manager: manager.ready_obs,
    "random_action": lambda manager: manager.random_action(),
}


class LifecycleConformance(Harness):
    """``launch``, ``close``, spaces, states."""

    def test_a_life(self) -> None:
        """Spaces before launch, one call of each env_fn, close of every env, and a second life."""
        log = self.log()
        manager = self.made(tally(3, log=log))
        expect(manager.env_num, 3, "env_num")
        expect(manager.observation_space.shape, (3,), "the shape of observation_space before launch")
        expect(int(manager.action_space.n), 1000, "action_space.n before launch")
        expect(set(manager.env_states), {0, 1, 2}, "the envs in env_states")
        for life in (1, 2):
            manager.launch()
            expect(manager.closed, False, "closed after launch")
            expect(lists(self.ready(manager)), {i: [i, 0, 0] for i in range(3)}, "first observations")
            expect([state(manager, i) for i in range(3)], ["RUN"] * 3, "states of envs that are ready")
            inits = log.lines("init")
            expect(
                sorted(i for i, _ in inits), sorted("012" * life), "calls of env_fns, one per env and life"
            )
            outside = str(os.getpid()) not in {pid for _, pid in inits}
            if self.separate_processes is not None:
                expect(outside, self.separate_processes, "envs are built outside the caller's process")
            refused(EnvManagerError, manager.launch, says=("launched",))
            expect(self.step(manager, {1: 0})[1].obs.tolist(), [1, 0, 1], "a step after a refused launch")
            manager.close()
            expect(manager.closed, True, "closed after close")
            expect([state(manager, i) for i in range(3)], ["VOID"] * 3, "states after close")
            manager.close()
            closes = sorted(i for i, _ in log.lines("close"))
            expect(closes, sorted("012" * life), "closes of envs, one per env and life")
            for call in USES.values():
                refused(ManagerClosedError, call, manager, says=("closed", "launch"))

    def test_use_before_launch_is_refused(self) -> None:
        """With what to do about it; and close before launch does no harm."""
        manager = self.made(tally(1))
        for call in USES.values():
            refused(ManagerClosedError, call, manager, says=("not launched",))
        manager.close()

    def test_as_a_context_manager_it_closes_even_after_an_error(self) -> None:
        """The error passes through."""

        def use() -> None:
            with self.made(tally(1)) as manager:
                manager.launch()
                used.append(manager)
                raise LookupError("the caller's own")

        used: list[Any] = []
        refused(LookupError, use)
        expect(used[0].closed, True, "closed after the with block")

    def test_states_move_as_the_table_allows(self) -> None:
        """Every change of a state is told, and each is a legal move from the state before."""
        moves: list[tuple[int, int, int]] = []
        manager = self.made(tally(2, length=1), episode_num=2)
        manager.on_state_change(lambda *move: moves.append(move))
        manager.launch()
        self.ready(manager)
        self.step(manager, {0: 0, 1: 0})
        self.ready(manager)
        self.step(manager, {0: 0})
        self.wait_state(manager, 0, "DONE")
        manager.close()
        for i in range(2):
            mine = [(EnvState(old), EnvState(new)) for env, old, new in moves if env == i]
            told = " ".join(f"{old.name}->{new.name}" for old, new in mine)
            expect(
                [m for m in mine if m[1] not in LEGAL_MOVES[m[0]]], [], f"illegal moves of env {i} in {told}"
            )
            expect([m[0] for m in mine[1:]], [m[1] for m in mine[:-1]], f"each move begins where ({told})")
            expect(mine[-1][1], EnvState.VOID, f"the last state of env {i} ({told})")
        expect((0, EnvState.RUN, EnvState.DONE) in moves, True, "env 0 went from RUN to DONE")
