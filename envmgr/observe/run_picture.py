"""The picture of a run: returns over episodes, steps per second over time, where each env's time went.

Drawn straight onto an Agg canvas: no window system is asked for, and the backend that the caller may
have chosen for pyplot is left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from envmgr.observe.files import replacing
from envmgr.observe.run_report import SHARES, env_times

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from envmgr.observe.run_report import RunRecord

# Distinguishable without colour vision too (Okabe and Ito).
_BLUE, _ORANGE, _GREEN, _GREY = "#0072b2", "#e69f00", "#009e73", "#c9ced4"
_MOST_BINS = 60
_MEAN_OVER = 50


def draw(record: RunRecord, path: Path) -> None:
    """Draws a run into a PNG file, which is replaced as a whole or not at all."""
    figure = Figure(figsize=(15, 4.4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    returns, speed, shares = figure.subplots(1, 3)
    _returns(returns, record)
    _speed(speed, record)
    _shares(shares, record)
    for axes in (returns, speed, shares):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(_title(record), fontsize=11, x=0.01, ha="left")
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def _title(record: RunRecord) -> str:
    parts = [record.name]
    kind = record.config.get("manager", {}).get("type")
    if kind:
        parts.append(f"{len(record.stats) or record.config.get('env_num')} envs in {kind}")
    parts.append(f"{len(record.episodes):,} episodes, {record.steps:,} steps")
    parts.append(f"{record.steps_per_second:,.0f} steps/s")
    if record.outcome != "complete":
        parts.append(record.outcome)
    return "   ·   ".join(parts)


def _returns(axes: Axes, record: RunRecord) -> None:
    axes.set_title("Return of each episode", fontsize=10, loc="left")
    axes.set_xlabel("episode, in the order of finishing")
    axes.set_ylabel("return")
    values = np.array([e.total for e in record.episodes])
    if not len(values):
        _nothing(axes)
        return
    order = np.arange(1, len(values) + 1)
    abnormal = np.array([e.abnormal for e in record.episodes])
    axes.scatter(order[~abnormal], values[~abnormal], s=9, color=_BLUE, alpha=0.45, linewidths=0)
    if abnormal.any():
        axes.scatter(order[abnormal], values[abnormal], s=18, color="black", marker="x", label="env failed")
    over = min(_MEAN_OVER, len(values))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    counts = np.minimum(order, over)
    mean = (sums[order] - sums[order - counts]) / counts
    axes.plot(order, mean, color=_ORANGE, linewidth=2, label=f"mean of the last {over}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=9, loc="best")


def _speed(axes: Axes, record: RunRecord) -> None:
    axes.set_title("Steps of all envs per second", fontsize=10, loc="left")
    axes.set_xlabel("seconds since the start of collecting")
    axes.set_ylabel("steps/s")
    edges, speeds = binned_speed(record)
    if not len(speeds):
        _nothing(axes)
        return
    axes.stairs(speeds, edges, color=_BLUE, fill=True, alpha=0.25)
    axes.stairs(speeds, edges, color=_BLUE, linewidth=1.5, baseline=None)
    mean = record.steps_per_second
    axes.axhline(mean, color=_ORANGE, linewidth=2, label=f"overall: {mean:,.0f}")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, edges[-1])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.legend(frameon=False, fontsize=9, loc="lower right")


def binned_speed(record: RunRecord) -> tuple[np.ndarray, np.ndarray]:
    """Steps per second in equal stretches of time: their edges in seconds, and the speed in each."""
    samples = [(0.0, 0), *record.samples, (record.wall_time, record.steps)]
    times = np.array([t for t, _ in samples], np.float64)
    steps = np.array([n for _, n in samples], np.float64)
    if times[-1] <= 0 or steps[-1] <= 0:
        return np.zeros(0), np.zeros(0)
    bins = max(1, min(_MOST_BINS, (len(samples) - 1) // 3))
    edges = np.linspace(0.0, times[-1], bins + 1)
    # Between two samples the steps are taken to come evenly.
    return edges, np.diff(np.interp(edges, times, steps)) / np.diff(edges)


def _shares(axes: Axes, record: RunRecord) -> None:
    axes.set_title("Where each env's time went", fontsize=10, loc="left")
    axes.set_xlabel("env_id")
    axes.set_ylabel("share of its time")
    by_env = env_times(record)
    ids = list(by_env)
    times = np.array([[of[name] for name in SHARES] for of in by_env.values()]).reshape(-1, len(SHARES))
    sums = times.sum(axis=1, keepdims=True)
    if not sums.any():
        _nothing(axes)
        return
    parts = np.divide(times, sums, out=np.zeros_like(times), where=sums > 0)
    bottom = np.zeros(len(ids))
    labels = ("in step", "in reset", "waiting for an action")
    for k, (label, color) in enumerate(zip(labels, (_GREEN, _ORANGE, _GREY), strict=True)):
        axes.bar(ids, parts[:, k], bottom=bottom, width=0.8, color=color, label=label)
        bottom += parts[:, k]
    axes.set_ylim(0, 1.12)  # room for the legend above the bars, where it hides none of them
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(
        frameon=False, fontsize=9, loc="upper left", ncols=3, borderpad=0, columnspacing=1.2, handlelength=1.2
    )


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "nothing to show", ha="center", va="center", transform=axes.transAxes, color="grey")
