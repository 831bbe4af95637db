"""Attributes and methods of envs, through their manager.

An attribute that the manager does not have is fetched from every env, as a list that can also be called
where it is a method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envmgr.engine.calls import Call, call_envs
from envmgr.engine.engine import Engine
from envmgr.errors import IllegalStateError
from envmgr.managers import checks
from envmgr.managers.face import Face

METHODS = ["reset", "step", "seed", "close", "enable_save_replay", "render", "reward_shaping"]


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


class Attributes(Face):
    """Gets, sets and calls; an env that steps finishes first."""

    @property
    def method_name_list(self) -> list[str]:
        """The methods of envs that a manager knows by name."""
        return list(METHODS)

    def __getattr__(self, name: str) -> Any:
        """Any other attribute: fetched from every env, as a list. An env that steps finishes first."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        engine = self.__dict__.get("_engine")
        if engine is None or engine.closed:
            state = "closed" if self.__dict__.get("_was_closed") else "not launched"
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}; the manager is {state}, and envs "
                "have attributes after launch()"
            )
        self._check_process()
        with self._calling:
            return self._fetch(engine, name)

    def _fetch(self, engine: Engine, name: str) -> EnvAttributes:
        values = call_envs(engine, [Call(i, "get", name) for i in range(self._env_num)])

        def one(i: int) -> Callable[..., Any]:
            def method(*args: Any, **kwargs: Any) -> Any:
                with self._calling:
                    return call_envs(self._running(), [Call(i, "call", name, args, kwargs)])[0]

            return method

        def every(*args: Any, **kwargs: Any) -> list[Any]:
            with self._calling:
                return call_envs(
                    self._running(), [Call(i, "call", name, args, kwargs) for i in range(self._env_num)]
                )

        return EnvAttributes(
            [one(i) if engine.is_method(v) else v for i, v in enumerate(values)], name, every
        )

    def get_env_attr(self, name: str, env_id: Any = None) -> list[Any]:
        """An attribute of some envs, also where the manager has one of the same name.

        Args:
            name: The attribute.
            env_id: The envs, None for all.
        """
        with self._calling:
            ids = range(self._env_num) if env_id is None else checks.env_ids(env_id, self._env_num, "env_id")
            return call_envs(self._running(), [Call(i, "get", name) for i in ids])

    def set_env_attr(self, name: str, values: Any, env_id: Any = None) -> None:
        """Sets an attribute on the envs themselves, through their wrappers.

        Args:
            name: The attribute.
            values: A list with one value per env named.
            env_id: The envs, None for all.
        """
        with self._calling:
            ids = (
                list(range(self._env_num))
                if env_id is None
                else checks.env_ids(env_id, self._env_num, "env_id")
            )
            if not isinstance(values, list | tuple) or len(values) != len(ids):
                raise IllegalStateError(
                    f"set_env_attr takes a list of {len(ids)} values, one per env, not {values!r}"
                )
            calls = [Call(i, "set", name, (value,)) for i, value in zip(ids, values, strict=True)]
            call_envs(self._running(), calls)

    def call_env_method(self, name: str, *args: Any, env_id: Any = None, **kwargs: Any) -> list[Any]:
        """Calls a method of some envs, side by side where they live in different workers."""
        with self._calling:
            ids = range(self._env_num) if env_id is None else checks.env_ids(env_id, self._env_num, "env_id")
            return call_envs(self._running(), [Call(i, "call", name, args, kwargs) for i in ids])

    def reward_shaping(self, env_id: int, transitions: Any) -> Any:
        """Calls one env's ``reward_shaping``."""
        return self.call_env_method("reward_shaping", transitions, env_id=[env_id])[0]
