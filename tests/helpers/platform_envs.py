"""Envs that say what their process is like, and env_fns that wait for each other.

This module imports numpy, so what it finds set when it is imported was set before numpy was.
"""

from __future__ import annotations

import os

BLAS_AT_IMPORT = {
    name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
}

from tests.helpers.envs import CounterEnv  # noqa: E402
from tests.helpers.sync import Signal  # noqa: E402


class PlatformEnv(CounterEnv):
    """A ``CounterEnv`` that looks around."""

    @property
    def blas_at_import(self) -> dict[str, str | None]:
        """The variables that say how many threads a BLAS takes, as they were before numpy was imported."""
        return BLAS_AT_IMPORT

    @property
    def blas_threads(self) -> list[int]:
        """How many threads each BLAS that is loaded would take."""
        import threadpoolctl

        return [one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"]

    @property
    def cores(self) -> list[int]:
        """Where the process may run."""
        return sorted(os.sched_getaffinity(0))


class ClosingSlowlyEnv(CounterEnv):
    """Its ``close`` says that it has begun, and waits to be let through."""

    def __init__(self, env_id: int, entered: Signal, gate: Signal, log: object) -> None:
        super().__init__(env_id)
        self.told = entered, gate, log

    def close(self) -> None:
        """Waits, and writes that it is through."""
        entered, gate, log = self.told
        entered.post()
        gate.pass_through()
        log.add("through")  # type: ignore[attr-defined]


def built_together(env_id: int, arrived: Signal, gate: Signal) -> CounterEnv:
    """An env_fn that says that it was called, and waits for all the others."""
    arrived.post()
    gate.pass_through()
    return CounterEnv(env_id)
