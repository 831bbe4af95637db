"""``envmgr run CONFIG``: collects episodes, shows how it goes, and leaves a report behind."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from envmgr.cli.collecting import Collection
from envmgr.cli.plan import Options, Plan, make_plan
from envmgr.cli.screens import Bar, Lines, Screen
from envmgr.errors import EnvManagerError
from envmgr.managers.create import create_env_manager
from envmgr.observe.run_report import Outcome, RunRecord, summary, time_shares, write


class Stopped(KeyboardInterrupt):
    """SIGTERM: ends a run as Ctrl-C does."""


@dataclasses.dataclass
class _Ending:
    """How a run ended."""

    outcome: Outcome = "complete"
    error: BaseException | None = None

    @property
    def exit_code(self) -> int:
        if isinstance(self.error, KeyboardInterrupt):
            return 128 + (signal.SIGTERM if isinstance(self.error, Stopped) else signal.SIGINT)
        return 0 if self.error is None else 1


def run(config: str, options: Options, console: Console, *, progress: bool = True) -> int:
    """Does a run, from the config file to the files that it leaves behind.

    Args:
        config: The config file.
        options: What the command line says.
        console: Where to write to.
        progress: Whether to show how it goes.

    Returns:
        The exit code: 0, or 130 and 143 after SIGINT and SIGTERM.

    Raises:
        EnvManagerError: If something went wrong. What was collected until then has been saved.
    """
    plan = make_plan(config, options)
    for remark in plan.remarks:
        console.print(f"note: {remark}", style="yellow", markup=False, highlight=False)
    console.print(
        f"{plan.name}: {plan.n_episode:,} episodes of {plan.factory.name}, {plan.env_num} envs in "
        f"{plan.manager['type']}",
        markup=False,
        highlight=False,
    )
    record, ending = _collect(plan, console, progress)
    if ending.outcome == "interrupted":
        console.print(
            "Interrupted." if record.steps else "Interrupted before the first step; nothing to save."
        )
    if record.steps:
        _report(plan, record, console)
    if ending.outcome == "failed" and ending.error is not None:
        raise ending.error
    return ending.exit_code


def _collect(plan: Plan, console: Console, progress: bool) -> tuple[RunRecord, _Ending]:
    """Launches, collects and closes. The workers are gone when this returns, however it went."""
    collection = Collection(plan.quotas, keep_steps=plan.save_rollouts)
    ending = _Ending()
    stats: Mapping[int, Mapping[str, float]] = {}
    started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    begin = ready = time.perf_counter()
    manager: Any = create_env_manager(plan.manager, [plan.factory] * plan.env_num)
    try:
        try:
            if plan.seed is not None:
                manager.seed(plan.seed)
            manager.launch()
            policy = plan.policy(manager.action_space, manager.observation_space, plan.seed)
            ready = time.perf_counter()
            with _sigterm_as_interrupt(), _screen(plan, console, progress) as screen:
                collection.run(manager, policy, screen)
        finally:
            # A manager that failed may have closed itself, and have nothing to say any more.
            with contextlib.suppress(EnvManagerError):
                stats = manager.stats()
            manager.close()
    except KeyboardInterrupt as error:
        ending = _Ending("interrupted", error)
    except EnvManagerError as error:
        ending = _Ending("failed", error)
    record = RunRecord(
        name=plan.name,
        config=plan.described(),
        wanted=plan.n_episode,
        episodes=collection.recorder.episodes,
        steps=collection.recorder.steps,
        unfinished=collection.recorder.unfinished,
        samples=collection.samples,
        wall_time=collection.elapsed,
        start_time=ready - begin,
        stats=stats,
        outcome=ending.outcome,
        error=str(ending.error) if ending.outcome == "failed" else None,
        started=started,
    )
    return record, ending


def _screen(plan: Plan, console: Console, progress: bool) -> Screen:
    if not progress:
        return Screen()
    if console.is_terminal and not console.is_dumb_terminal:
        return Bar(console, plan.name, plan.n_episode)
    return Lines(console)


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Lets SIGTERM, which schedulers send before they kill, end the run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _report(plan: Plan, record: RunRecord, console: Console) -> None:
    # Not as the table's title, which would be broken to the width of the table.
    console.print(f"{record.name} ({record.outcome})", style="italic", markup=False, highlight=False)
    console.print(_table(record))
    written = write(record, plan.directory)
    for part in written.left_out:
        console.print(f"note: {part} has no fixed layout and is not in rollouts.npz", style="yellow")
    for path in written.files:
        # Not through the console, which would break a long path over lines.
        print(path, file=console.file)
    if record.unfinished and record.outcome != "complete":
        console.print(
            f"({record.unfinished:,} steps of episodes that were not over are counted, but not saved)",
            highlight=False,
        )
    sys.stdout.flush()


def _table(record: RunRecord) -> Table:
    numbers = summary(record)
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    episodes = f"{len(record.episodes):,}"
    if len(record.episodes) != record.wanted:
        episodes += f" of {record.wanted:,}"
    table.add_row("episodes", episodes)
    if numbers["episodes_abnormal"]:
        table.add_row("of which the env failed", f"{numbers['episodes_abnormal']:,}")
    table.add_row("steps", f"{record.steps:,}")
    table.add_row("steps/s", f"{record.steps_per_second:,.0f}")
    for name in ("mean", "median", "min", "max"):
        table.add_row(f"return, {name}", _number(numbers["return"][name]))
    table.add_row("length, mean", _number(numbers["length"]["mean"]))
    table.add_row("wall time", f"{record.wall_time:.2f} s")
    table.add_row("start", f"{record.start_time:.2f} s")
    labels = {"step": "in step", "reset": "in reset", "wait": "waiting for an action"}
    for name, share in time_shares(record).items():
        table.add_row(f"envs' time {labels[name]}", f"{share:.1%}")
    for name in ("retries", "renewals", "timeouts"):
        count = sum(int(of.get(name, 0)) for of in record.stats.values())
        if count:
            table.add_row(name, f"{count:,}")
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"
