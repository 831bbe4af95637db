"""Names for classes, so that a config can say ``type='async_subprocess'``.

A :class:`Registry` maps a name to a class or any callable. Three kinds of names are in it:

- registered by hand, with :meth:`Registry.register`;
- built in: a table says which module registers the name, and the module is imported when the
  name is first asked for, so that ``import envmgr`` stays light;
- of other packages: entry points of a group, loaded when a name is missing or all are listed.
  An entry point gives the class itself, or a module that registers its names when imported. One
  that cannot be loaded stands in nobody's way; asking for it by its name says why.

No lock is held while something is imported: the thread that imports a module would wait for our
lock in its ``register``, and we for its import lock. Imports are repeatable, so two threads may
both do one.
"""

from __future__ import annotations

import difflib
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from envmgr.errors import ConfigError
from envmgr.log import log as _log

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])


class RegistryError(ConfigError, KeyError):
    """A name that is not in a registry, or that is taken already.

    It is a KeyError (as for a dict) and an EnvManagerError, with a message that can be read.
    """


class Registry:
    """A mapping from names to classes that fills itself as names are asked for.

    Args:
        name: What the names stand for, for messages: ``'env manager'``.
        builtin: Name to module, for what is registered by a module of this package when it is imported.
            A module that does not exist (yet) leaves its name unregistered.
        group: Entry-point group in which other packages offer more names.

    Example:
        >>> policies = Registry('policy')
        >>> @policies.register('noop')
        ... class Noop:
        ...     pass
        >>> policies.build('noop')  # doctest: +ELLIPSIS
        <...Noop object at ...>
    """

    def __init__(
        self, name: str, *, builtin: Mapping[str, str] | None = None, group: str | None = None
    ) -> None:
        self.name = name
        self._builtin = dict(builtin or {})
        self._group = group
        self._entries: dict[str, Any] = {}
        self._failures: dict[str, str] = {}
        self._plugins_loaded = group is None
        self._lock = threading.Lock()
        self._busy = threading.local()

    @overload
    def register(self, name: str | None, obj: T, *, force: bool = False) -> T: ...
    @overload
    def register(self, name: str | None = None, *, force: bool = False) -> Callable[[T], T]: ...
    @overload
    def register(self, name: C) -> C: ...
    def register(self, name: Any = None, obj: Any = None, *, force: bool = False) -> Any:
        """Registers a class or callable: ``@r.register('x')``, ``@r.register`` or ``r.register('x', cls)``.

        Args:
            name: The name; without one, the ``__name__`` of what is registered.
            obj: What to register, when used as a call.
            force: Whether a taken name is overwritten.

        Returns:
            What was registered, unchanged; or a decorator, when called without it.

        Raises:
            RegistryError: If the name is taken and ``force`` is false.
            TypeError: If the name is not a non-empty string, or the object not callable.
        """
        if obj is None and callable(name):
            return self._add(None, name, force)
        if name is not None and (not isinstance(name, str) or not name):
            raise TypeError(f"a name of the {self.name} registry is a non-empty str, not {name!r}")
        if obj is not None:
            return self._add(name, obj, force)

        def decorate(target: T) -> T:
            self._add(name, target, force)
            return target

        return decorate

    def _add(self, name: str | None, obj: Any, force: bool) -> Any:
        if not callable(obj):
            raise TypeError(f"the {self.name} registry takes classes and callables, not {obj!r}")
        name = obj.__name__ if name is None else name
        home = self._builtin.get(name)
        is_builtin = home is not None and getattr(obj, "__module__", None) == home
        with self._lock:
            present = self._entries.get(name)
            if is_builtin and not force:
                # The built-in comes late, or its module is reloaded: an override by hand stays.
                if present is None or getattr(present, "__module__", None) == home:
                    self._entries[name] = obj
                return obj
            if (present is not None or home is not None) and not force:
                holder = _where(present) if present is not None else f"built in, in {home}"
                raise RegistryError(
                    f"{self.name} {name!r} is registered already ({holder}): choose another name, "
                    "or pass force=True to replace it"
                )
            self._entries[name] = obj
        return obj

    def get(self, name: str) -> Any:
        """What is registered under ``name``.

        Raises:
            RegistryError: If there is no such name (the message lists near ones), or it is the name of
                an entry point that cannot be loaded (the cause is chained).
        """
        if isinstance(name, str):
            if name not in self._entries:
                self._load_builtin(name)
            if name not in self._entries:
                self._load_plugins(name)
            if name in self._entries:
                return self._entries[name]
        raise RegistryError(self._unknown(name))

    __getitem__ = get

    def build(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls what is registered under ``name`` with the other arguments."""
        return self.get(name)(*args, **kwargs)

    def __contains__(self, name: object) -> bool:
        try:
            self.get(name)  # type: ignore[arg-type]
        except RegistryError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        """The names that can be had, built-in ones first; entry points that cannot be loaded are left out."""
        for name in self._builtin:
            if name not in self._entries:
                self._load_builtin(name)
        self._load_plugins()
        order = [name for name in self._builtin if name in self._entries]
        return iter(order + [name for name in self._entries if name not in self._builtin])

    def keys(self) -> list[str]:
        """The names as a list."""
        return [*iter(self)]  # not list(self), which asks for the length first

    def __len__(self) -> int:
        return len(self.keys())

    def __bool__(self) -> bool:
        return True

    @property
    def failures(self) -> dict[str, str]:
        """Entry points that could not be loaded: name to reason."""
        self._load_plugins()
        return dict(self._failures)

    def __repr__(self) -> str:
        return f"Registry({self.name!r}, {sorted({*self._builtin, *self._entries})})"

    def _load_builtin(self, name: str) -> None:
        module = self._builtin.get(name)
        if module is None:
            return
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
                return
            raise

    def _load_plugins(self, name: str | None = None) -> None:
        """Loads the entry points: the one called ``name`` first, then, if it is still missing, all others."""
        if self._group is None or getattr(self._busy, "loading", False):
            return
        if self._plugins_loaded and (name is None or name not in self._failures):
            return
        from importlib.metadata import entry_points

        self._busy.loading = True
        try:
            found = sorted(entry_points(group=self._group), key=lambda point: point.name)
            for point in sorted(found, key=lambda point: point.name != name):
                if self._plugins_loaded and point.name != name:
                    continue
                self._load_plugin(point, asked_for=point.name == name)
                if name is not None and name in self._entries:
                    return
            self._plugins_loaded = True
        finally:
            self._busy.loading = False

    def _load_plugin(self, point: EntryPoint, *, asked_for: bool) -> None:
        if point.name in self._builtin:
            self._fail(point, "the name is built in")
            return
        if point.name in self._entries:
            return
        try:
            obj = point.load()
            if isinstance(obj, ModuleType):
                self._failures.pop(point.name, None)
                return
            if point.name not in self._entries:
                self._add(point.name, obj, force=False)
            self._failures.pop(point.name, None)
        except Exception as error:  # another package's module may raise anything while it is imported
            self._fail(point, f"{type(error).__name__}: {error}")
            if asked_for:
                raise RegistryError(
                    f"{self.name} {point.name!r} is offered by {_package(point)} but could not be loaded: "
                    f"{self._failures[point.name]}"
                ) from error

    def _fail(self, point: EntryPoint, why: str) -> None:
        self._failures[point.name] = f"{point.value}: {why}"
        _log.warning("%s %r of %s is left out: %s", self.name, point.name, _package(point), why)

    def _unknown(self, name: object) -> str:
        known = self.keys()
        lower = {key.lower(): key for key in known}
        near = [lower[key] for key in difflib.get_close_matches(str(name).lower(), lower, n=3, cutoff=0.5)]
        parts = [f"unknown {self.name} {name!r}"]
        if near:
            parts.append(f"did you mean {' or '.join(map(repr, near))}?")
        parts.append(f"{'Registered' if near else 'registered'}: {', '.join(map(repr, known)) or 'none'}.")
        for broken, why in sorted(self._failures.items()):
            parts.append(f"Could not be loaded: {broken!r} ({why}).")
        return f"{parts[0]}; {' '.join(parts[1:])}"


def import_modules(names: Any) -> None:
    """Imports modules for what they register: the value of ``import_names`` in a config.

    Raises:
        ConfigError: If it is neither None, a name nor a list of names; or a module cannot be imported
            (the cause is chained).
    """
    names = [names] if isinstance(names, str) else () if names is None else names
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"import_names={names!r:.100}: must be a module name or a list of module names")
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # a user's module may raise anything while it is imported
            raise ConfigError(
                f"import_names: {name!r} could not be imported: {type(error).__name__}: {error}"
            ) from error


def _where(obj: Any) -> str:
    return f"{getattr(obj, '__module__', '?')}.{getattr(obj, '__qualname__', repr(obj))}"


def _package(point: EntryPoint) -> str:
    dist = point.dist
    return f"package {dist.name!r}" if dist is not None else f"entry point {point.value!r}"


ENV_MANAGER_REGISTRY = Registry(
    "env manager",
    builtin={
        "base": "envmgr.managers.base",
        "subprocess": "envmgr.managers.subprocess",
        "async_subprocess": "envmgr.managers.async_subprocess",
        "base_v2": "envmgr.managers.v2",
        "subprocess_v2": "envmgr.managers.v2",
    },
    group="envmgr.managers",
)
"""The env managers by the name that ``type`` has in a config."""
