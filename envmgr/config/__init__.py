"""Configs: what keys there are, how two are merged, how files are read.

Names are resolved when they are first used, so that neither pydantic nor easydict is imported
before a config is checked.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envmgr.config.files import compile_config, read_config
    from envmgr.config.merge import deep_merge_dicts
    from envmgr.config.schema import defaults, describe, validate

_HOME = {
    "compile_config": "files",
    "read_config": "files",
    "deep_merge_dicts": "merge",
    "defaults": "schema",
    "describe": "schema",
    "validate": "schema",
}

__all__ = ["compile_config", "deep_merge_dicts", "defaults", "describe", "read_config", "validate"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
