"""What an env returned, into its rows; what does not fit them, into a message.

The careful half of a step: ends of episodes, infos, rewards that are no plain float, side values, and values
of every other kind than an env should return. The uneventful majority of steps never comes here (see
``stepper``).

A reset at once (the array face) writes over what an env keeps: its buffers, its info. So what belongs to the
end of an episode is pickled before it, or copied by its writer.
"""

from __future__ import annotations

import dis
import pickle
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import numpy as np

from envmgr.errors import SpaceMismatchError
from envmgr.infos import as_dict, says_something
from envmgr.memory.arena import Arena
from envmgr.memory.casts import always_fits, brief, fit, to_numpy
from envmgr.memory.rows import RowWriter
from envmgr.workers.contract import Extra, Failure, Status

_PICKLE = pickle.HIGHEST_PROTOCOL
_MESSAGE, _INFO, _FAILED = int(Status.MESSAGE), int(Status.INFO), int(Status.FAILED)
_FINAL, _RESET_FAILED = int(Status.FINAL), int(Status.RESET_FAILED)
_Side = list[Any] | None
_FIVE = "(obs, reward, terminated, truncated, info)"
_FLAGS = frozenset({bool, np.bool_, int})
_SCALARS: tuple[type, ...] = (
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64),
)


class OutcomeWriter:
    """Writes what steps returned.

    Args:
        arena: The rows.
        writer: Of the observations.
        reset: Resets an env and writes its first observation: ``reset(i) -> (info, side)``.
        info_errors: ``'drop'`` or ``'raise'``: what to do with an info that does not pickle.
        failure_of: Makes a Failure of what a call raised.
    """

    def __init__(
        self,
        arena: Arena,
        writer: RowWriter,
        reset: Callable[[int], tuple[Any, _Side]],
        info_errors: str,
        failure_of: Callable[[BaseException, str], Failure],
    ) -> None:
        plan = arena.plan
        self._writer = writer
        self._final_writer = RowWriter(plan.obs, arena.final)
        self._write_reward = RewardWriter(arena).write
        self._reset = reset
        self._info_errors = info_errors
        self._failure_of = failure_of
        self._warned: set[tuple[int, str]] = set()
        self._info_len = arena.bytes_of("info_len").cast("H")
        self._info = arena.bytes_of("info")
        self._info_bytes = plan.info_bytes
        self._terminated = arena.bytes_of("terminated").cast("?")
        self._truncated = arena.bytes_of("truncated").cast("?")

    def write_step(
        self, i: int, auto: bool, obs: Any, r: Any, te: Any, tr: Any, info: Any
    ) -> tuple[int, Extra | None]:
        """Writes one step; status bits and the message that belongs to it.

        Args:
            i: The env.
            auto: Whether it is reset at once when its episode has ended.
            obs: Its observation.
            r: Its reward.
            te: Whether it is terminated.
            tr: Whether it is truncated.
            info: Its info.

        Raises:
            SpaceMismatchError: Something of it does not fit its space, or is no truth value.
        """
        if te.__class__ not in _FLAGS:
            te = _flag(te, "terminated")
        if tr.__class__ not in _FLAGS:
            tr = _flag(tr, "truncated")
        if auto and (te or tr):
            return self._finish(i, obs, r, te, tr, info)
        bits = 0
        extra = self._write_reward(i, r, None)  # first: where it is refused, the last good observation stands
        side = self._writer.write(i, obs)
        if side is not None:
            extra = extra or Extra()
            extra.side = side
        self._terminated[i] = te
        self._truncated[i] = tr
        if info.__class__ is not dict or info:
            bits, extra = self.write_info(i, info, extra)
        return (bits if extra is None else bits | _MESSAGE), extra

    def _finish(self, i: int, obs: Any, r: Any, te: Any, tr: Any, info: Any) -> tuple[int, Extra | None]:
        """The end of an episode with an immediate reset: the last observation goes to the final rows."""
        side = self._final_writer.write(i, obs)
        extra = self._write_reward(i, r, None if side is None else Extra(final_side=side))
        data: bytes | None = None
        first_data: bytes | None = None
        if says_something(info):
            data, extra = self._packed(i, as_dict(info), "info", extra)
        self._terminated[i] = te
        self._truncated[i] = tr
        bits = _FINAL
        try:
            first_info, first_side = self._reset(i)
            if says_something(first_info):
                first_data, extra = self._packed(i, first_info, "reset_info", extra)
        except BaseException as error:  # the step was good: say both
            extra = extra or Extra()
            extra.failure = self._failure_of(error, "reset")
            bits |= _RESET_FAILED
        else:
            if first_data is not None:
                data = pickle.dumps(_Joined(data, first_data), _PICKLE)
            if first_side is not None:
                extra = extra or Extra()
                extra.side = first_side
        if data is not None:
            info_bits, extra = self._put_info(i, data, extra)
            bits |= info_bits
        return (bits if extra is None else bits | _MESSAGE), extra

    # -- what left a loop by an exception --------------------------------------------------------------

    def rescue(
        self, i: int, auto: bool, error: BaseException, given: tuple[Any, ...] | None
    ) -> tuple[int, Extra | None]:
        """Status bits and message of a step that an exception has broken off.

        Args:
            i: The env.
            auto: As for ``write_step``.
            error: The exception.
            given: The five values that the env had returned, where ``was_given`` says so; else None.
        """
        if given is not None:
            try:
                return self.write_step(i, auto, *given)
            except BaseException as refused:  # rubbish of every kind
                error = refused
        return _FAILED | _MESSAGE, Extra(failure=self.step_failure(error))

    def step_failure(self, error: BaseException) -> Failure:
        """What is told of a step that raised, or that returned what is no step."""
        return self._failure_of(_misreturned(error) or error, "step")

    # -- infos -----------------------------------------------------------------------------------------

    def write_info(self, i: int, info: Any, extra: Extra | None) -> tuple[int, Extra | None]:
        """Writes an info, if it says something: a small one into its row, a larger one into the message.

        Raises:
            SpaceMismatchError: It does not pickle, and that is an error here.
        """
        data, extra = self._packed(i, info, "info", extra)
        return (0, extra) if data is None else self._put_info(i, data, extra)

    def _put_info(self, i: int, data: bytes, extra: Extra | None) -> tuple[int, Extra | None]:
        if len(data) <= self._info_bytes:
            self._info_len[i] = len(data)
            at = i * self._info_bytes
            self._info[at : at + len(data)] = data
            return _INFO, extra
        extra = extra or Extra()
        extra.info = data
        return 0, extra

    def _packed(
        self, i: int, info: Any, where: str, extra: Extra | None
    ) -> tuple[bytes | None, Extra | None]:
        """The info pickled, None where nothing is said or left, and the message that warnings go into."""
        if info.__class__ is not dict:
            if not says_something(info):
                return None, extra
            if isinstance(info, Mapping) and not isinstance(info, dict):
                info = dict(info)
        if info.__class__ is dict and not info:
            return None, extra
        try:
            return pickle.dumps(info, _PICKLE), extra
        except Exception as error:  # lambdas, locks, sockets, whatever users put there
            data, bad = _packed_in_parts(info, where, error)
        if bad and self._info_errors == "raise":
            why = next(iter(bad.values()))
            raise SpaceMismatchError(
                f"what does not pickle: {', '.join(bad)} ({why}); leave it out, or set info_errors='drop'"
            ) from why
        for what, why in bad.items():
            if (i, what) not in self._warned:
                self._warned.add((i, what))
                extra = extra or Extra()
                extra.warnings.append(f"env {i}: {what} does not pickle ({why}) and is dropped")
        return data, extra


class RewardWriter:
    """Writes rewards into their rows, by the rules of observations: see ``memory.casts``.

    Args:
        arena: The rows.
    """

    def __init__(self, arena: Arena) -> None:
        plan = arena.plan
        dtype = self._dtype = np.dtype(plan.reward_dtype)
        self._shape = plan.reward_shape
        self._rows = arena.reward
        self._told = False
        floats = dtype.kind == "f"
        self._none = np.nan if floats else 0
        # Of the numbers that most envs give it is told by their class and size that they fit.
        self._number = self._shape == ()
        self._fitting = frozenset(
            [bool, *(kind for kind in _SCALARS if always_fits(np.dtype(kind), dtype))]
            + ([float] if dtype == np.float64 else [])
        )
        self._floats = floats
        self._largest = float(np.finfo(dtype).max) if floats else 0.0
        self._lowest, self._highest = 0, 1
        if floats:
            self._highest = min(2 ** (int(np.finfo(dtype).nmant) + 1), int(self._largest))
            self._lowest = -self._highest
        elif dtype.kind in "iu":
            self._lowest, self._highest = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)

    def write(self, i: int, r: Any, extra: Extra | None) -> Extra | None:
        """Writes a reward; one of another shape than its row goes as a message.

        Args:
            i: The env.
            r: Its reward.
            extra: The message, where there is one already.

        Raises:
            SpaceMismatchError: It is no number, or its row cannot hold its value.
        """
        kind = r.__class__
        if self._number and (
            kind in self._fitting
            or (kind is int and self._lowest <= r <= self._highest)
            or (kind is float and self._floats and not self._largest < abs(r) < np.inf)
        ):
            self._rows[i] = r
            return extra
        array = to_numpy(r, "reward")
        if array.dtype.kind == "c" or (isinstance(r, np.ma.MaskedArray) and np.ma.getmaskarray(r).any()):
            raise SpaceMismatchError(f"reward: expected real numbers, got {brief(r)}")
        if array.size == self._rows[i].size:
            extra = self._fitted(i, r, array, extra)
        else:
            self._rows[i] = self._none
        if array.shape != self._shape:
            extra = extra or Extra()
            extra.reward, extra.has_reward = np.array(array), True
        return extra

    def _fitted(self, i: int, r: Any, array: np.ndarray[Any, Any], extra: Extra | None) -> Extra | None:
        """Writes a reward of the right size, and tells once of float64 that is rounded."""
        # As it came, where it can: Python's own numbers have no dtype that could be too wide.
        value = r if array.shape == self._shape else array.reshape(self._shape)
        self._rows[i] = fit(value, self._dtype, self._shape, "reward", {"reward"})
        if self._told or self._dtype != np.float32 or array.dtype != np.float64 or not hasattr(r, "dtype"):
            return extra
        self._told = True
        extra = extra or Extra()
        extra.warnings.append(
            f"env {i}: float64 rewards go into a float32 reward_space and are rounded. Give the space dtype "
            "float64, or return float32"
        )
        return extra


class _Joined:
    """Two pickled infos that become one when they are unpickled: the first may have been changed since."""

    def __init__(self, info: bytes | None, first: bytes) -> None:
        self._parts = info, first

    def __reduce__(self) -> Any:
        return _join, self._parts


def _join(info: bytes | None, first: bytes) -> dict[Any, Any]:
    said = {} if info is None else pickle.loads(info)
    return {**said, "reset_info": pickle.loads(first)}


def _packed_in_parts(info: Any, where: str, error: Exception) -> tuple[bytes | None, dict[str, Exception]]:
    """What pickles of an info that does not as a whole, and what does not: name to error."""
    if not isinstance(info, dict):
        return None, {f"{where} ({brief(info)})": error}
    kept: dict[Any, Any] = {}
    bad: dict[str, Exception] = {}
    for key, value in info.items():
        try:
            pickle.dumps((key, value), _PICKLE)
        except Exception as its_error:  # asking is the only way to know
            bad[f"{where}[{key!r}]"] = its_error
        else:
            kept[key] = value
    try:
        return (pickle.dumps(kept, _PICKLE) if kept else None), bad
    except Exception as again:  # too deep by one level, for example
        return None, {where: again}


def _flag(value: Any, name: str) -> bool:
    """A truth value, whatever its class.

    Raises:
        SpaceMismatchError: It is none.
    """
    try:
        if np.size(value) == 1 or not hasattr(value, "shape"):
            return bool(value)
    except Exception:  # a value of the user's own may do anything
        pass
    raise SpaceMismatchError(
        f"{name}: expected one truth value, got {brief(value)}; the env's step must return {_FIVE}"
    )


# -- exceptions in a loop: the env's own, or of what it returned --------------------------------------


def was_given(error: BaseException) -> bool:
    """Whether an exception that a loop caught is of its own question whether values are true.

    An array of several items has no truth value, and neither has a frame of pandas. The env returned it, and
    did not raise it. A loop cannot pay for asking differently; so it is told by where the loop stood: a call
    of the env is another instruction than a test.
    """
    tb = error.__traceback__
    if tb is None or not isinstance(error, Exception):
        return False
    inner = tb.tb_next
    if inner is not None and inner.tb_frame.f_code.co_name not in ("__bool__", "__nonzero__", "__len__"):
        return False  # raised in a call, or by the handler of a signal
    return _is_test(_instruction(tb))


def _misreturned(error: BaseException) -> Exception | None:
    """The error to be told of a step that returned another number of values, or no truth value as its end."""
    tb = error.__traceback__
    if tb is None or not isinstance(error, TypeError | ValueError | RuntimeError):
        return None
    while tb.tb_next is not None:
        tb = tb.tb_next
    module = tb.tb_frame.f_globals.get("__name__")
    if module not in ("envmgr.workers.loop", "envmgr.workers.solo", "envmgr.envs.forms"):
        return None
    instruction = _instruction(tb)
    kind: type[Exception]
    four = tb.tb_frame.f_code.co_name == "step_four"
    values = "(obs, reward, done, info), as it did at first," if four else _FIVE
    if instruction == "UNPACK_SEQUENCE":
        # No space says how many values there are: an error of the env like others (EnvStepError).
        kind, text = TypeError, f"what step returned has another number of values ({error})"
    elif _is_test(instruction):
        kind, text = SpaceMismatchError, f"done: expected one truth value ({error})"
    else:
        return None
    told = kind(f"{text}; the env's step must return {values} every time")
    told.__cause__ = error
    return told


def _instruction(tb: TracebackType) -> str:
    return dis.opname[tb.tb_frame.f_code.co_code[tb.tb_lasti]]


def _is_test(instruction: str) -> bool:
    return "JUMP" in instruction or instruction in ("TO_BOOL", "UNARY_NOT")
