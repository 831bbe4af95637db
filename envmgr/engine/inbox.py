"""Results that are here and not handed over: what has arrived, in which order, and what rows cannot hold.

A batch that went to all envs and came back with nothing odd in it is one flag (``whole``), not a list: the
uneventful majority of steps. Everything else is kept by env_id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.engine.results import StepBatch, as_slice
from envmgr.memory.arena import Arena, ArenaPlan
from envmgr.memory.rows import RowReader
from envmgr.memory.sides import own_copies, own_copy, take_sent

_Ids = NDArray[np.int64]


class Inbox:
    """What has arrived.

    Args:
        env_num: How many envs there are.
        copy: Whether arrays are copied out of the rows.

    Attributes:
        out: Steps that were sent and not handed over.
        count: Of those: arrived.
        unfinished: Of those: whose episode goes on.
        whole_due: All envs were stepped by one batch, and nothing of it has been taken in.
        whole: That batch is here as a whole.
        held: Envs whose step is over, but whose row waits for the first observation after a reset.
        infos: env_id to info of a step, where it is not empty.
        ready_infos: The same of the last reset.
    """

    def __init__(self, env_num: int, copy: bool) -> None:
        self._copy = copy
        self._env_num = env_num
        self._every = np.arange(env_num)
        self._nobody = np.zeros(0, np.int64)
        self.out = self.count = self.unfinished = 0
        self.whole_due = self.whole = False
        self.arrived: NDArray[np.bool_] = np.zeros(env_num, np.bool_)
        self._order: list[_Ids] = []
        self.infos: dict[int, Any] = {}
        self.ready_infos: dict[int, Any] = {}
        self.own_rewards: dict[int, Any] = {}
        self.abnormal: dict[int, BaseException] = {}
        self.side: dict[int, list[Any]] = {}
        self.final_side: dict[int, list[Any]] = {}
        self.final: set[int] = set()
        self.held: set[int] = set()
        self.held_ends: dict[int, tuple[bool, bool]] = {}
        self._held_obs: dict[int, Any] = {}
        self._stores = (self.infos, self.own_rewards, self.abnormal, self.final_side, self.ready_infos)

    def lay(self, plan: ArenaPlan, arena: Arena) -> None:
        """Says where the rows are."""
        self._arena = arena
        self._reader = RowReader(plan.obs, arena.obs)
        self._final_reader = RowReader(plan.obs, arena.final)
        self._layout = plan.obs
        self._has_side = plan.obs.has_side
        self._read_all = self._reader.copy_all if self._copy else self._reader.view_all

    # -- arriving --------------------------------------------------------------------------------------

    def take_side(self, i: int, values: list[Any]) -> None:
        """What came beside the row of env i; all of it, where its rows are not shared."""
        self.side[i] = self._taken(self._arena.obs, i, values)

    def take_final_side(self, i: int, values: list[Any]) -> None:
        """The same of its last observation."""
        self.final_side[i] = self._taken(self._arena.final, i, values)

    def _taken(self, rows: list[NDArray[Any]], i: int, values: list[Any]) -> list[Any]:
        return values if self._layout.shared else take_sent(self._layout, rows, i, values) or []

    def arrive(self, ids: _Ids, unfinished: int) -> None:
        """Results of ``ids`` are in their rows; so many of their episodes go on."""
        self.arrived[ids] = True
        self._order.append(ids)
        self.count += len(ids)
        self.unfinished += unfinished

    def arrive_whole(self, unfinished: int) -> None:
        """The batch that was sent to all is in the rows; so many of the episodes go on."""
        self.whole_due, self.whole = False, True
        self.count = self._env_num
        self.unfinished = unfinished

    def hold(self, i: int, ends: tuple[bool, bool], obs: Any = None) -> None:
        """The row of env i waits for a reset; ``ends`` are its (terminated, truncated)."""
        self.held.add(i)
        self.held_ends[i] = ends
        if obs is not None:
            self._held_obs[i] = obs

    def release(self, i: int) -> tuple[bool, bool]:
        """The reset came: the (terminated, truncated) that env i was held with."""
        self.held.discard(i)
        return self.held_ends.pop(i)

    def has(self, i: int) -> bool:
        """Whether a result of env i is here."""
        return self.whole or bool(self.arrived[i])

    def forget(self, i: int, stepping: bool) -> None:
        """Drops what env i has here or, ``stepping``, under way."""
        self.whole_due = False
        if stepping:
            self.out -= 1
        self._unfold()
        if self.arrived[i]:
            self.arrived[i] = False
            self._order = [kept for ids in self._order if len(kept := ids[ids != i])]
            self.count -= 1
            self.out -= 1
            self.unfinished -= not self._ended(i)
        for store in self._stores:
            store.pop(i, None)
        self.final.discard(i)
        if i in self.held:
            self.release(i)
            self._held_obs.pop(i, None)
            self.out -= 1

    def _ended(self, i: int) -> bool:
        """Whether the result of env i that is here ended its episode, and no other has begun."""
        arena = self._arena
        begun = i in self.final or i in self._held_obs
        return not begun and bool(arena.terminated[i] or arena.truncated[i])

    def _unfold(self) -> None:
        if self.whole:
            self.whole = False
            self.arrived[:] = True
            self._order = [self._every]

    # -- reading ---------------------------------------------------------------------------------------

    def observation(self, i: int) -> Any:
        """A copy of what stands in the row of env i."""
        side = self.side.get(i)
        return self._reader.row(i, side=None if side is None else own_copies(side))

    def reset_infos(self) -> dict[int, Any]:
        """The infos of the last resets, where they are not empty: the caller's own."""
        return {i: own_copy(info) for i, info in self.ready_infos.items()}

    def observations(self, ids: _Ids) -> tuple[Any, Callable[[int], Any]]:
        """What stands in some rows: (batch, row accessor)."""
        side = self._sides(ids)
        batch = self._reader.batch(as_slice(ids, self._env_num), copy=self._copy, side=side)
        return batch, self._reader.unbatch(batch)

    def _sides(self, ids: _Ids) -> dict[int, list[Any]] | None:
        if not self._has_side:
            return None
        return {i: own_copies(self.side[i]) if self._copy else self.side[i] for i in ids.tolist()}

    # -- handing over ----------------------------------------------------------------------------------

    def take(self, order: Any = None) -> StepBatch:
        """Hands over what has arrived, each result once.

        Args:
            order: The envs in the order that the rows shall have, where all of them have arrived (an index
                array, or a slice for all); None for the order of their arrival.
        """
        odd = self.own_rewards or self.abnormal or self._held_obs or self._has_side
        ended = self.count != self.unfinished
        if self.whole and (order is None or isinstance(order, slice)):
            if not odd:
                return self._take_quiet(ended)
            ids, where = self._every.copy(), slice(0, self._env_num)
            self.whole = False
        else:
            self._unfold()
            ids = self._every[order] if isinstance(order, slice) else order
            if ids is None:
                parts = self._order
                ids = parts[0] if len(parts) == 1 else np.concatenate([*parts, self._nobody])
            where = as_slice(ids, self._env_num)
            self._order.clear()
            self.arrived[ids] = False
        arena = self._arena
        batch = StepBatch(
            ids=ids,
            # Rows whose episode has ended are reset now: a view would show the next one.
            obs=self._reader.batch(where, copy=self._copy or ended, side=self._sides(ids)),
            row=self._reader.unbatch,
            reward=_copied(arena.reward, where),
            terminated=_copied(arena.terminated, where),
            truncated=_copied(arena.truncated, where),
            infos={},
            own_rewards={},
            final_obs={},
            abnormal={},
            ended=ended,
        )
        if odd or self.infos or self.final:
            self._take_rare(batch)
        self.out -= len(ids)
        self.count -= len(ids)
        ends = np.count_nonzero(batch.terminated | batch.truncated) - len(batch.final_obs) if ended else 0
        self.unfinished -= len(ids) - int(ends)
        return batch

    def _take_quiet(self, ended: bool) -> StepBatch:
        """All envs; beside rows there are infos and last observations at the most: what most steps are."""
        self.whole = False
        self.out -= self._env_num
        self.count = self.unfinished = 0
        arena, ids = self._arena, self._every.copy()
        obs, reward = self._reader.copy_all() if ended else self._read_all(), arena.reward.copy()
        terminated, truncated = arena.terminated.copy(), arena.truncated.copy()
        infos: dict[int, Any] = {}
        final_obs: dict[int, Any] = {}
        if self.infos:
            infos.update(self.infos)
            self.infos.clear()
        if self.final:
            final_obs.update((i, self._final_reader.row(i)) for i in self.final)
            self.final.clear()
        unbatch = self._reader.unbatch
        return StepBatch(ids, obs, unbatch, reward, terminated, truncated, infos, {}, final_obs, {}, ended)

    def _take_rare(self, batch: StepBatch) -> None:
        """What few rows have: infos, last observations, errors, rewards of another shape."""
        members = set(batch.ids.tolist())
        for i in self.final & members:
            batch.final_obs[i] = self._final_reader.row(i, side=self.final_side.pop(i, None))
            self.final.discard(i)
        for i in [i for i in self._held_obs if i in members and i not in self.held]:
            batch.final_obs[i] = self._held_obs.pop(i)
        for store, taken in (
            (self.infos, batch.infos),
            (self.own_rewards, batch.own_rewards),
            (self.abnormal, batch.abnormal),
        ):
            for i in [i for i in store if i in members]:
                taken[i] = store.pop(i)


def _copied(rows: NDArray[Any], where: Any) -> NDArray[Any]:
    taken: NDArray[Any] = rows[where]
    return taken.copy() if isinstance(where, slice) else taken
