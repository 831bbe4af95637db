"""What a manager says of itself: states, which envs are ready, their observations, counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from easydict import EasyDict

from envmgr.engine.calls import Call, call_envs
from envmgr.engine.engine import Engine
from envmgr.engine.states import EnvState
from envmgr.errors import EnvResetError, IllegalStateError
from envmgr.managers import checks
from envmgr.managers.face import Face


class Reading(Face):
    """States and observations."""

    @property
    def env_num(self) -> int:
        """How many envs there are."""
        return self._env_num

    @property
    def cfg(self) -> EasyDict:
        """The full config, checked."""
        return self._cfg

    @property
    def closed(self) -> bool:
        """Whether the manager has to be launched before it is used."""
        return self._engine is None or not self._launched or self._engine.closed

    @property
    def env_states(self) -> dict[int, EnvState]:
        """The state of every env; never waits."""
        engine = self._engine
        if engine is None:
            return dict.fromkeys(range(self._env_num), EnvState.VOID)
        engine.glance()
        return {i: EnvState(s) for i, s in enumerate(engine.machine.states.tolist())}

    @property
    def done(self) -> bool:
        """Whether every env has had its ``episode_num`` episodes."""
        engine = self._engine
        return engine is not None and self._launched and engine.machine.all_done()

    def env_state_done(self, env_id: int) -> bool:
        """Whether one env has had its episodes."""
        checks.env_ids([env_id], self._env_num, "env_state_done")
        return self.env_states[env_id] == EnvState.DONE

    @property
    def active_env(self) -> list[int]:
        """The envs that are in an episode, or will be by themselves."""
        over = (EnvState.DONE, EnvState.ERROR, EnvState.VOID, EnvState.NEED_RESET)
        return [i for i, state in self.env_states.items() if state not in over]

    @property
    def ready_obs_id(self) -> list[int]:
        """The envs that can be stepped now, at least one where some reset is under way.

        While another thread is in a call of this manager it says what it sees, and waits for nothing.
        """
        if not self._calling.acquire(blocking=False):
            return self._running().ready()
        try:
            return self._wait_ready(self._running())
        finally:
            self._calling.release()

    @property
    def ready_env(self) -> list[int]:
        """The same as ``ready_obs_id``."""
        return self.ready_obs_id

    @property
    def ready_obs(self) -> dict[int, Any]:
        """The observations of the envs that can be stepped, by env_id.

        Waits until there is one, as long as the resets that are under way may take. ``{}`` when all that are
        not done are stepping, or when all are done.

        Raises:
            IllegalStateError: No env can become ready by itself; the message says which is in which state.
            EnvResetError: A reset in the background failed.
        """
        with self._calling:
            engine = self._running()
            ids = self._wait_ready(engine)
            if not ids:
                return {}
            _, row = engine.observations(np.array(ids, np.int64))
            return {i: row(k) for k, i in enumerate(ids)}

    @property
    def ready_info(self) -> dict[int, Any]:
        """The infos of the last resets of the ready envs, by env_id; ``{}`` for an empty one."""
        with self._calling:
            engine = self._running()
            ready = self._wait_ready(engine)
            infos = engine.ready_infos()  # not before: a reset that was waited for has an info of its own
            return {i: infos.get(i, {}) for i in ready}

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """What ``render`` of the ready envs gives, by env_id."""
        with self._calling:
            engine = self._running()
            ids = self._wait_ready(engine)
            images = call_envs(engine, [Call(i, "call", "render") for i in ids])
            return dict(zip(ids, images, strict=True))

    def _wait_ready(self, engine: Engine) -> list[int]:
        engine.check()
        engine.wait_until(lambda: bool(engine.ready()) or not engine.coming(), self._reset_bound())
        ids = engine.ready()
        if ids:
            return ids
        states = self.env_states
        if engine.pending or all(state == EnvState.DONE for state in states.values()):
            return []
        listed = ", ".join(f"env {i}: {state.name}" for i, state in list(states.items())[:16])
        if engine.coming():
            raise EnvResetError(f"no env became ready within its limits ({listed})")
        raise IllegalStateError(
            f"no env can be stepped, and none will be without reset() ({listed}). NEED_RESET and ERROR want "
            "reset(); DONE has had its episodes"
        )

    def _reset_bound(self) -> float | None:
        """How long a reset may take with all its attempts, in seconds; None for no limit."""
        cfg = self._cfg
        if cfg.reset_timeout is None:
            return None
        connect = cfg.get("connect_timeout") or 0.0
        once = cfg.reset_timeout + cfg.get("interrupt_grace", 1.0) + cfg.retry_waiting_time + connect + 1.0
        return float(once * (cfg.max_retry + 1))

    def stats(self) -> dict[int, dict[str, Any]]:
        """Counts and seconds per env; after ``close``, those of the last launch.

        They are steps, episodes, step_time, reset_time, wait_time, retries, renewals, timeouts, failures. A
        failure is a step or a reset that brought no result, whatever became of it then: each attempt counts.
        """
        self._check_process()
        engine = self._engine
        return self._last_stats if engine is None else engine.stats()

    def __len__(self) -> int:
        return self._env_num

    def __repr__(self) -> str:
        state = "closed" if self.closed else "launched"
        return f"<{type(self).__name__} of {self._env_num} envs, {state}>"
