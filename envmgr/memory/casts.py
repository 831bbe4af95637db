"""Which conversions of dtype are allowed on the way into a row: those that lose nothing.

float64 into float32 is the one exception that the field has always made; it warns once.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.errors import EnvManagerWarning, SpaceMismatchError


def to_numpy(value: Any) -> NDArray[Any]:
    """Any array-like as an array; a torch tensor too, without importing torch."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu().numpy()
    try:
        return np.asarray(value)
    except ValueError as error:  # ragged lists
        raise SpaceMismatchError(f"got a {type(value).__name__} that is no array: {error}") from error


def fit(
    value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], where: str, warned: set[str], kind: str = "box"
) -> NDArray[Any]:
    """The value as an array that can be stored in a row without loss.

    Args:
        value: What was given.
        dtype: Dtype of the row.
        shape: Shape of the row.
        where: Which leaf of what, for messages.
        warned: Leaves that have been warned of already; added to.
        kind: Kind of the leaf; a discrete one takes shape (1,) too.

    Raises:
        SpaceMismatchError: The shape differs, or values would change.
    """
    array = to_numpy(value)
    if array.dtype == object or array.dtype.kind not in "biufc":
        raise SpaceMismatchError(f"{where}: expected {_expected(dtype, shape)}, got {_got(value)}")
    if array.shape != shape:
        if kind == "discrete" and array.size == 1 and shape == ():
            array = array.reshape(())
        else:
            raise SpaceMismatchError(
                f"{where}: expected {_expected(dtype, shape)}, got shape {array.shape} and dtype {array.dtype}"
            )
    if array.dtype == dtype or np.can_cast(array.dtype, dtype, "safe"):
        return array
    if dtype == np.float32 and array.dtype == np.float64:
        # A Python float has no dtype of its own to lose.
        if isinstance(value, np.ndarray | np.generic) and where not in warned:
            warned.add(where)
            warnings.warn(
                f"{where}: float64 values go into a float32 space and are rounded. Give the space dtype "
                "float64, or cast in the env",
                EnvManagerWarning,
                stacklevel=4,
            )
        return array
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        same = np.array_equal(cast.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
        if same and array.dtype.kind in "iu" and dtype.kind in "iu":
            same = bool(np.all((cast < 0) == (array < 0)))
    if not same:
        bad = array[cast.astype(array.dtype) != array] if array.ndim else array
        example = f", such as {bad.flat[0]!r}" if bad.size else ""
        raise SpaceMismatchError(
            f"{where}: expected {_expected(dtype, shape)}, got dtype {array.dtype} with values that do not fit{example}"
        )
    return cast


def _expected(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"shape {shape} and dtype {dtype}"


def _got(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) < 60 else text[:57] + '...'}"
