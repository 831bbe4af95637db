"""Resets inside a worker: params, seeds, global generators, and the first observation into its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envmgr.envs.adapt import Adapted
from envmgr.memory.arena import Arena
from envmgr.memory.rows import RowWriter
from envmgr.memory.sides import own_copy
from envmgr.workers.contract import Unreadable
from envmgr.workers.hygiene import derive, seed_globals
from envmgr.workers.rng import GlobalRng


class Resets:
    """Resets the envs of one worker.

    Args:
        arena: The rows.
        adapted: env_id to env.
        writer: Of the observations.
        running: Which env's call runs now, the one item of it (see ``Arena``).
        phase: 1 while that call is a reset.
        isolate_rng: Whether the global generators' states are kept apart per env; None: from an env's first
            seed on.
        leave: Ends this process where it is a fork of a worker.
    """

    def __init__(
        self,
        arena: Arena,
        adapted: Mapping[int, Adapted],
        writer: RowWriter,
        running: memoryview,
        phase: memoryview,
        isolate_rng: bool | None,
        leave: Callable[[BaseException], None],
    ) -> None:
        self._leave = leave
        self._arena = arena
        self._adapted = adapted
        self._writer = writer
        self._running = running
        self._phase = phase
        self._isolate_when_seeded = isolate_rng is None
        self._params: dict[int, dict[str, Any] | Unreadable | None] = {}
        self.rngs: dict[int, GlobalRng] = {i: GlobalRng() for i in adapted} if isolate_rng else {}

    def take_params(self, i: int, argument: Mapping[str, Any] | Unreadable) -> None:
        """Params that came with a command are used from now on."""
        if isinstance(argument, Unreadable):  # no reset is made with other params than were asked for
            self._params[i] = argument
        elif "params" in argument:
            self._params[i] = argument["params"]

    def reset(self, i: int) -> tuple[Any, list[Any] | None]:
        """Calls the env's reset and writes its observation; (info, side values)."""
        arena, adapted, params = self._arena, self._adapted[i], self._params.get(i)
        if isinstance(params, Unreadable):
            raise params.error
        seeded = int(arena.seeded[i])
        seed: int | None = None
        if seeded:
            seed = int(arena.seed[i])
            arena.seeded[i] = 0
            if self._isolate_when_seeded and i not in self.rngs:
                self.rngs[i] = GlobalRng()
                if adapted.on_settled is not None:  # its step function is to be bound anew
                    adapted.on_settled()
        own = own_copy(params)  # an env may pop from its options, and they are used again
        self._phase[0] = 1
        try:
            self._running[0] = i

            def call() -> Any:
                if seed is not None:
                    seed_globals(derive(seed))
                if seed is not None and seeded > 1:
                    adapted.seed(seed, seeded == 3)
                    return adapted.reset(None, own)
                return adapted.reset(seed, own)

            rng = self.rngs.get(i)
            obs, info = call() if rng is None else rng.wrap(call)()
            self._running[0] = -2 - i
        except BaseException as error:  # an order to break the call off must not come once it is over
            self._leave(error)
            self._running[0] = -2 - i
            raise
        finally:
            self._phase[0] = 0
        return info, self._writer.write(i, obs)
