"""Merging nested configs without touching either of them.

The result is an EasyDict all the way down, as the code that reads DI-engine configs expects
(``cfg.env.manager.type``). Keys are read with ``cfg[key]`` alone, never through ``cfg.items()``: an
EasyDict that has a key called ``items`` has lost that method.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from envmgr.errors import ConfigError

_COPIED = (list, tuple, set, frozenset, bytearray)


def deep_merge_dicts(base: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> EasyDict:
    """Merges ``new`` over ``base``.

    Where both have a dict under a key, the two are merged; otherwise the value of ``new`` wins (None
    and empty values too, save that merging an empty dict changes nothing). Containers and arrays
    are copied, so that the result shares nothing that can be changed with its sources; other objects
    (functions, classes, modules) are taken as they are.

    Args:
        base: The defaults; None is an empty config.
        new: What overrides them; None is an empty config.

    Returns:
        A new EasyDict, nested dicts included.

    Raises:
        ConfigError: If one of the two is not a mapping, or a key is not a string.
    """
    return _merge(_mapping(base), _mapping(new), "")


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"a config is a dict, not {type(value).__name__}: {value!r:.200}")
    return value


def _merge(base: Mapping[str, Any], new: Mapping[str, Any], path: str) -> EasyDict:
    out = EasyDict()
    for key in base:
        if key not in new:
            _put(out, key, _copied(base[key], f"{path}{key}."), path)
        elif isinstance(base[key], Mapping) and isinstance(new[key], Mapping):
            _put(out, key, _merge(base[key], new[key], f"{path}{key}."), path)
        else:
            _put(out, key, _copied(new[key], f"{path}{key}."), path)
    for key in new:
        if key not in base:
            _put(out, key, _copied(new[key], f"{path}{key}."), path)
    return out


def _put(out: EasyDict, key: Any, value: Any, path: str) -> None:
    if not isinstance(key, str):
        raise ConfigError(
            f"config key {path}{key!r} is {type(key).__name__}: keys of a config are strings (hand other "
            "dicts over inside a list of pairs, or build them in a function)"
        )
    if key.startswith("__") and key.endswith("__"):
        raise ConfigError(f"config key {path}{key!r} is a name that Python keeps for itself: rename it")
    out[key] = value


def _copied(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        return _merge({}, value, path)
    if type(value) in (list, tuple):
        return type(value)(_copied(item, path) for item in value)
    if isinstance(value, _COPIED) or type(value).__module__ == "numpy":
        return copy.copy(value)
    return value
