"""What a check found, as one object: for the screen, for JSON, for a test of the user's own."""

from __future__ import annotations

import dataclasses
from typing import Any

from envmgr.cli.checking.facts import Facts, Times
from envmgr.cli.checking.finding import Finding, Level
from envmgr.cli.checking.findings import judge
from envmgr.cli.checking.layouts import Cost, Verdict, choose, config_line, estimate, says

_UNEVEN = 5
"""Where one step in twenty takes so many times the usual, a sync manager mostly waits for the slowest."""
_MATTERS = 1e-3  # seconds: below that, waiting for the slowest costs less than async does


@dataclasses.dataclass(frozen=True)
class Report:
    """What was found.

    Attributes:
        facts: What was seen.
        checks: What each check says, those that are fine included.
        verdict: Whether subprocesses pay; None where it was not measured.
        config: The manager's config that is proposed; empty where nothing can be.
    """

    facts: Facts
    checks: list[Finding]
    verdict: Verdict | None
    config: dict[str, Any]

    @property
    def findings(self) -> list[Finding]:
        """What somebody should know: errors first, then warnings, then notes."""
        order = (Level.ERROR, Level.WARNING, Level.NOTE)
        return [finding for level in order for finding in self.checks if finding.level is level]

    @property
    def errors(self) -> list[Finding]:
        """What breaks a run, or its numbers."""
        return [finding for finding in self.checks if finding.level is Level.ERROR]

    @property
    def ok(self) -> bool:
        """Whether nothing would break."""
        return not self.errors

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        facts = self.facts
        seen = dataclasses.asdict(facts)
        for name, times in (("step_times", facts.step_times), ("reset_times", facts.reset_times)):
            of = Times.of(times)
            seen[name] = None if of is None else {**of.as_dict(), "count": len(times)}
        return {
            "env": facts.name,
            "ok": self.ok,
            "checks": [{**dataclasses.asdict(f), "level": f.level.value} for f in self.checks],
            "processes": None if self.verdict is None else self.verdict.text,
            "config": self.config,
            "facts": seen,
        }

    def __str__(self) -> str:
        lines = [
            f"{f.level}: {f.check}: {f.what}" + (f" [{f.place}]" if f.place else "") for f in self.findings
        ]
        return "\n".join(lines) or "nothing found"


def make_report(facts: Facts, cost: Cost | None) -> Report:
    """Judges.

    Args:
        facts: What was seen.
        cost: What a step through a worker costs on this machine; None: not said whether that pays.
    """
    checks = judge(facts)
    step = Times.of(facts.step_times)
    if step is None or cost is None:
        return Report(facts, checks, None, {})
    layouts = estimate(step.mean, cost)
    verdict = choose(layouts)
    checks.append(Finding(Level.OK, "processes", says(step.mean, cost, verdict)))
    config = _config(facts, verdict, cost)
    checks.append(Finding(Level.OK, "config", f"manager={config_line(config)}"))
    return Report(facts, checks, verdict, config)


def _config(facts: Facts, verdict: Verdict, cost: Cost) -> dict[str, Any]:
    config = dict(verdict.best.config)
    step, reset = Times.of(facts.step_times), Times.of(facts.reset_times)
    if verdict.in_process or step is None or reset is None:
        return config
    lengths = facts.episode_lengths or [facts.steps]
    resets_per_step = cost.envs / (sum(lengths) / len(lengths))  # of all envs: each holds up the others
    held_up = reset.mean > _MATTERS and reset.mean * resets_per_step > step.mean
    uneven = step.p95 > max(_UNEVEN * step.median, _MATTERS)
    if held_up or uneven:
        config = {"type": "async_subprocess", "wait_num": max(1, cost.envs // 2)}
    if facts.globals_used and "num_workers" in config:
        config["isolate_rng"] = True
    return config
