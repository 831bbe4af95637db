"""``envmgr doctor``: what this machine has, and what of it will stand in the way.

Nothing heavy is imported: versions come from the packages' metadata.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from envmgr.cli.advice import advice
from envmgr.cli.facts import Facts, gather

_GYM = "unmaintained; with numpy 2 it needs gym.make(..., disable_env_checker=True)"


def as_dict() -> dict[str, Any]:
    """Everything as JSON can hold it: bytes as numbers, None for what is unknown or unlimited."""
    facts = gather()
    return {**facts.as_dict(), "advice": advice(facts)}


def show(console: Console) -> None:
    """Writes it for people."""
    facts = gather()
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _lines(facts):
        table.add_row(name, text)
    console.print(table)
    console.print()
    found = advice(facts)
    for line in found:
        console.print(f"! {line}", style="yellow", markup=False, highlight=False)
    if not found:
        console.print("Nothing here stands in the way.", style="green")


def _lines(facts: Facts) -> list[tuple[str, str]]:
    cores = f"{facts.cores}, of which this process may use {facts.usable_cores}"
    if facts.cpu_quota is not None:
        cores += f", and its container {facts.cpu_quota:g} at a time"
    memory = f"{_size(facts.memory_free)} free of {_size(facts.memory_total)}"
    if facts.memory_limit is not None:
        memory += f"; its container may use {_size(facts.memory_limit)}, and uses {_size(facts.memory_used)}"
    shm = "none" if facts.shm_total is None else f"{_size(facts.shm_free)} free of {_size(facts.shm_total)}"
    lines = [
        ("platform", facts.platform),
        ("cores", cores),
        ("start methods", ", ".join(facts.start_methods)),
        ("memory", memory),
        ("/dev/shm", shm),
        ("open files", f"{_count(facts.fd_soft)} (may be raised to {_count(facts.fd_hard)})"),
        ("processes", f"{_count(facts.process_limit)} at most"),
        ("BLAS threads", ", ".join(f"{k}={v}" for k, v in facts.blas.items()) or "not set: one per worker"),
    ]
    lines += [(name, version or "not installed") for name, version in facts.versions.items()]
    return [
        (name, f"{text} ({_GYM})" if name == "gym" and _gym_trips(facts) else text) for name, text in lines
    ]


def _gym_trips(facts: Facts) -> bool:
    numpy = facts.versions.get("numpy")
    return facts.versions.get("gym") is not None and numpy is not None and int(numpy.split(".")[0]) >= 2


def _count(value: int | None) -> str:
    return "no limit" if value is None else f"{value:,}"


def _size(value: int | None) -> str:
    """Bytes for people: ``1.5 GB``."""
    if value is None:
        return "unknown"
    size = float(value)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
