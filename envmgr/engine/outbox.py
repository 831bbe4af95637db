"""What goes to the workers: actions and commands into rows, what does not fit them as messages, and a ring.

The rule of order: rows first, then the command byte, then the bell. A batch for all envs is written with
one store per row array (``_send_whole``); it is what most steps are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.engine.core import Core
from envmgr.engine.inbox import Inbox
from envmgr.engine.machine import STEPPING
from envmgr.engine.states import EnvState
from envmgr.errors import EnvManagerError, SpaceMismatchError
from envmgr.memory.arena import Arena, ArenaPlan, order_stores
from envmgr.memory.rows import RowReader, RowWriter
from envmgr.workers import contract as c

# Plain ints: looking a member up in its enum costs more than the array operation that it is for.
_PENDING, _RUN = int(c.Flag.PENDING), int(EnvState.RUN)
_STEP, _STEP_AUTORESET, _RESET = int(c.Cmd.STEP), int(c.Cmd.STEP_AUTORESET), int(c.Cmd.RESET)


class Outbox:
    """Sends steps and resets.

    Args:
        core: What the parts share.
        inbox: Where results will be; it counts what is under way.

    Attributes:
        auto: Whether each env's last step was one with an immediate reset.
    """

    def __init__(self, core: Core, inbox: Inbox) -> None:
        n = core.env_num
        self._core = core
        self._inbox = inbox
        self._pool, self._machine, self._deadlines = core.pool, core.machine, core.deadlines
        self._endless = core.policy.endless
        self._all_workers = list(range(core.pool.worker_num))
        self._every = np.arange(n)
        self._actions: dict[int, Any] = {}
        self._params: dict[int, Any] = {}
        self._params_sent: NDArray[np.bool_] = np.ones(n, np.bool_)
        self.auto: NDArray[np.bool_] = np.zeros(n, np.bool_)
        self._auto_all: bool | None = None
        self._restock = True
        self._laid = False
        self._step_counts: NDArray[np.int64] = np.zeros(n, np.int64)
        self._whole_steps = 0
        self._all_run, self._all_idle = bytes([_RUN]) * n, bytes(n)
        self._all_pending, self._all_stepping = bytes([_PENDING]) * n, bytes([STEPPING]) * n
        self._all_step, self._all_auto = bytes([_STEP]) * n, bytes([_STEP_AUTORESET]) * n
        self._states, self._op = memoryview(self._machine.states), memoryview(self._machine.op)  # type: ignore[arg-type]

    def lay(self, plan: ArenaPlan, arena: Arena) -> None:
        """Says where the rows are."""
        if self._laid:
            self._writer.let_go()
        self._laid = True
        self._writer: RowWriter = RowWriter(plan.action, arena.action, what="action", n=self._core.env_num)
        self._reader = RowReader(plan.action, arena.action)
        self._seq, self._flag, self._cmd = arena.seq, arena.bytes_of("flag"), arena.bytes_of("cmd")

    def action_of(self, i: int) -> Any:
        """The last action of env i, for a message; None where it cannot be told."""
        if i in self._actions:
            return self._actions[i]
        try:
            return self._reader.row(i)
        except Exception:  # only for a message; whatever is wrong with it must not hide the real error
            return None

    def steps_of(self, i: int) -> int:
        """How many steps were sent to env i."""
        return int(self._step_counts[i]) + self._whole_steps

    # -- resets ----------------------------------------------------------------------------------------

    def set_params(self, params: dict[int, Any]) -> None:
        """Takes reset params that are used from now on; EnvManagerError when one cannot be sent."""
        for i, value in params.items():
            try:
                self._pool.pack(value)
            except Exception as error:  # what params hold may raise anything when they are pickled
                raise EnvManagerError(
                    f"the reset params for env {i} cannot be sent to its worker: {error}", env_id=i
                ) from error
        for i, value in params.items():
            self._params[i] = value
            self._params_sent[i] = False

    def renewed(self, i: int) -> None:
        """Env i has a fresh worker, that knows nothing of its params."""
        self._params_sent[i] = self._params.get(i) is None

    def send_reset(self, i: int) -> None:
        """Writes a reset; the ring is the caller's."""
        arena = self._core.arena
        if arena.seeded[i]:  # laid ready for a reset by the worker itself, which this one comes before
            self._core.seeds.give_back(i)
        self.load_seed(i)
        self._core.seeds.fresh.discard(i)
        self._restock = True
        command = _RESET
        arena.seq[i] += 1
        if not self._params_sent[i]:
            self._params_sent[i] = True
            command |= c.WITH_MESSAGE
            argument = {"params": self._params.get(i)}
            packed = self._pool.pack((c.ARGUMENT, i, int(arena.seq[i]), argument))
            self._pool.send_packed(int(self._core.worker_of[i]), packed)
        self._command(arena, i, command, True)

    def load_seed(self, i: int) -> None:
        """Puts the env's next seed into its row, if it has one; a reset takes it from there."""
        taken = self._core.seeds.take(i)
        if taken is not None:
            arena = self._core.arena
            arena.seed[i], arena.seeded[i] = taken

    def _stock_seeds(self) -> None:
        """Lays the next seed of each env ready, for resets that its worker does by itself."""
        arena, fresh, op = self._core.arena, self._core.seeds.fresh, self._machine.op
        self._restock = False
        for i in range(self._core.env_num):
            if op[i]:
                self._restock = True  # its row is its worker's now
            elif i in fresh or not arena.seeded[i]:
                fresh.discard(i)
                arena.seeded[i] = 0
                self.load_seed(i)

    # -- steps -----------------------------------------------------------------------------------------

    def send_again(self, i: int) -> None:
        """Writes the last step once more; the ring is the caller's."""
        arena = self._core.arena
        arena.seq[i] += 1
        command = _STEP
        if i in self._actions:
            command |= c.WITH_MESSAGE
            packed = self._packed(i, self._actions[i], int(arena.seq[i]))
            self._pool.send_packed(int(self._core.worker_of[i]), packed)
        self._command(arena, i, command, False)

    def _command(self, arena: Arena, i: int, command: int, resets: bool) -> None:
        arena.flag[i] = _PENDING
        order_stores()
        arena.cmd[i] = command
        self._begin(i, resets)

    def _begin(self, ids: Any, resets: bool) -> None:
        if self._deadlines.begin(ids, time.monotonic(), resets) and self._core.has_keeper:
            self._pool.nudge()

    def free_all(self) -> bool:
        """Whether every env can be stepped, in a few hundred nanoseconds."""
        return (
            not self._inbox.out
            and self._op.tobytes() == self._all_idle
            and self._states.tobytes() == self._all_run
        )

    def free(self, ids: NDArray[np.int64]) -> bool:
        """Whether all of some envs, each named once, can be stepped."""
        count, inbox, machine = np.count_nonzero, self._inbox, self._machine
        busy = inbox.whole or count(machine.op[ids]) or count(inbox.arrived[ids])
        return not busy and not count(machine.states[ids] != _RUN)

    def submit(self, ids: Any, actions: Any, *, batched: bool, autoreset: bool = False) -> None:
        """Sends steps. Everything was checked by the face but the actions themselves.

        Args:
            ids: The envs: an index array, or a slice for all.
            actions: A batch (tree of arrays), or a list with one action per env.
            batched: Which of the two.
            autoreset: Whether a finished env is reset at once by its worker.

        Raises:
            SpaceMismatchError: An action does not fit; nothing has been sent then.
        """
        arena = self._core.arena
        write = self._write_batch if batched else self._write_actions
        self._send_steps(arena, ids, write(ids, actions), autoreset)

    def submit_all(self, actions: Any, autoreset: bool) -> bool:
        """Sends a batch of steps to all envs, if they are free; whether they are. Raises as ``submit``."""
        if not self.free_all():
            return False
        plain = self._endless and not self._actions and not self._core.troubled
        if plain and self._writer.write_all(actions) is None:
            self._send_whole(autoreset)
        else:
            self.submit(slice(0, self._core.env_num), actions, batched=True, autoreset=autoreset)
        return True

    def submit_each(self, actions: Sequence[Any]) -> bool:
        """Sends one action to each of all envs, if they are free; whether they are. Raises as ``submit``."""
        if not self.free_all():
            return False
        plain = self._endless and not self._actions and not self._core.troubled
        if plain and (self._writer.write_list(actions) or not self._write_actions(self._every, actions)):
            self._send_whole(False)
        else:
            self.submit(self._every, actions, batched=False)
        return True

    def _write_actions(self, ids: NDArray[np.int64], actions: Sequence[Any]) -> dict[int, Any]:
        """Writes each action into its row; those that do not fit rows wholly are returned, by env."""
        talkative = {}
        write = self._writer.write
        for i, action in zip(ids.tolist(), actions, strict=True):
            try:
                side = write(i, action)
            except EnvManagerError as error:
                error.env_id = i
                error.message = f"the action for env {i} does not fit: {error.message}"
                error.args = (error.message,)
                raise
            if side is not None:
                talkative[i] = self._reader.row(i, side=side)  # as its rows have it: checked and cast
        return talkative

    def _write_batch(self, ids: Any, actions: Any) -> dict[int, Any]:
        side = self._writer.write_many(actions, ids)
        if side is None:
            return {}
        return {i: self._reader.row(i, side=s) for i, s in zip(self._listed(ids), side, strict=True)}

    def _listed(self, ids: Any) -> list[int]:
        listed: list[int] = self._every[ids].tolist()
        return listed

    def _send_steps(self, arena: Arena, ids: Any, talkative: dict[int, Any], autoreset: bool) -> None:
        machine, pool = self._machine, self._pool
        messages = {}
        if talkative:
            messages = {i: self._packed(i, a, int(arena.seq[i]) + 1) for i, a in talkative.items()}
            self._actions.update(talkative)
        elif self._actions:
            for i in self._listed(ids):
                self._actions.pop(i, None)
        self._core.midway = True
        if self._core.troubled and machine.any_owed():
            ids = self._answer_owed(ids)
            if not len(ids):
                self._core.midway = False
                return
        if isinstance(ids, slice) and not talkative and self._endless:
            self._send_whole(autoreset)
            return
        if autoreset and (self._restock or self._core.seeds.fresh):
            self._stock_seeds()
        arena.seq[ids] += 1
        arena.flag[ids] = _PENDING
        self.auto[ids] = autoreset
        self._auto_all = None
        machine.steps_sent(ids)
        self._begin(ids, False)
        for i in self._listed(ids) if messages else ():
            pool.send_packed(int(self._core.worker_of[i]), messages[i])
        order_stores()
        command: Any = _STEP_AUTORESET if autoreset else _STEP
        if autoreset and not self._endless:
            command = np.where(machine.breaks_after(ids), _STEP, _STEP_AUTORESET)
        arena.cmd[ids] = command | c.WITH_MESSAGE if talkative else command
        self._step_counts[ids] += 1
        if isinstance(ids, slice):
            self._inbox.out += self._core.env_num
            pool.ring(self._all_workers)
        else:
            self._inbox.out += len(ids)
            # Not numpy's unique, which loads half of numpy at its first call.
            pool.ring(sorted(set(self._core.worker_of[ids].tolist())))
        self._core.midway = False

    def _send_whole(self, autoreset: bool) -> None:
        """Steps every env: the same writes as for some, each over the whole array."""
        core, inbox = self._core, self._inbox
        core.midway = True
        if autoreset and (self._restock or core.seeds.fresh):
            self._stock_seeds()
        self._seq += 1
        self._flag[:] = self._all_pending
        if self._auto_all is not autoreset:
            self.auto[:] = self._auto_all = autoreset
        self._op[:] = self._all_stepping
        inbox.whole_due = not inbox.count and not inbox.held
        order_stores()
        self._cmd[:] = self._all_auto if autoreset else self._all_step
        inbox.out += core.env_num
        self._whole_steps += 1
        self._pool.ring(self._all_workers)
        # What need not be done before the workers begin: the keeper waits for the lock.
        if self._deadlines.begin_all(time.monotonic()) and core.has_keeper:
            self._pool.nudge()
        core.midway = False

    def _packed(self, i: int, value: Any, seq: int) -> Any:
        try:
            return self._pool.pack((c.ARGUMENT, i, seq, value))
        except Exception as error:  # what an action holds may raise anything when it is pickled
            raise SpaceMismatchError(
                f"the action for env {i} cannot be sent to its worker: {error}; nothing was sent", env_id=i
            ) from error

    def _answer_owed(self, ids: Any) -> NDArray[np.int64]:
        """Steps of envs whose worker died meanwhile are answered at once."""
        kept = []
        for i in self._listed(ids):
            if self._machine.owed(i) is None:
                kept.append(i)
            else:
                self._inbox.out += 1
                self._core.obey(self._machine.take_owed(i))
        return np.array(kept, np.int64)
