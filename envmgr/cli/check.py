"""``envmgr check``: what would go wrong with an env, in plain words, before a run finds out."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from envmgr.cli.checking.finding import Finding, Level
from envmgr.cli.checking.report import Report
from envmgr.cli.checking.run import check_env
from envmgr.cli.checking.target import factory_of

_STYLES = {
    Level.OK: "green",
    Level.SKIPPED: "dim",
    Level.NOTE: "cyan",
    Level.WARNING: "yellow",
    Level.ERROR: "bold red",
}


def check(target: str, console: Console, *, steps: int, timeout: float, file: Path | None = None) -> int:
    """Checks an env and says what was found.

    Args:
        target: Which one; see ``factory_of``.
        console: Where to write to.
        steps: How many random steps are looked at.
        timeout: Seconds that one call of the env may take.
        file: Where to write the report as JSON; None for nowhere.

    Returns:
        The exit code: 0 if nothing would break, 1 otherwise.

    Raises:
        TargetError: There is no such env.
    """
    factory = factory_of(target)
    report = check_env(factory, steps=steps, timeout=timeout, name=target)
    show(report, console)
    if file is not None:
        file.write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")
    return 0 if report.ok else 1


def show(report: Report, console: Console) -> None:
    """Writes it for people."""
    table = Table(box=None, show_header=False, pad_edge=False, title=report.facts.name, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for finding in report.checks:
        mark = Text(finding.level.value, style=_STYLES[finding.level])
        table.add_row(mark, finding.check, _text(finding))
    console.print(table)
    console.print()
    errors, others = len(report.errors), len(report.findings) - len(report.errors)
    if errors:
        console.print(
            f"{_count(errors, 'error')}, {_count(others, 'remark')}: this would break.", style="bold red"
        )
    elif others:
        console.print(f"Nothing would break; {_count(others, 'remark')} above.", style="yellow")
    else:
        console.print("Nothing found: this env keeps its word.", style="green")


def _text(finding: Finding) -> Text:
    text = Text(finding.what)
    if finding.place:
        text.append(f"\nat {finding.place}", style="bold")
    if finding.do:
        text.append(f"\n{finding.do}", style="dim")
    return text


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
