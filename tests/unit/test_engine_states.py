"""The table of legal moves between the states of an env, and what a move outside it says."""

import itertools

import pytest

from envmgr.engine.states import LEGAL_MOVES, EnvRetryType, EnvState, IllegalMoveError, check_move
from envmgr.errors import EnvManagerError

# Written out once more, from section 4.3 of the design, so that a change of the table has to be meant.
LEGAL = {
    ("VOID", "INIT"),
    ("INIT", "RESET"), ("INIT", "ERROR"),
    ("RESET", "RUN"), ("RESET", "ERROR"),
    ("RUN", "RESET"), ("RUN", "NEED_RESET"), ("RUN", "DONE"), ("RUN", "ERROR"),
    ("DONE", "RESET"), ("DONE", "ERROR"),
    ("NEED_RESET", "RESET"), ("NEED_RESET", "ERROR"),
    ("ERROR", "RESET"), ("ERROR", "INIT"),
    *((name, "VOID") for name in ("INIT", "RESET", "RUN", "DONE", "NEED_RESET", "ERROR")),
}  # fmt: skip
ALL = list(itertools.product(EnvState, EnvState))
ILLEGAL = [(old, new) for old, new in ALL if (old.name, new.name) not in LEGAL]


def test_the_numbers_are_those_that_older_code_compares() -> None:
    assert {s.name: int(s) for s in EnvState} == {
        "VOID": 0, "INIT": 1, "RUN": 2, "RESET": 3, "DONE": 4, "ERROR": 5, "NEED_RESET": 6,
    }  # fmt: skip
    assert EnvState.DONE == 4


def test_retry_types_are_the_words_of_the_config() -> None:
    assert EnvRetryType("reset") is EnvRetryType.RESET
    assert EnvRetryType("renew") is EnvRetryType.RENEW
    assert EnvRetryType.RENEW == "renew"


def test_every_state_has_a_row_in_the_table() -> None:
    assert set(LEGAL_MOVES) == set(EnvState)
    assert all(LEGAL_MOVES.values())


@pytest.mark.parametrize(("old", "new"), sorted(LEGAL))
def test_legal_moves_pass(old: str, new: str) -> None:
    check_move(0, EnvState[old], EnvState[new])


@pytest.mark.parametrize(("old", "new"), ILLEGAL, ids=lambda s: s.name)
def test_any_other_move_raises(old: EnvState, new: EnvState) -> None:
    with pytest.raises(IllegalMoveError) as caught:
        check_move(3, old, new, "Lately: ResetDone, StepFailed")
    text = str(caught.value)
    assert "env 3" in text
    assert f"from {old.name} to {new.name}" in text
    assert "bug in envmgr" in text
    assert text.endswith("Lately: ResetDone, StepFailed")
    assert caught.value.env_id == 3


def test_the_error_is_one_of_ours() -> None:
    assert issubclass(IllegalMoveError, EnvManagerError)


def test_close_is_legal_from_everywhere_but_void() -> None:
    for state in EnvState:
        assert (EnvState.VOID in LEGAL_MOVES[state]) == (state is not EnvState.VOID)
