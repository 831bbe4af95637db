"""What an env returned, into its rows; what does not fit them, into a message.

The careful half of a step: ends of episodes, infos, rewards that are no plain float, side values. The
uneventful majority of steps never comes here (see ``stepper``).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from envmgr.errors import SpaceMismatchError
from envmgr.infos import as_dict
from envmgr.memory.arena import Arena
from envmgr.memory.rows import RowWriter
from envmgr.workers.contract import Extra, Failure, Status

_PICKLE = pickle.HIGHEST_PROTOCOL
_MESSAGE, _INFO = int(Status.MESSAGE), int(Status.INFO)
_FINAL, _RESET_FAILED = int(Status.FINAL), int(Status.RESET_FAILED)
_Side = list[Any] | None


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
        self._arena = arena
        self._writer = writer
        self._final_writer = RowWriter(plan.obs, arena.final)
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
            SpaceMismatchError: Something of it does not fit its space.
        """
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
        if info:
            bits, extra = self.write_info(i, info, extra)
        return (bits if extra is None else bits | _MESSAGE), extra

    def _finish(self, i: int, obs: Any, r: Any, te: Any, tr: Any, info: Any) -> tuple[int, Extra | None]:
        """The end of an episode with an immediate reset: the last observation goes to the final rows."""
        side = self._final_writer.write(i, obs)
        extra = self._write_reward(i, r, None if side is None else Extra(final_side=side))
        self._terminated[i] = te
        self._truncated[i] = tr
        bits = _FINAL
        info = dict(as_dict(info))  # the env may keep its own
        try:
            first_info, first_side = self._reset(i)
        except BaseException as error:  # the step was good: say both
            extra = extra or Extra()
            extra.failure = self._failure_of(error, "reset")
            bits |= _RESET_FAILED
        else:
            if first_info:
                info["reset_info"] = first_info
            if first_side is not None:
                extra = extra or Extra()
                extra.side = first_side
        if info:
            info_bits, extra = self.write_info(i, info, extra)
            bits |= info_bits
        return (bits if extra is None else bits | _MESSAGE), extra

    def _write_reward(self, i: int, r: Any, extra: Extra | None) -> Extra | None:
        """A reward that is not a plain float; one that does not fit its row goes as a message."""
        plan = self._arena.plan
        number = isinstance(r, (bool, int, float)) or (isinstance(r, np.generic) and r.dtype.kind in "biuf")
        if number and plan.reward_shape == ():
            self._arena.reward[i] = r
            return extra
        array = _to_numpy(r)
        if array.dtype == object or array.dtype.kind not in "bifu":
            raise SpaceMismatchError(
                f"the reward is {type(r).__name__} ({_short(r)}); expected a number, or an array of shape "
                f"{plan.reward_shape}"
            )
        if array.shape == plan.reward_shape:
            self._arena.reward[i] = array
            return extra
        extra = extra or Extra()
        extra.reward, extra.has_reward = np.array(array), True
        return extra

    def write_info(self, i: int, info: Any, extra: Extra | None) -> tuple[int, Extra | None]:
        """Writes an info: a small one into its row, a larger one into the message."""
        try:
            data = pickle.dumps(info, _PICKLE)
        except Exception as error:  # lambdas, locks, sockets, whatever users put there
            if self._info_errors == "raise":
                keys = self._bad_keys(info)
                raise SpaceMismatchError(
                    f"the info of env {i} does not pickle (key {keys}: {error}); "
                    "leave it out, or set info_errors='drop'"
                ) from error
            extra = extra or Extra()
            data = self._without_bad(i, info, error, extra)
        if len(data) <= self._info_bytes:
            self._info_len[i] = len(data)
            at = i * self._info_bytes
            self._info[at : at + len(data)] = data
            return _INFO, extra
        extra = extra or Extra()
        extra.info = data
        return 0, extra

    @staticmethod
    def _bad_keys(info: Any) -> str:
        bad = []
        for key, value in info.items() if isinstance(info, dict) else []:
            try:
                pickle.dumps(value, _PICKLE)
            except Exception:  # asking is the only way to know
                bad.append(repr(key))
        return ", ".join(bad) or "(the whole)"

    def _without_bad(self, i: int, info: Any, error: Exception, extra: Extra) -> bytes:
        kept: dict[Any, Any] = {}
        for key, value in info.items() if isinstance(info, dict) else []:
            try:
                pickle.dumps((key, value), _PICKLE)
            except Exception:  # asking is the only way to know
                if (i, str(key)) not in self._warned:
                    self._warned.add((i, str(key)))
                    extra.warnings.append(f"env {i}: info[{key!r}] does not pickle ({error}) and is dropped")
            else:
                kept[key] = value
        return pickle.dumps(kept, _PICKLE)


def _to_numpy(value: Any) -> np.ndarray[Any, np.dtype[Any]]:
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value = value.detach().cpu().numpy()
    return np.asarray(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else text[:77] + "..."
