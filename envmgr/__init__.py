"""envmgr steps many reinforcement-learning environments at once.

Every public name can be had from here: ``from envmgr import create_env_manager``. A name is
imported when it is first asked for, so that ``import envmgr`` alone is quick and a worker
process pays only for what it uses. ``_EXPORTS`` is the table; the imports for type checkers below
it say the same once more, because a checker does not run ``__getattr__`` (a test compares them).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envmgr.config.files import compile_config as compile_config
    from envmgr.config.files import read_config as read_config
    from envmgr.config.merge import deep_merge_dicts as deep_merge_dicts
    from envmgr.engine.states import EnvRetryType as EnvRetryType
    from envmgr.engine.states import EnvState as EnvState
    from envmgr.envs.base import BaseEnv as BaseEnv
    from envmgr.errors import ConfigError as ConfigError
    from envmgr.errors import EnvInitError as EnvInitError
    from envmgr.errors import EnvInitTimeoutError as EnvInitTimeoutError
    from envmgr.errors import EnvManagerError as EnvManagerError
    from envmgr.errors import EnvManagerWarning as EnvManagerWarning
    from envmgr.errors import EnvResetError as EnvResetError
    from envmgr.errors import EnvStepError as EnvStepError
    from envmgr.errors import EnvTimeoutError as EnvTimeoutError
    from envmgr.errors import IllegalStateError as IllegalStateError
    from envmgr.errors import ManagerClosedError as ManagerClosedError
    from envmgr.errors import ShmError as ShmError
    from envmgr.errors import SpaceMismatchError as SpaceMismatchError
    from envmgr.errors import UnknownEnvError as UnknownEnvError
    from envmgr.errors import WorkerDied as WorkerDied
    from envmgr.infos import info_arrays as info_arrays
    from envmgr.infos import info_list as info_list
    from envmgr.managers.async_subprocess import AsyncSubprocessEnvManager as AsyncSubprocessEnvManager
    from envmgr.managers.base import BaseEnvManager as BaseEnvManager
    from envmgr.managers.create import create_env_manager as create_env_manager
    from envmgr.managers.create import get_env_manager_cls as get_env_manager_cls
    from envmgr.managers.subprocess import SyncSubprocessEnvManager as SyncSubprocessEnvManager
    from envmgr.managers.v2 import BaseEnvManagerV2 as BaseEnvManagerV2
    from envmgr.managers.v2 import SubprocessEnvManagerV2 as SubprocessEnvManagerV2
    from envmgr.memory.shm_buffer import ShmBuffer as ShmBuffer
    from envmgr.memory.shm_buffer import ShmBufferContainer as ShmBufferContainer
    from envmgr.registry import ENV_MANAGER_REGISTRY as ENV_MANAGER_REGISTRY
    from envmgr.registry import Registry as Registry
    from envmgr.registry import RegistryError as RegistryError
    from envmgr.timestep import BaseEnvTimestep as BaseEnvTimestep
    from envmgr.timestep import EnvIdTimestep as EnvIdTimestep

__version__ = "0.1.0"

_EXPORTS: dict[str, tuple[str, ...]] = {
    "envmgr.config.files": ("compile_config", "read_config"),
    "envmgr.config.merge": ("deep_merge_dicts",),
    "envmgr.engine.states": ("EnvRetryType", "EnvState"),
    "envmgr.envs.base": ("BaseEnv",),
    "envmgr.errors": (
        "ConfigError",
        "EnvInitError",
        "EnvInitTimeoutError",
        "EnvManagerError",
        "EnvManagerWarning",
        "EnvResetError",
        "EnvStepError",
        "EnvTimeoutError",
        "IllegalStateError",
        "ManagerClosedError",
        "ShmError",
        "SpaceMismatchError",
        "UnknownEnvError",
        "WorkerDied",
    ),
    "envmgr.infos": ("info_arrays", "info_list"),
    "envmgr.managers.async_subprocess": ("AsyncSubprocessEnvManager",),
    "envmgr.managers.base": ("BaseEnvManager",),
    "envmgr.managers.create": ("create_env_manager", "get_env_manager_cls"),
    "envmgr.managers.subprocess": ("SyncSubprocessEnvManager",),
    "envmgr.managers.v2": ("BaseEnvManagerV2", "SubprocessEnvManagerV2"),
    "envmgr.memory.shm_buffer": ("ShmBuffer", "ShmBufferContainer"),
    "envmgr.registry": ("ENV_MANAGER_REGISTRY", "Registry", "RegistryError"),
    "envmgr.timestep": ("BaseEnvTimestep", "EnvIdTimestep"),
}
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = ["__version__", *_MODULE_OF]


if not TYPE_CHECKING:  # so that a checker still reports a name that does not exist

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first asked for, and keeps it."""
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module 'envmgr' has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
