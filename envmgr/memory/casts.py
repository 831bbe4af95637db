"""Which conversions of dtype are allowed on the way into a row: those that change no value.

Where the dtypes alone say so (uint8 into float32) nothing is looked at; elsewhere the values decide: 200
as int64 fits a uint8 row, 300 does not. float64 into float32 is the one exception that the field has
always made: it rounds, and warns once. Python numbers have no dtype of their own, so they round silently.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.errors import EnvManagerWarning, SpaceMismatchError
from envmgr.words import brief

_FLOAT32 = np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)
_NUMBERS = "biufc"


def to_numpy(value: Any, where: str) -> NDArray[Any]:
    """Any array-like as an array of numbers; a torch tensor too, without importing torch.

    Raises:
        SpaceMismatchError: It is none: a dict, a string, None, a ragged list.
    """
    if type(value) is np.ndarray:
        array = value
    else:
        try:
            if hasattr(value, "detach") and hasattr(value, "cpu"):
                value = value.detach().cpu().numpy()
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise SpaceMismatchError(f"{where}: {brief(value)} cannot be made an array: {error}") from error
    if array.dtype.kind not in _NUMBERS:
        raise SpaceMismatchError(f"{where}: expected numbers, got {brief(value)}")
    return array


def fit(
    value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], where: str, warned: set[str], kind: str = "box"
) -> NDArray[Any]:
    """The value as an array that can be assigned to a row and reads back equal.

    Args:
        value: What was given.
        dtype: Dtype of the row.
        shape: Shape of the row.
        where: Which leaf of what, for messages.
        warned: Not empty once a warning was given; added to.
        kind: Kind of the leaf; a discrete one takes shape (1,) too.

    Raises:
        SpaceMismatchError: The shape differs, or values would change.
    """
    try:
        array = to_numpy(value, where)
    except SpaceMismatchError as error:
        raise SpaceMismatchError(f"{error.message}; the space has shape {shape} and dtype {dtype}") from error
    if array.shape != shape:
        if kind != "discrete" or shape != () or array.shape != (1,):
            raise _mismatch(where, dtype, shape, array, "")
        array = array.reshape(())
    source = array.dtype
    if source == dtype or always_fits(source, dtype):
        return array
    has_dtype = hasattr(value, "dtype")
    if source.newbyteorder("=") == _FLOAT64 and dtype.kind == "f" and (dtype == _FLOAT32 or not has_dtype):
        return _rounded(array, dtype, shape, where, warned if has_dtype else None)
    if source.kind in "iu" and dtype.kind in "iu":  # the usual case, and this is the quickest way to tell
        cast = array.astype(dtype)
        if (cast == array).all():
            return cast
    with np.errstate(all="ignore"):
        fits = _fits(array, dtype)
        if not fits.all():
            example = array[~fits].flat[0]
            raise _mismatch(where, dtype, shape, array, f": {example!s} does not fit")
        return (array.real if source.kind == "c" and dtype.kind != "c" else array).astype(dtype)


def always_fits(source: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether every value of one dtype is the same in the other."""
    # numpy calls int64 into float64 safe, which it is not beyond 2**53.
    if source.kind in "iu" and source.itemsize >= 8 and dtype.kind in "fc":
        return False
    return np.can_cast(source, dtype, "safe")


def _rounded(
    array: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...], where: str, warned: set[str] | None
) -> NDArray[Any]:
    try:
        with np.errstate(over="raise", under="ignore", invalid="ignore"):
            cast = array.astype(dtype)
    except FloatingPointError:
        finite = array[np.isfinite(array)]
        example = finite[np.abs(finite).argmax()]
        raise _mismatch(where, dtype, shape, array, f": {example!s} does not fit") from None
    if warned is not None and not warned:
        warned.add(where)
        warnings.warn(
            f"{where}: float64 values go into a float32 space and are rounded. Give the space dtype float64, "
            "or return float32",
            EnvManagerWarning,
            stacklevel=2,
        )
    return cast


def _fits(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    """Which values are the same in ``dtype``."""
    fits: Any
    if "c" in (array.dtype.kind, dtype.kind):  # in parts: a NaN in one must not hide the other
        part = np.zeros((), dtype).real.dtype
        fits = _fits(np.asarray(array.real), part)
        fits = fits & ((array.imag == 0) if dtype.kind != "c" else _fits(np.asarray(array.imag), part))
    elif dtype.kind == "b":
        fits = (array == 0) | (array == 1)
    elif dtype.kind in "iu":
        lowest, highest = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        if array.dtype.kind in "iu":
            fits = (array >= lowest) & (array <= highest)
        else:
            wide = array.astype(np.result_type(array.dtype, _FLOAT64))
            fits = (wide >= float(lowest)) & (wide < float(highest + 1)) & (wide == np.trunc(wide))
    elif array.dtype.kind in "iu":
        cast = array.astype(dtype)
        # Rounded up to the limit, or to infinity, a value could wrap to itself on its way back.
        limit = float(int(np.iinfo(array.dtype).max) + 1)
        fits = np.isfinite(cast) & (cast < limit) & (cast.astype(array.dtype) == array)
    else:
        fits = (array.astype(dtype) == array) | np.isnan(array)
    return np.asarray(fits)


def _mismatch(
    where: str, dtype: np.dtype[Any], shape: tuple[int, ...], array: NDArray[Any], detail: str
) -> SpaceMismatchError:
    return SpaceMismatchError(
        f"{where}: expected shape {shape} and dtype {dtype}, "
        f"got shape {array.shape} and dtype {array.dtype}{detail}"
    )
