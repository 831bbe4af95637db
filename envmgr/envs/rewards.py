"""Shape and dtype of an env's reward, from its ``reward_space`` where it has one."""

from __future__ import annotations

from typing import Any

import numpy as np

DEFAULT = np.dtype(np.float64)


def reward_spec(space: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype and shape of a reward.

    Args:
        space: Any object with ``shape`` and ``dtype`` (a Box, a reward spec), or None.

    Returns:
        Dtype and shape; float64 and ``()`` for what the space does not say, or says in a way that
        is no number.
    """
    shape = getattr(space, "shape", None)
    if shape is None:
        shape = ()
    elif isinstance(shape, (int, np.integer)):
        shape = (int(shape),)
    try:
        dtype = np.dtype(getattr(space, "dtype", None) or DEFAULT)
        sizes = tuple(int(size) for size in shape)
    except (TypeError, ValueError):
        return DEFAULT, ()
    return (dtype if dtype.kind in "biuf" else DEFAULT), sizes
