"""The spaces of a manager's envs, and actions drawn from them."""

from __future__ import annotations

import copy
from typing import Any

from envmgr.errors import IllegalStateError, ManagerClosedError
from envmgr.managers.face import Face


class Spaces(Face):
    """Spaces can be read before ``launch``: that starts the workers."""

    @property
    def observation_space(self) -> Any:
        """The observation space of env 0 (all have the same). Starts the workers when they are not."""
        return self._spaces()[0]

    @property
    def action_space(self) -> Any:
        """The action space of env 0. Starts the workers when they are not."""
        return self._spaces()[1]

    @property
    def reward_space(self) -> Any:
        """The reward space of env 0, None when it has none. Starts the workers when they are not."""
        return self._spaces()[2]

    def _spaces(self) -> tuple[Any, Any, Any]:
        self._check_process()
        engine = self._engine
        if engine is not None and not engine.closed:
            return engine.spaces(0)
        with self._calling:
            if self._was_closed and self._engine is None:
                raise ManagerClosedError("the manager is closed; launch() makes it usable again")
            return self._connected().spaces(0)

    def random_action(self) -> dict[int, Any]:
        """A random action for each ready env, by env_id; reproducible after ``seed``."""
        with self._calling:
            engine = self._running()
            ids = self._wait_ready(engine)
            for i in ids:
                if i not in self._action_spaces:
                    space = copy.deepcopy(engine.spaces(i)[1])
                    seed = self._seeds.base(i)
                    if space is None or not hasattr(space, "sample"):
                        raise IllegalStateError(f"env {i} has no action_space to sample from", env_id=i)
                    if seed is not None:
                        space.seed(seed)
                    self._action_spaces[i] = space
            return {i: self._action_spaces[i].sample() for i in ids}
