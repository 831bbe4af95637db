"""Steps: dicts in and out, or arrays in and out. The one way that every step of every manager takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envmgr.engine.engine import Engine
from envmgr.errors import ManagerClosedError
from envmgr.managers import checks
from envmgr.managers.arrays import ArrayFace, StepArrays
from envmgr.managers.face import Face
from envmgr.managers.timesteps import timesteps_of
from envmgr.timestep import BaseEnvTimestep

_INTS = {int}


class Stepping(Face):
    """The dict face and the array face; they are not mixed within an episode."""

    def step(self, actions: Mapping[int, Any]) -> dict[int, BaseEnvTimestep]:
        """Sends actions and gathers results.

        Args:
            actions: ``{env_id: action}`` for envs in RUN that are not stepping; ``{}`` only gathers.

        Returns:
            ``{env_id: timestep}``: exactly the envs of ``actions`` in a sync manager; in an async one at
            least ``wait_num`` of all that are pending.

        Raises:
            IllegalStateError: An env cannot be stepped now; nothing was sent.
            UnknownEnvError: An env_id that does not exist; nothing was sent.
            SpaceMismatchError: An action does not fit its space; nothing was sent.
            EnvStepError, EnvTimeoutError, WorkerDied: A step failed, with ``on_error='raise'``.
        """
        with self._calling:
            engine = self._running()
            engine.check()
            if type(actions) is not dict:
                actions = checks.actions_mapping(actions)
            if self._arrays is not None:
                self._arrays.fresh = False
            order: Any = slice(0, self._env_num)
            # True and 1.0 are equal to 1, but no env_id.
            all_in_order = list(actions) == self._every and {*map(type, actions)} == _INTS
            if not (all_in_order and engine.submit_each(list(actions.values()))):
                engine.collect_now()
                order = np.array(checks.env_ids(actions, self._env_num, "step"), np.int64)
                checks.steppable(engine, order)
                if len(order):
                    engine.submit(order, list(actions.values()), batched=False)
            if not engine.pending:
                return {}
            wait_num, window = self._gather_rule()
            engine.gather(wait_num, window)
            exact = wait_num is None and engine.pending == len(actions)
            return timesteps_of(engine.take(order if exact else None))

    def reset_arrays(self) -> tuple[Any, dict[int, Any]]:
        """Starts a new episode in every env; right after ``launch`` or a reset of all it hands over theirs.

        Returns:
            The observations of all envs, shape (env_num, *obs shape) or a tree of such arrays, and the
            infos of the resets where they are not empty, by env_id.
        """
        with self._calling:
            engine, arrays = self._array_face()
            if not arrays.fresh:
                self._reset(engine, list(range(self._env_num)), {})
            arrays.fresh = False
            return arrays.observations()

    def send(self, actions: Any, env_id: Any = None) -> None:
        """Sends a batch of actions and returns at once.

        Args:
            actions: Array of shape (k, *action shape), or a tree of arrays.
            env_id: The env of each row; None for all envs in order.

        Raises:
            As ``step``; nothing has been sent then.
        """
        with self._calling:
            engine, arrays = self._array_face()
            engine.check()
            arrays.send(actions, env_id)

    def recv(self) -> StepArrays:
        """Gathers results of what was sent.

        In a sync manager all of it, in the order asked; in an async one at least ``wait_num`` rows, in the
        order of finishing.

        Raises:
            IllegalStateError: Nothing is pending.
            EnvStepError, EnvTimeoutError, WorkerDied: A step failed, with ``on_error='raise'``.
        """
        with self._calling:
            engine, arrays = self._array_face()
            engine.check()
            return arrays.recv()

    def step_arrays(self, actions: Any, env_id: Any = None) -> StepArrays:
        """``send`` and ``recv`` in one."""
        with self._calling:
            engine, arrays = self._array_face()
            engine.check()
            arrays.send(actions, env_id)
            return arrays.recv()

    def _array_face(self) -> tuple[Engine, ArrayFace]:
        engine = self._running()
        if self._arrays is None:
            raise ManagerClosedError("the manager is not launched; call launch() first")
        return engine, self._arrays
