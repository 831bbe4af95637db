"""BLAS threads: one, unless the user has said something."""

from __future__ import annotations

import os

import pytest

from envmgr.workers import hygiene


@pytest.mark.case("P01")
@pytest.mark.parametrize(
    ("said", "left_alone"),
    [
        ({}, set()),
        ({"OPENBLAS_NUM_THREADS": "4"}, {"OPENBLAS_NUM_THREADS"}),
        # OpenBLAS, MKL and numexpr go by this one where their own is missing.
        (
            {"OMP_NUM_THREADS": "4"},
            {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"},
        ),
    ],
)
def test_one_blas_thread(monkeypatch: pytest.MonkeyPatch, said: dict[str, str], left_alone: set[str]) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    kept.pop("VECLIB_MAXIMUM_THREADS", None)
    environ = {**kept, **said}
    monkeypatch.setattr(hygiene.os, "environ", environ)
    made = hygiene.one_blas_thread()
    assert set(made) == set(hygiene._BLAS_VARIABLES) - left_alone
    assert environ == {**kept, **said, **dict.fromkeys(made, "1")}
