"""Draws ``img/states.svg``, the states of an env, from the table of legal moves: run it as a script.

Where each state stands is said here; which moves there are is not, so that the picture cannot be wrong.
"""

from __future__ import annotations

import math
from pathlib import Path

from envmgr.engine.states import LEGAL_MOVES, EnvState

PLACES = {
    EnvState.VOID: (80, 130),
    EnvState.INIT: (230, 130),
    EnvState.RESET: (510, 130),
    EnvState.RUN: (770, 130),
    EnvState.ERROR: (370, 350),
    EnvState.NEED_RESET: (650, 385),
    EnvState.DONE: (845, 290),
}
WORDS = {
    EnvState.VOID: "no worker",
    EnvState.INIT: "being built",
    EnvState.RESET: "being reset",
    EnvState.RUN: "can be stepped",
    EnvState.ERROR: "failed",
    EnvState.NEED_RESET: "wants reset()",
    EnvState.DONE: "had its episodes",
}
LABELS = {
    ("VOID", "INIT"): "launch",
    ("INIT", "RESET"): "worker up",
    ("RESET", "RUN"): "first observation",
    ("RUN", "RESET"): "episode ends",
    ("RESET", "ERROR"): "raises, hangs",
    ("ERROR", "RESET"): "retry",
    ("ERROR", "INIT"): "renewal",
    ("INIT", "ERROR"): "not built",
    ("RUN", "ERROR"): "step fails",
}
LEFT = {("INIT", "ERROR"), ("ERROR", "INIT")}
"""Arrows whose label stands on their left."""

WIDTH, HEIGHT, BOX_W, BOX_H, BEND = 930, 440, 130, 52, 26


def _edge_of_box(at: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the middle of a box leaves it."""
    dx, dy = towards[0] - at[0], towards[1] - at[1]
    scale = min(
        (BOX_W / 2 + 4) / abs(dx) if dx else math.inf,
        (BOX_H / 2 + 4) / abs(dy) if dy else math.inf,
    )
    return at[0] + dx * scale, at[1] + dy * scale


def _arrow(old: EnvState, new: EnvState) -> list[str]:
    """One move: a curve that leaves the straight line to its left, so that there and back stay apart."""
    (x1, y1), (x2, y2) = PLACES[old], PLACES[new]
    length = math.hypot(x2 - x1, y2 - y1)
    bend = BEND if new in LEGAL_MOVES[old] and old in LEGAL_MOVES[new] else 8
    middle = (x1 + x2) / 2 + bend * (y2 - y1) / length, (y1 + y2) / 2 - bend * (x2 - x1) / length
    control = 2 * middle[0] - (x1 + x2) / 2, 2 * middle[1] - (y1 + y2) / 2
    start, end = _edge_of_box((x1, y1), control), _edge_of_box((x2, y2), control)
    lines = [
        f'<path data-from="{old.name}" data-to="{new.name}" d="M {start[0]:.0f} {start[1]:.0f} Q '
        f'{control[0]:.0f} {control[1]:.0f} {end[0]:.0f} {end[1]:.0f}" class="move"/>'
    ]
    label = LABELS.get((old.name, new.name))
    if label:
        x, y = (start[0] + 2 * control[0] + end[0]) / 4, (start[1] + 2 * control[1] + end[1]) / 4
        if y1 == y2:
            y += -8 if x2 > x1 else 16
            lines.append(f'<text x="{x:.0f}" y="{y:.0f}" class="label" text-anchor="middle">{label}</text>')
        else:
            left = (old.name, new.name) in LEFT
            anchor, x = ("end", x - 6) if left else ("start", x + 6)
            lines.append(f'<text x="{x:.0f}" y="{y:.0f}" class="label" text-anchor="{anchor}">{label}</text>')
    return lines


def _box(state: EnvState) -> list[str]:
    x, y = PLACES[state]
    closes = f' data-closes="{state.name}"' if EnvState.VOID in LEGAL_MOVES[state] else ""
    return [
        f'<rect data-state="{state.name}"{closes} x="{x - BOX_W / 2:.0f}" y="{y - BOX_H / 2:.0f}" '
        f'width="{BOX_W}" height="{BOX_H}" rx="8" class="{state.name.lower()}"/>',
        f'<text x="{x}" y="{y - 3}" class="name" text-anchor="middle">{state.name}</text>',
        f'<text x="{x}" y="{y + 15}" class="label" text-anchor="middle">{WORDS[state]}</text>',
    ]


def picture() -> str:
    """The text of the picture."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        'font-family="sans-serif" role="img">',
        "<title>The states of an env and the moves between them</title>",
        "<style>rect{fill:#eef3f8;stroke:#456}.run{fill:#e2f3e2}.error{fill:#fbe3e0}.void{fill:#eee}"
        ".move{fill:none;stroke:#567;stroke-width:1.4;marker-end:url(#tip)}.name{font-size:15px;font-weight:bold}"
        ".label{font-size:12px;fill:#345}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M 0 0 L 10 5 L 0 10 z" fill="#567"/></marker></defs>',
        f'<rect x="0" y="0" width="{WIDTH}" height="{HEIGHT}" style="fill:#fff;stroke:none"/>',
    ]
    for old, moves in LEGAL_MOVES.items():
        for new in sorted(moves):
            if new is not EnvState.VOID:
                lines += _arrow(old, new)
    for state in EnvState:
        lines += _box(state)
    if all(EnvState.VOID in moves for old, moves in LEGAL_MOVES.items() if old is not EnvState.VOID):
        lines.append(
            f'<text x="20" y="{HEIGHT - 24}" class="label">close(), or an error that ends the manager: '
            "from every state to VOID</text>"
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    path = Path(__file__).parent / "img" / "states.svg"
    path.write_text(picture(), encoding="utf-8")
    print(path)
