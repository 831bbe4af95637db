"""The states of an env and the one table of legal moves between them.

A move outside the table is a bug in envmgr, never a user's mistake, and raises with the story of
the env that made it.
"""

from __future__ import annotations

import enum

from envmgr.errors import EnvManagerError


class EnvState(enum.IntEnum):
    """Where an env is in its life. The numbers are fixed; older code compares them."""

    VOID = 0
    INIT = 1
    RUN = 2
    RESET = 3
    DONE = 4
    ERROR = 5
    NEED_RESET = 6


class EnvRetryType(enum.StrEnum):
    """What a failed reset is tried again on: the same env (RESET) or a new one (RENEW)."""

    RESET = "reset"
    RENEW = "renew"


_S = EnvState

LEGAL_MOVES: dict[EnvState, frozenset[EnvState]] = {
    _S.VOID: frozenset({_S.INIT}),
    _S.INIT: frozenset({_S.RESET, _S.ERROR, _S.VOID}),
    _S.RESET: frozenset({_S.RUN, _S.ERROR, _S.VOID}),
    _S.RUN: frozenset({_S.RESET, _S.NEED_RESET, _S.DONE, _S.ERROR, _S.VOID}),
    _S.DONE: frozenset({_S.RESET, _S.VOID, _S.ERROR}),
    _S.NEED_RESET: frozenset({_S.RESET, _S.VOID, _S.ERROR}),
    _S.ERROR: frozenset({_S.RESET, _S.INIT, _S.VOID}),
}


class IllegalMoveError(EnvManagerError):
    """A move outside the table: a bug in envmgr. Please report it with this text."""


def check_move(env_id: int, old: EnvState, new: EnvState, story: str = "") -> None:
    """Raises IllegalMoveError when ``old -> new`` is not in the table.

    Args:
        env_id: The env that moves.
        old: The state that it is in.
        new: The state that it would go to.
        story: What happened to this env lately, for the message.
    """
    if new not in LEGAL_MOVES[old]:
        raise IllegalMoveError(
            f"env {env_id} would go from {old.name} to {new.name}, which no rule allows; "
            f"this is a bug in envmgr. {story}",
            env_id=env_id,
        )
