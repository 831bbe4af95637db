"""``check_env``: one env looked at from all sides, in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envmgr.cli.checking.collect import collect
from envmgr.cli.checking.cost import cost_of_a_step
from envmgr.cli.checking.finding import Level
from envmgr.cli.checking.findings import judge
from envmgr.cli.checking.report import Report, make_report
from envmgr.cli.checking.target import TargetError


def check_env(
    env_fn: Callable[[], Any],
    *,
    steps: int = 300,
    timeout: float = 20.0,
    name: str | None = None,
    measure: bool = True,
    context: str | None = None,
) -> Report:
    """Looks whether an env keeps its own word, and what would go wrong with it in a run.

    The env is built in a worker process, stepped with random actions, reset, seeded, closed. Whatever it does
    there (it raises, hangs, ends its process) is a finding, not an error of this function.

    Args:
        env_fn: What builds the env.
        steps: How many random steps are looked at.
        timeout: Seconds that one call of the env may take before it counts as hanging.
        name: What to call the env in the report.
        measure: Whether to measure, too, what a step through a worker costs on this machine (half a second).
        context: Start method of the worker; None for the default of managers.

    Returns:
        The report; ``report.ok`` is whether nothing would break, ``report.findings`` what should be known.

    Raises:
        TargetError: The env_fn names a module or a callable that does not exist.
    """
    name = name or getattr(env_fn, "name", None) or getattr(env_fn, "__name__", None) or "env"
    facts = collect(env_fn, steps=steps, timeout=timeout, name=name, context=context)
    if facts.missing:
        raise TargetError(facts.missing)
    sound = not any(finding.level is Level.ERROR for finding in judge(facts))
    return make_report(facts, cost_of_a_step(facts.obs_bytes) if measure and sound else None)
