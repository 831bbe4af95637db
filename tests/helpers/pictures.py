"""Pictures in tests. matplotlib is imported by who draws: forks of a process that has it take longer."""

from pathlib import Path


def draw_nothing(path: Path) -> None:
    """Draws the picture of a run in which nothing happened."""
    from envmgr.observe.run_picture import draw
    from envmgr.observe.run_report import RunRecord

    draw(RunRecord("nothing", {}, 0, [], 0, 0, [], 0.0, 0.0, {}, "complete"), path)
