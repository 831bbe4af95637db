"""``subprocess``: every env in a worker process; a step waits for all that it was given."""

from __future__ import annotations

from typing import Any, ClassVar

from envmgr.config import schema
from envmgr.errors import ConfigError
from envmgr.managers.base import BaseEnvManager
from envmgr.managers.split import place, split
from envmgr.registry import ENV_MANAGER_REGISTRY
from envmgr.workers.cores import granted_cores, usable_cores
from envmgr.workers.process import ProcessPool
from envmgr.workers.spin import spin_seconds


@ENV_MANAGER_REGISTRY.register("subprocess")
class SyncSubprocessEnvManager(BaseEnvManager):
    """Steps envs in worker processes, with observations in shared memory.

    ``step`` returns exactly the envs that it was given. See ``BaseEnvManager`` for the face.
    """

    config: ClassVar[dict[str, Any]] = schema.defaults("subprocess")
    _type: ClassVar[str] = "subprocess"
    _each: ClassVar[bool] = False

    def _make_pool(self) -> Any:
        cfg = self._cfg
        envs_of = split(self._env_num, cfg.envs_per_worker, cfg.num_workers)
        if cfg.renew_every is not None and len(envs_of) < self._env_num:
            raise ConfigError(
                f"config of env manager {self._type!r}: renew_every={cfg.renew_every} wants one env "
                "per worker, because the others of a worker would lose their episodes; leave out num_workers "
                "and envs_per_worker"
            )
        options = {"each": self._each, "info_errors": cfg.info_errors, "isolate_rng": bool(cfg.isolate_rng)}
        cpus = place(cfg.cpu_affinity, len(envs_of))
        spin = spin_seconds(cfg.spin, workers=len(envs_of), cores=usable_cores(), granted=granted_cores())
        return ProcessPool(self._env_fns, envs_of, cfg.context, options, cpus, spin)
