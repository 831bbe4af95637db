"""The older ``info()`` form: an env that describes its spaces by shapes and a dict of values.

``env.info()`` gives an object with ``obs_space``, ``act_space`` and ``rew_space``, each with a
``shape`` (a tuple, a number, or a dict of shapes) and a ``value`` (a dict with ``min``, ``max`` and
``dtype``, or a dict of such dicts, or None).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envmgr.envs.spaces import Box, Dict, Discrete, Space

_DEFAULT = np.float32  # what envs of that age give when they do not say


def spaces_from_info(info: Any) -> list[Any] | None:
    """Observation, action and reward space of an ``info`` method, or None if it describes none."""
    if not callable(info):
        return None
    try:
        described = info()
    except TypeError:  # an ``info`` of another meaning, which wants arguments
        return None
    parts = [getattr(described, name, None) for name in ("obs_space", "act_space", "rew_space")]
    if all(part is None for part in parts):
        return None
    return [_space(parts[0]), _action_space(parts[1]), _space(parts[2])]


def _space(element: Any) -> Space | None:
    if element is None or getattr(element, "shape", None) is None:
        return None
    return _of(element.shape, getattr(element, "value", None))


def _of(shape: Any, value: Any) -> Space:
    if isinstance(shape, Mapping):
        values = value if isinstance(value, Mapping) else {}
        return Dict({key: _of(part, values.get(key, values)) for key, part in shape.items()})
    value = value if isinstance(value, Mapping) else {}
    dtype = np.dtype(value.get("dtype") or _DEFAULT)
    low, high = _bounds(value, dtype)
    return Box(low, high, _shape(shape), dtype)


def _action_space(element: Any) -> Space | None:
    """A choice among n is written there as shape ``(n,)`` or ``(1,)``, whole numbers, ``max`` n."""
    value = getattr(element, "value", None)
    shape = getattr(element, "shape", None)
    if isinstance(value, Mapping) and not isinstance(shape, Mapping) and shape is not None:
        kind = np.dtype(value.get("dtype") or _DEFAULT).kind
        if kind in "iu" and "max" in value and np.ndim(value["max"]) == 0:
            low, high = int(value.get("min") or 0), int(value["max"])
            if _shape(shape) in ((), (1,), (high - low,)):
                return Discrete(high - low, start=low)
    return _space(element)


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(size) for size in shape)


def _bounds(value: Mapping[Any, Any], dtype: np.dtype[Any]) -> tuple[Any, Any]:
    limits: tuple[Any, Any] = (-np.inf, np.inf)
    if dtype.kind in "iu":
        limits = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    elif dtype.kind == "b":
        limits = (False, True)
    low, high = value.get("min"), value.get("max")
    return (limits[0] if low is None else low), (limits[1] if high is None else high)
