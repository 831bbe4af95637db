"""``Fault``: which failure, and when. Plain data that pickles; ``FaultyEnv`` acts on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Container

from envmgr.testing.faults.kinds import KINDS

WHERE = ("build", "reset", "step", "close")

Number = int | Container[int] | None
"""One number, or anything that contains numbers (a range, a set), or None for all."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One way in which a ``FaultyEnv`` fails.

    It is due in a call when all that is set here holds; what is left at None holds always. So
    ``Fault("raise")`` fails in each step, ``Fault("raise", at_step=3)`` in the third of each episode.

    Args:
        kind: A name out of ``KINDS``.
        at_step: In which step of an episode; 1 is the first. A step that failed counts as not taken.
        in_episode: In which episode of an instance; 0 is the first. Where ``where='reset'``, the episode
            that the reset would begin.
        in_instance: In which instance of an env; 0 is the first, 1 the one after a renewal. Needs a ledger.
        probability: How likely in a call for which the rest holds, in [0, 1]; drawn from the FaultyEnv's own
            generator.
        where: ``'step'``, ``'reset'``, ``'build'`` (the env_fn) or ``'close'``.
        times: How often at most, over all envs and instances that share a ledger; None for no end. Needs a
            ledger.
        amount: Megabytes, descriptors or seconds, for the kinds that have an amount; None for the default in
            ``KINDS``.

    Raises:
        ValueError: A kind or a place that does not exist, or a number out of its range.
    """

    kind: str
    at_step: Number = None
    in_episode: Number = None
    in_instance: Number = None
    probability: float = 1.0
    where: str = "step"
    times: int | None = None
    amount: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"there is no kind of fault {self.kind!r}; there are {', '.join(KINDS)}")
        if self.where not in WHERE:
            raise ValueError(f"where is one of {', '.join(WHERE)}, not {self.where!r}")
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"probability is within [0, 1], not {self.probability!r}")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times is at least 1, or None for no end; not {self.times!r}")
        if self.amount is not None and (KINDS[self.kind].amount is None or self.amount < 0):
            raise ValueError(
                f"{self.kind!r} has no amount"
                if KINDS[self.kind].amount is None
                else f"amount is at least 0, not {self.amount!r}"
            )
        if KINDS[self.kind].spoil is not None and self.where not in ("step", "reset"):
            raise ValueError(f"{self.kind!r} is about what a step or a reset returns, not {self.where!r}")
        if self.kind == "abnormal" and self.where != "step":
            raise ValueError("'abnormal' is said in the info of a step")

    @property
    def key(self) -> str:
        """What its lines in a ledger are counted by: faults with equal settings are one and the same."""
        fields = (self.kind, self.where, self.at_step, self.in_episode, self.in_instance, self.probability)
        return ":".join("" if field is None else str(field).replace(" ", "") for field in fields)

    def matches(self, where: str, step: int, episode: int, instance: int) -> bool:
        """Whether it may happen in this call; what is drawn or counted is not asked here."""
        return (
            where == self.where
            and _holds(self.at_step, step)
            and _holds(self.in_episode, episode)
            and _holds(self.in_instance, instance)
        )


def _holds(wanted: Number, number: int) -> bool:
    if wanted is None:
        return True
    return number == wanted if isinstance(wanted, int) else number in wanted
