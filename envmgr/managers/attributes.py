"""An attribute of every env, as a list that can also be called where it is a method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class EnvAttributes(list[Any]):
    """One value per env, in the order of env_id.

    Where the attribute is a method, each item is a callable that runs on its env, and calling the
    list calls it on every env: ``manager.render()`` is ``[f() for f in manager.render]``, side by side.
    """

    def __init__(self, values: list[Any], name: str, call_all: Callable[..., list[Any]]) -> None:
        super().__init__(values)
        self._name = name
        self._call_all = call_all

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Calls the method on every env; the results in the order of env_id."""
        if not all(callable(value) for value in self):
            raise TypeError(f"{self._name!r} of these envs is a value, not a method")
        return self._call_all(*args, **kwargs)
