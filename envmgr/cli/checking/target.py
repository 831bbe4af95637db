"""Which env a command is about: a module's factory, a file's, or a Gymnasium id."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envmgr.cli.env_factory import EnvFactory, load
from envmgr.errors import ConfigError

_GYMNASIUM = "gymnasium"
_FORMS = "'module:factory', 'path/to/file.py:factory' or 'gymnasium:CartPole-v1'"


class TargetError(ConfigError):
    """What was to be looked at does not exist: the command was called wrongly."""


@dataclasses.dataclass(frozen=True)
class FileFactory:
    """Builds envs by a callable in a file, which is read where it is called: in the worker.

    Args:
        path: The file.
        name: The callable in it.
    """

    path: str
    name: str

    def __call__(self) -> Any:
        """Builds an env."""
        return self.load()()

    def load(self) -> Callable[..., Any]:
        """The callable itself.

        Raises:
            TargetError: The file has no such callable.
        """
        module = _module_of(self.path)
        found = getattr(module, self.name, None)
        if not callable(found):
            raise TargetError(f"{self.path} has no callable {self.name!r}; it has {_callables(module)}")
        made: Callable[..., Any] = found
        return made


def factory_of(target: str) -> EnvFactory:
    """What builds the env that a command names. Nothing of the user's is imported here.

    Args:
        target: ``'module:factory'``, ``'path/to/file.py:factory'`` or ``'gymnasium:CartPole-v1'``. Modules of
            the current directory are found.

    Raises:
        TargetError: It has another form, or the file does not exist.
    """
    if target.startswith(f"{_GYMNASIUM}:") and len(target) > len(_GYMNASIUM) + 1:
        return EnvFactory(id=target.partition(":")[2])
    # The last colon: a drive letter has one, too.
    where, colon, name = target.rpartition(":")
    if not (where and colon and name):
        near = f". For a Gymnasium id: 'gymnasium:{target}'" if target and ":" not in target else ""
        raise TargetError(f"{target!r}: expected {_FORMS}{near}")
    if where.endswith(".py"):
        path = Path(where).resolve()
        if not path.is_file():
            raise TargetError(f"{target!r}: there is no file {path}")
        return EnvFactory(factory=FileFactory(str(path), name))
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # workers take the path over
    return EnvFactory(factory=f"{where}:{name}")


def callable_of(env_fn: Any) -> Any:
    """The user's own callable behind an env_fn, found (in the worker) without calling it.

    Raises:
        TargetError: There is no such module or callable.
        Exception: What the user's module raises when it is imported.
    """
    factory = env_fn.factory if isinstance(env_fn, EnvFactory) else env_fn
    if factory is None and isinstance(env_fn, EnvFactory):
        _registered(str(env_fn.id))
        return env_fn
    if isinstance(factory, FileFactory):
        return factory.load()
    if isinstance(factory, str):
        return _named(factory)
    return factory


def _registered(env_id: str) -> None:
    """Looks whether Gymnasium knows an id; one with a module in front is registered only when it is made."""
    import gymnasium

    if ":" not in env_id:
        try:
            gymnasium.spec(env_id)
        except gymnasium.error.Error as error:
            raise TargetError(f"Gymnasium does not make {env_id!r}: {error}") from None


def _named(path: str) -> Any:
    try:
        return load(path, "env")
    except ConfigError as error:
        cause = error.__cause__
        if cause is None:
            raise TargetError(error.message.replace("env=", "", 1)) from None
        module = path.partition(":")[0]
        missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):
            raise TargetError(f"there is no module {module!r} here; expected {_FORMS}") from None
        raise cause from None  # the user's own module raised: its own lines are what counts


def _module_of(path: str) -> Any:
    """The module of a file, read once, under a name by which what it defines can be pickled."""
    folder, stem = os.path.split(path)
    name = stem.removesuffix(".py")
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) == path:
            return known
        name = f"envmgr_target_{name}"
        if name in sys.modules:
            return sys.modules[name]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:  # as the import system does it: a module that failed is not there
        del sys.modules[name]
        raise
    return module


def _callables(module: Any) -> str:
    own = [
        key
        for key, value in vars(module).items()
        if callable(value)
        and not key.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
    ]
    return ", ".join(own) or "none"
