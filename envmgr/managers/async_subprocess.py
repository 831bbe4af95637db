"""``async_subprocess``: every env in a worker process; a step waits for enough, not for all."""

from __future__ import annotations

from typing import Any, ClassVar

from envmgr.config import schema
from envmgr.managers.subprocess import SyncSubprocessEnvManager
from envmgr.registry import ENV_MANAGER_REGISTRY


@ENV_MANAGER_REGISTRY.register("async_subprocess")
class AsyncSubprocessEnvManager(SyncSubprocessEnvManager):
    """Steps envs in worker processes; slow envs do not hold up quick ones.

    ``step`` returns as soon as ``wait_num`` results are in and ``step_wait_timeout`` seconds have passed, or
    everything is in; what comes later is returned by a later ``step``.
    """

    config: ClassVar[dict[str, Any]] = schema.defaults("async_subprocess")
    _type: ClassVar[str] = "async_subprocess"
    _each: ClassVar[bool] = True

    def _gather_rule(self) -> tuple[int | None, float | None]:
        return int(self._cfg.wait_num), self._cfg.step_wait_timeout
