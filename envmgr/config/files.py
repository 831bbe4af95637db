"""Run configs: from a file, or the two dicts in it, to one config whose manager is complete.

The form is DI-engine's: ``main_config`` says everything about a run, ``create_config`` which classes it is
made of. A Python file has them as variables, a YAML file as top-level keys; a short YAML file has the keys of
``main_config`` at its top and the manager's type in ``env.manager``::

    env:
      id: CartPole-v1
      env_num: 8
      manager: {type: async_subprocess, episode_num: 100}
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from easydict import EasyDict

from envmgr.config.keys import TYPES
from envmgr.config.loaders import load
from envmgr.config.merge import deep_merge_dicts
from envmgr.config.schema import check, own_defaults, summary
from envmgr.errors import ConfigError
from envmgr.registry import ENV_MANAGER_REGISTRY, import_modules

Where = Callable[[tuple[str, ...]], str]


def read_config(path: str | os.PathLike[str]) -> EasyDict:
    """Reads a config file, without checking what is in it.

    Args:
        path: A ``.py``, ``.yaml`` or ``.yml`` file, or the name of a Python module. A Python file is run
            once.

    Returns:
        An EasyDict with ``main_config`` and ``create_config`` (empty where the file has none).

    Raises:
        ConfigError: If it cannot be read; the message gives file and, where it is known, line.
    """
    loaded = load(path)
    try:
        return deep_merge_dicts({}, {"main_config": loaded.main, "create_config": loaded.create})
    except ConfigError as error:
        raise ConfigError(f"{os.fspath(path)}: {error.message}") from error


def compile_config(
    main_config: Mapping[str, Any] | str | os.PathLike[str],
    create_config: Mapping[str, Any] | None = None,
) -> EasyDict:
    """Merges the two parts of a run config and completes and checks its env manager.

    Args:
        main_config: The config of the run; or what :func:`read_config` gives; or the path of a config file.
        create_config: Its ``env_manager`` names the manager (``type``) and the modules that register
            it (``import_names``), and wins over what ``main_config.env.manager`` says. May be left out where
            that one has a ``type``.

    Returns:
        A new EasyDict: ``main_config``, with every key of the manager in ``env.manager``, ``type`` included.

    Raises:
        ConfigError: If there is no type, no such manager, or its config is wrong. For a config from a file
            the message gives file and, where it is known, line.
    """
    if isinstance(main_config, (str, os.PathLike)):
        loaded = load(main_config)
        try:
            return _compile(loaded.main, {**loaded.create, **(create_config or {})}, loaded.where)
        except _LocatedError:
            raise
        except ConfigError as error:
            raise ConfigError(f"{loaded.where(())}: {error.message}") from error
    if create_config is None and isinstance(main_config, dict) and "main_config" in main_config:
        return _compile(main_config["main_config"], main_config.get("create_config"), None)
    return _compile(main_config, create_config, None)


class _LocatedError(ConfigError):
    """An error that says already where in the file it is."""


def _compile(main: Any, create: Any, where: Where | None) -> EasyDict:
    cfg = deep_merge_dicts({}, main)
    env = _part(cfg, "env", "main_config")
    manager = deep_merge_dicts(
        _part(env, "manager", "main_config.env"),
        _part(deep_merge_dicts({}, create), "env_manager", "create_config"),
    )
    name = manager.get("type")
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"type of the env manager is {name!r}: name it in create_config.env_manager.type or "
            f"main_config.env.manager.type, such as 'async_subprocess'"
        )
    full, problems = check(name, manager, None if name in TYPES else _own_defaults(name, manager))
    if problems and where is not None:
        texts = [f"{where(('env', 'manager', problem.key))}: {problem.text}" for problem in problems]
        raise _LocatedError(summary(name, texts))
    if problems:
        raise ConfigError(summary(name, [problem.text for problem in problems]))
    env["manager"] = full
    cfg["env"] = env
    return cfg


def _part(cfg: Mapping[str, Any], key: str, of: str) -> EasyDict:
    value = cfg.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{of}.{key} is a dict, not {type(value).__name__}: {value!r:.100}")
    return deep_merge_dicts({}, value)


def _own_defaults(name: str, manager: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a manager from elsewhere says of itself."""
    import_modules(manager.get("import_names"))
    return own_defaults(ENV_MANAGER_REGISTRY.get(name))
