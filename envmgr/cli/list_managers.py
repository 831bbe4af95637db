"""``envmgr list``: the env managers that a config can name."""

from __future__ import annotations

import inspect
from typing import Any

from rich.console import Console
from rich.table import Table

from envmgr.registry import ENV_MANAGER_REGISTRY


def rows() -> list[dict[str, str]]:
    """Each manager: its name, the class, and the first line of what that says of itself."""
    found = []
    for name in ENV_MANAGER_REGISTRY:
        cls = ENV_MANAGER_REGISTRY.get(name)
        found.append(
            {"type": name, "class": f"{cls.__module__}.{cls.__qualname__}", "about": _first_line(cls)}
        )
    return found


def show(console: Console) -> None:
    """Writes the table."""
    table = Table(box=None, pad_edge=False)
    table.add_column("type", style="bold", no_wrap=True)
    table.add_column("what it is")
    for row in rows():
        table.add_row(row["type"], row["about"])
    console.print(table)
    for name, why in sorted(ENV_MANAGER_REGISTRY.failures.items()):
        console.print(f"note: {name!r} could not be loaded: {why}", style="yellow", markup=False)


def _first_line(cls: Any) -> str:
    text = inspect.getdoc(cls) or ""
    return text.partition("\n")[0].strip().rstrip(".")
