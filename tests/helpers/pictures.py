"""Pictures in tests."""

from pathlib import Path

from envmgr.observe.run_picture import draw
from envmgr.observe.run_report import RunRecord


def draw_nothing(path: Path) -> None:
    """Draws the picture of a run in which nothing happened."""
    draw(RunRecord("nothing", {}, 0, [], 0, 0, [], 0.0, 0.0, {}, "complete"), path)
