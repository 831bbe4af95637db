"""Attributes of an env through its wrappers.

Wrappers hold what they wrap in ``env``. Some forward attributes (gym), some do not (Gymnasium since
1.0), some forward all but private ones. So the chain is walked here: reading takes the outermost
object that has the name, writing goes to the innermost one, which is the env the user means.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

_MAX_DEPTH = 64
_MISSING = object()


def lookup(obj: Any, name: str, default: Any = None) -> Any:
    """An attribute of one object; the default if it has none, or if its property raises."""
    try:
        return getattr(obj, name, default)
    except Exception:  # a property of the user's may raise anything; here we only ask
        return default


def method(obj: Any, name: str) -> Any:
    """A callable attribute of one object, or None."""
    found = lookup(obj, name)
    return found if callable(found) else None


def chain(env: Any) -> Iterator[Any]:
    """The env and what it wraps, outermost first."""
    seen: set[int] = set()
    at = env
    while at is not None and id(at) not in seen and len(seen) < _MAX_DEPTH:
        seen.add(id(at))
        yield at
        inner = lookup(at, "env")
        if inner is None or inspect.isclass(inner) or method(inner, "step") is None:
            break
        at = inner
    unwrapped = lookup(at, "unwrapped")
    if unwrapped is not None and id(unwrapped) not in seen and method(unwrapped, "step") is not None:
        yield unwrapped


def name_of(env: Any) -> str:
    """The class name of the innermost env: the one the user knows."""
    return type(list(chain(env))[-1]).__name__


def get(env: Any, name: str) -> Any:
    """Reads an attribute from the outermost object of the chain that has it.

    Raises:
        AttributeError: If none has it, or if it is a property that raises this itself.
    """
    for obj in chain(env):
        try:
            return getattr(obj, name)
        except AttributeError:
            if _declares(obj, name):
                raise
    layers = " > ".join(type(obj).__name__ for obj in chain(env))
    raise AttributeError(f"{layers} has no attribute {name!r}")


def find(env: Any, name: str) -> Any:
    """As ``get``, but None if there is no such attribute, or if it is declared and not implemented."""
    try:
        return get(env, name)
    except (AttributeError, NotImplementedError):
        return None


def put(env: Any, name: str, value: Any) -> None:
    """Sets an attribute on the innermost object of the chain that has it, else on the innermost of all."""
    objects = list(chain(env))
    for obj in reversed(objects):
        if _declares(obj, name):
            setattr(obj, name, value)
            return
    setattr(objects[-1], name, value)


def _declares(obj: Any, name: str) -> bool:
    """Whether the object itself or its class has the name; forwarding by ``__getattr__`` does not count."""
    return inspect.getattr_static(obj, name, _MISSING) is not _MISSING
