"""What is measured: one entry per table, in the order in which ``bench.py`` takes them.

``BUDGETED`` is what envmgr's promises are held against (``make bench``), ``TABLES`` is all there is
(``make bench-all``), ``QUICK`` a minute's worth. ``throughput.py --preset NAME`` takes a single table.
"""

from __future__ import annotations

from typing import NamedTuple

from budgets import ONE_PER_ENV, PUFFER
from roster import REFERENCE, SIZED

TWO = ("envmgr, 2 workers, arrays", "floor, 2 workers")
_BELLS = "floor of bells, 2 workers"


class Table(NamedTuple):
    """One table of speeds.

    Attributes:
        title: What it says above it.
        cells: Scenarios, and the counts of envs that each is measured with.
        only: Contenders whose name begins with one of these; empty for all that can.
        among: The same for single cells, (scenario, envs), where it is something else there.
        reference: The contender that others are given as multiples of.
        together: Whether the counts of envs are compared with each other, and so are taken in turn too.
        rounds: Rounds at the most; None for as many as are asked for.
    """

    title: str
    cells: dict[str, tuple[int, ...]]
    only: tuple[str, ...] = ()
    reference: str = REFERENCE
    together: bool = False
    rounds: int | None = None
    among: dict[tuple[str, int], tuple[str, ...]] = {}  # noqa: RUF012 - nobody writes to it

    def taking_part(self, scenario: str, envs: int) -> tuple[str, ...]:
        """Who is measured in a cell, as ``only`` says it."""
        return self.among.get((scenario, envs), self.only)


TABLES = {
    "throughput": Table(
        "Steps of single envs per second",
        {"null": (8, 64), "cartpole": (8, 64), "pix": (8, 32), "dict": (8, 32)},
    ),
    "sleepy": Table("Envs that sleep 0 to 2 ms: steps of single envs per second", {"sleepy": (8, 32)}),
    "infos": Table("An info dict in every step: steps of single envs per second", {"infos": (8,)}),
    "growth": Table(
        "More envs on two workers: steps of single envs per second",
        {"null": (8, 32, 128, 512, 1024)},
        TWO,
        "floor, 2 workers",
        together=True,
    ),
    "many": Table(
        "10,000 envs on two workers: steps of single envs per second",
        {"null": (1024, 10_000), "infos": (1024,)},
        TWO,
        "floor, 2 workers",
        rounds=3,
    ),
    "processes": Table(
        "256 processes with an env each: steps of single envs per second",
        {"null": (256,)},
        ("envmgr", "floor", REFERENCE),
        rounds=3,
    ),
    "bytes": Table(
        "16 bytes to a megabyte of observation: steps of single envs per second",
        dict.fromkeys(SIZED, (8,)),
        (*TWO, "memcpy", REFERENCE),
        rounds=3,
    ),
}

_HALF = "envmgr async, 2 workers, half in flight"

BUDGETED = {
    "throughput": Table(
        TABLES["throughput"].title,
        {"null": (8, 64), "cartpole": (64,), "pix": (32,)},
        among={
            ("null", 8): ("envmgr subprocess", *TWO, "floor", *ONE_PER_ENV),
            ("null", 64): ("envmgr subprocess", *TWO, _BELLS, REFERENCE, *PUFFER),
            ("cartpole", 64): (*TWO, _BELLS, _HALF, REFERENCE, "plain loop"),
            ("pix", 32): (*TWO, _BELLS, REFERENCE, "memcpy"),
        },
    ),
    "sleepy": TABLES["sleepy"]._replace(only=("envmgr async, half in flight", REFERENCE, "plain loop")),
    "growth": TABLES["growth"],
}
"""What the budgets name, and little else, so that it can be run often."""

QUICK = {
    "throughput": TABLES["throughput"]._replace(
        cells={"null": (8, 64), "pix": (32,)},
        only=("envmgr subprocess", *TWO, "memcpy", REFERENCE),
    ),
    "sleepy": TABLES["sleepy"]._replace(
        cells={"sleepy": (8,)}, only=("envmgr async, half in flight", REFERENCE)
    ),
    "growth": TABLES["growth"]._replace(cells={"null": (8, 1024)}, only=TWO[:1], reference=TWO[0]),
}
"""A minute's worth of it: whether all works, and where about one is."""
