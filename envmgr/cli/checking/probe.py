"""The env that stands in for the user's: each of its steps carries the examination on for a while.

So a check runs through an ordinary manager and an ordinary worker: a call that hangs meets the step timeout,
a process that dies is noticed, and what was seen until then came with the infos of the steps before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import Any

from envmgr.cli.checking.blackbox import BlackBox
from envmgr.cli.checking.examination import Examination
from envmgr.envs.spaces import Discrete

FACTS, OVER = "facts", "over"


@dataclasses.dataclass(frozen=True)
class ProbeFactory:
    """Builds a probe, in the worker.

    Args:
        env_fn: What builds the user's env.
        steps: How many steps are looked at.
        budget: Seconds that each part of the examination may take; a slow env is looked at for fewer steps.
        turn: Seconds after which a step of the probe comes back, as soon as the env's call does.
        box: Path of the black box.
        trace: Whether it notes every line.
    """

    env_fn: Callable[[], Any]
    steps: int
    budget: float
    turn: float
    box: str
    trace: bool = False

    def __call__(self) -> Probe:
        """Builds it."""
        return Probe(self)


class Probe:
    """See the module."""

    def __init__(self, plan: ProbeFactory) -> None:
        self.observation_space = self.action_space = Discrete(1)
        self._turn = plan.turn
        self._box = BlackBox(plan.box)
        self._examination = Examination(plan.env_fn, self._box, steps=plan.steps, budget=plan.budget)
        self._going = self._examination.run()
        if plan.trace:
            self._box.trace()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Does nothing: the examination resets the user's env itself."""
        return 0, {}

    def step(self, action: Any) -> Any:
        """Goes on for a turn; the info has what was seen so far, and whether that is all."""
        end = time.monotonic() + self._turn
        over = True
        for tell in self._going:
            if tell or time.monotonic() >= end:
                over = False
                break
        return 0, 0.0, False, False, {FACTS: self._examination.facts, OVER: over}

    def close(self) -> None:
        """Closes the user's env, if that has not been done."""
        with contextlib.suppress(Exception):  # what it raises here is nobody's question any more
            self._examination.abandon()
