"""Two other views of the array face's infos: one dict per row, and one masked array per key.

``reset_arrays``, ``recv`` and ``step_arrays`` give infos as ``{env_id: info}``, with only those that are not
empty. That is cheap when few envs have something to say, which is the rule; a training loop may rather want
rows that line up with ``reward``::

    obs, reward, terminated, truncated, info, env_id, final_obs = manager.step_arrays(actions)
    info_list(info, env_id)    # [{}, {'lives': 2}, {}]
    info_arrays(info, env_id)  # {'lives': array([0, 2, 0]), '_lives': array([False, True, False])}

Both are made on request, so a step pays for neither. Here live pure functions over infos that are in already:
no manager, no engine, nothing that waits, and nothing but numpy is imported.

One rule stands above the convenience of a numeric array: what an env said can be read back, exactly. An array
of numbers is made only where every value survives in it; otherwise the array is one of objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_PLAIN_NUMBERS = (bool, int, float, complex)
_NUMERIC_KINDS = "biufc"


def info_list(infos: Mapping[int, Any], env_id: ArrayLike) -> list[dict[Any, Any]]:
    """The infos as a list with one dict per row.

    Args:
        infos: env_id -> info, as the array face gives it. Envs that are not there said nothing.
        env_id: Int array of shape (k,): whose row each is, in any order, each env once. It may be a part
            of the envs; the infos of others are left out.

    Returns:
        k dicts, in the order of ``env_id``: the env's own info, not a copy, or a new ``{}`` where it said
        nothing. An info that is no dict comes as ``{'info': info}``, which is how managers store one that
        the info of a reset is added to; None counts as nothing said.

    Raises:
        TypeError: ``infos`` is no mapping.
        ValueError: ``env_id`` is not a list of whole numbers from 0 up, or has one of them twice.
    """
    if not isinstance(infos, Mapping):
        raise TypeError(f"infos is a dict {{env_id: info}}, not {type(infos).__name__}")
    return [as_dict(infos.get(i)) for i in _ids(env_id)]


def info_arrays(infos: Mapping[int, Any], env_id: ArrayLike) -> dict[Any, Any]:
    """The infos as a dict of arrays with masks: the convention of ``gymnasium.vector``.

    For each key that any env of ``env_id`` said there are two entries: ``key``, an array with one row per
    env, and ``f'_{key}'``, a bool array of shape (k,) that is True in the rows of the envs that said it.
    What the array is depends on the values that were said:

    ================================================  ====================================================
    all of them are                                   the array
    ================================================  ====================================================
    dicts                                             no array: a dict of this same form, with its own masks
    bool, ``np.bool_``                                bool, shape (k,), False where masked
    int, float, complex, numpy numbers                of that dtype (int64, float64, complex128 for Python's
                                                      own), shape (k,), 0 where masked
    numpy arrays of one shape, all bool or all        of that dtype, shape (k, ``*shape``), 0 where masked
    numbers
    anything else: str, None, lists, arrays of        object, shape (k,), the values as they are, None where
    other shapes, a mixture of these rows             masked
    ================================================  ====================================================

    Numbers of different dtypes go to the dtype that numpy promotes them to (an int and a float: float64).
    Where that could change a value (an int beyond 2**53 beside a float) the array is one of objects. A bool
    is no number here: beside numbers it makes an array of objects, so that True can be told from 1. Instances
    of subclasses (an IntEnum, a masked array) are kept as objects too.

    So the dtype of a key may differ from step to step if what the envs say under it does.

    Keys that are not strings keep their place and have a mask by their ``str``: 3 and ``'_3'``. A key that
    begins with ``_`` is a key like others: ``'_x'`` has the mask ``'__x'``. Where a mask would fall on
    another key or on another mask there is no such view, and this is an error.

    Args:
        infos: As for ``info_list``.
        env_id: As for ``info_list``.

    Returns:
        Keys in the order in which they were first said, row by row, each followed by its mask. ``{}`` when
        nobody said anything. Arrays of numbers and masks are new; objects are the envs' own.

    Raises:
        TypeError: ``infos`` is no mapping.
        ValueError: As for ``info_list``; or a mask would have the name of a key or of another mask
            (``'x'`` beside ``'_x'``, ``3`` beside ``'3'``), in one info or in those of two envs.
    """
    return _columns(dict(enumerate(info_list(infos, env_id))), _ids(env_id), "info")


def _ids(env_id: ArrayLike) -> list[int]:
    array = np.asarray(env_id)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"env_id is a list of whole numbers, one for each row, not {env_id!r}")
    ids: list[int] = array.tolist()
    if ids and min(ids) < 0:
        raise ValueError(f"env_id names env {min(ids)}; envs are counted from 0")
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise ValueError(f"env_id names env {twice} more than once; each row is an env of its own")
    return ids


def as_dict(info: Any) -> dict[Any, Any]:
    """An info as a dict that can be added to: one that is no dict goes under ``'info'``, None is nothing.

    It may be the very dict that was given.
    """
    if isinstance(info, dict):
        return info
    if isinstance(info, Mapping):
        return dict(info)
    return {} if info is None else {"info": info}


def says_something(info: Any) -> bool:
    """Whether an info is not empty. What has no truth value (an array of several items) says something."""
    try:
        return bool(info)
    except Exception:  # an info of the user's own may do anything
        return True


def _columns(said: Mapping[int, dict[Any, Any]], ids: Sequence[int], where: str) -> dict[Any, Any]:
    """One level of the masked view.

    Args:
        said: Row -> what was said there.
        ids: The env of each row.
        where: What this level is called in messages, such as ``info['agent']``.
    """
    by_key: dict[Any, dict[int, Any]] = {}
    for k, info in said.items():
        for key, value in info.items():
            by_key.setdefault(key, {})[k] = value
    _refuse_clashes(by_key, ids, where)
    columns: dict[Any, Any] = {}
    for key, values in by_key.items():
        if all(isinstance(value, dict) for value in values.values()):
            columns[key] = _columns(values, ids, f"{where}[{key!r}]")
        else:
            columns[key] = _column(values, len(ids))
        mask = np.zeros(len(ids), np.bool_)
        mask[list(values)] = True
        columns[_mask_name(key)] = mask
    return columns


def _mask_name(key: Any) -> str:
    return f"_{key}"


def _refuse_clashes(by_key: Mapping[Any, Mapping[int, Any]], ids: Sequence[int], where: str) -> None:
    """Each name of the view stands for one thing: a key, or the mask of one key."""
    masked: dict[str, Any] = {}
    for key, values in by_key.items():
        name = _mask_name(key)
        if name in by_key:
            other, why = name, f"{name!r} is also the name of the mask of {key!r}"
        elif name in masked:
            other, why = masked[name], f"both would have the mask {name!r}"
        else:
            masked[name] = key
            continue
        raise ValueError(
            f"{where} has the keys {key!r} (env {ids[next(iter(values))]}) and {other!r} "
            f"(env {ids[next(iter(by_key[other]))]}), and {why}: give one of them another name in the env, "
            "or use info_list"
        )


def _column(values: Mapping[int, Any], n: int) -> NDArray[Any]:
    """The values, by row, as one array of n rows: of numbers if they can be, else of objects."""
    arrays = [_number(value) for value in values.values()]
    numbers = [array for array in arrays if array is not None]
    dtype = _common_dtype(numbers) if len(numbers) == len(arrays) else None
    if dtype is None:
        column = np.full(n, None, np.object_)
        for k, value in values.items():  # one by one: assigned as a whole, numpy would look inside
            column[k] = value
        return column
    column = np.zeros((n, *numbers[0].shape), dtype)
    for k, number in zip(values, numbers, strict=True):
        column[k] = number
    return column


def _number(value: Any) -> NDArray[Any] | None:
    """A bool, a number or a plain array of such as an array, and None for everything else."""
    if type(value) not in (*_PLAIN_NUMBERS, np.ndarray) and not isinstance(value, np.generic):
        return None
    array = np.asarray(value)
    return array if array.dtype.kind in _NUMERIC_KINDS else None  # an int beyond 64 bits is an object


def _common_dtype(arrays: Sequence[NDArray[Any]]) -> np.dtype[Any] | None:
    """The dtype in which all of them, of one shape, stay what they are; None if there is none."""
    if len({array.shape for array in arrays}) > 1 or len({array.dtype.kind == "b" for array in arrays}) > 1:
        return None
    dtype = np.result_type(*{array.dtype for array in arrays})
    return dtype if all(_fits(array, dtype) for array in arrays) else None


def _fits(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether the promotion keeps each value; numpy calls int64 to float64 safe, which it is up to 2**53."""
    if array.dtype.kind not in "iu" or dtype.kind not in "fc" or not array.size:
        return True
    limit = 2 ** (int(np.finfo(dtype).nmant) + 1)
    return bool(-limit <= int(array.min()) and int(array.max()) <= limit)
