"""What builds the envs of a run: picklable, and importing the env's own packages only where it is called."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from envmgr.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class EnvFactory:
    """Builds one env each time that it is called, in the worker: the caller needs none of its imports.

    Args:
        id: A Gymnasium id, such as ``'CartPole-v1'``; or None.
        factory: Instead of it, ``'package.module:callable'``, or the callable itself.
        kwargs: Keyword arguments for either.
    """

    id: str | None = None
    factory: str | Callable[..., Any] | None = None
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(self) -> Any:
        """Builds an env."""
        if self.factory is None:
            import gymnasium

            return gymnasium.make(str(self.id), **self.kwargs)
        make = load(self.factory, "env.factory") if isinstance(self.factory, str) else self.factory
        return make(**self.kwargs)

    @property
    def name(self) -> str:
        """What it builds, for people."""
        if self.factory is None:
            return str(self.id)
        return self.factory if isinstance(self.factory, str) else getattr(self.factory, "__name__", "envs")


def load(path: str, what: str) -> Callable[..., Any]:
    """The callable that a string such as ``'package.module:callable'`` names.

    Args:
        path: The string.
        what: Where it comes from, for the message: ``'collect.policy'``.

    Raises:
        ConfigError: If it has another form, or there is no such callable. An error in the module itself is
            chained.
    """
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(f"{what}={path!r}: must be of the form 'package.module:callable'")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise ConfigError(
            f"{what}={path!r}: {module_name!r} could not be imported: {type(error).__name__}: {error}"
        ) from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        near = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ConfigError(
            f"{what}={path!r}: {module_name!r} has no callable {name!r}; it has {', '.join(near) or 'none'}"
        )
    make: Callable[..., Any] = found
    return make
