"""What an env returned, into its rows; what does not fit them, into a message.

The careful half of a step: ends of episodes, infos, side values; ``rewards`` has rewards that are no plain
float, ``misreturned`` what is told of values of every other kind than an env should return. The uneventful
majority of steps never comes here (see ``stepper``).

A reset at once (the array face) writes over what an env keeps: its buffers, its info. So what belongs to the
end of an episode is pickled before it, or copied by its writer.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envmgr.envs.flags import flag
from envmgr.errors import SpaceMismatchError
from envmgr.infos import as_dict, says_something
from envmgr.memory.arena import Arena
from envmgr.memory.rows import RowWriter
from envmgr.words import brief
from envmgr.workers.contract import Extra, Failure, Status
from envmgr.workers.misreturned import misreturned
from envmgr.workers.rewards import RewardWriter

_PICKLE = pickle.HIGHEST_PROTOCOL
_MESSAGE, _INFO, _FAILED = int(Status.MESSAGE), int(Status.INFO), int(Status.FAILED)
_FINAL, _RESET_FAILED = int(Status.FINAL), int(Status.RESET_FAILED)
_Side = list[Any] | None
_FLAGS = frozenset({bool, np.bool_, int})


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
            te = flag(te, "terminated")
        if tr.__class__ not in _FLAGS:
            tr = flag(tr, "truncated")
        if auto and (te or tr):
            return self._finish(i, obs, r, te, tr, info)
        # The observation after them: where they are refused, or end the worker, the last good one stands.
        extra = self._write_reward(i, r, None)
        data: bytes | None = None
        if info.__class__ is not dict or info:
            data, extra = self._packed(i, info, "info", extra)
        side = self._writer.write(i, obs)
        if side is not None:
            extra = extra or Extra()
            extra.side = side
        self._terminated[i] = te
        self._truncated[i] = tr
        bits = 0
        if data is not None:
            bits, extra = self._put_info(i, data, extra)
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
        return self._failure_of(misreturned(error) or error, "step")

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
