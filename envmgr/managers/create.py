"""From a config to an env manager: its ``type`` is looked up in the registry, its other keys are checked.

Nothing of a manager is imported here; the registry imports what a config names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from envmgr.errors import ConfigError
from envmgr.registry import ENV_MANAGER_REGISTRY, import_modules

if TYPE_CHECKING:
    from envmgr.managers.base import BaseEnvManager


def get_env_manager_cls(cfg: Mapping[str, Any]) -> type[BaseEnvManager]:
    """The env manager class that a config names.

    Args:
        cfg: A config with ``type``, the manager's name, and optionally ``import_names``, modules to import
            first.

    Returns:
        The class that is registered under that name.

    Raises:
        ConfigError: If ``cfg`` is not a dict, has no ``type``, or a module cannot be imported.
        RegistryError: If no manager has that name (a ConfigError and a KeyError).
    """
    if not isinstance(cfg, Mapping):
        raise ConfigError(f"the config of an env manager is a dict with a type, not {cfg!r:.100}")
    if "type" not in cfg:
        known = ", ".join(map(repr, ENV_MANAGER_REGISTRY))
        raise ConfigError(f"the config of an env manager has no key 'type'; it is one of: {known}")
    import_modules(cfg.get("import_names"))
    cls: type[BaseEnvManager] = ENV_MANAGER_REGISTRY.get(cfg["type"])
    return cls


def create_env_manager(cfg: Mapping[str, Any], env_fn: Iterable[Callable[[], Any]]) -> BaseEnvManager:
    """Builds the env manager that a config names.

    Args:
        cfg: A dict or EasyDict with ``type``, optionally ``import_names``, and any keys of that manager,
            which are merged over the defaults of its class. It is not changed.
        env_fn: One callable without arguments per env; env i is built by the i-th, in its worker.

    Returns:
        The manager, not launched yet.

    Raises:
        ConfigError: If a key is unknown, or a value has a wrong type or range; or as
            :func:`get_env_manager_cls`.

    Example:
        >>> manager = create_env_manager(dict(type='base'), [make_env] * 8)  # doctest: +SKIP
    """
    from envmgr.config.schema import own_defaults, validate

    cls = get_env_manager_cls(cfg)
    return cls(env_fn, validate(cfg["type"], cfg, own_defaults(cls)))
