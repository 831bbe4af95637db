"""The picture of ``envmgr bench``: a bar per layout, with what was lowest and highest. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from envmgr.cli.checking.layouts import Layout, Verdict
from envmgr.observe.files import replacing

# Distinguishable without colour vision too (Okabe and Ito).
_BEST, _OTHER, _SPREAD = "#009e73", "#c9ced4", "#44505c"


def draw(target: str, layouts: Sequence[Layout], verdict: Verdict, path: Path) -> None:
    """Draws the layouts into a PNG file, which is replaced as a whole or not at all."""
    figure = Figure(figsize=(9, 1.4 + 0.42 * len(layouts)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    names = [layout.name for layout in layouts]
    speeds = [layout.speed for layout in layouts]
    spreads = [layout.spread or (layout.speed, layout.speed) for layout in layouts]
    axes.barh(
        names,
        speeds,
        color=[_BEST if layout is verdict.best else _OTHER for layout in layouts],
        xerr=[
            [speed - low for speed, (low, _) in zip(speeds, spreads, strict=True)],
            [high - speed for speed, (_, high) in zip(speeds, spreads, strict=True)],
        ],
        ecolor=_SPREAD,
        capsize=3,
    )
    axes.invert_yaxis()
    axes.set_xlabel("steps per second, all envs together: median, lowest and highest")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{target}\n{verdict.text}", fontsize=10, loc="left", parse_math=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
