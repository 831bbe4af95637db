"""Faults made, by those who made them, against failures told, by the manager.

Pure. A fault in a step must be told in exactly that step of that env. A fault in a reset is no news to the
caller as long as attempts are left: there the manager's own count of attempts that failed must be as high. A
renewal that cannot be built must be followed by another. A death must be noticed with the pid of the process
that died.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable

from envmgr.testing.faults import KINDS, Record
from envmgr.testing.soak.checker import Notice

OUTSIDE = "outside"
"""``Record.where`` of a worker that the soak itself kills, in whatever it is doing."""

ERRORS = {
    **dict.fromkeys(("raise", "system_exit", "keyboard_interrupt", "rubbish"), "EnvStepError"),
    **dict.fromkeys(("exit", "segfault", "kill"), "WorkerDied"),
    **dict.fromkeys(("sleep", "hang", "hang_in_c", "stop"), "EnvTimeoutError"),
    "misfit": "SpaceMismatchError",
    "abnormal": "said",
}
"""The error that tells of a fault in a step."""

_DEADLY = ("exit", "segfault", "kill")


@dataclasses.dataclass
class Row:
    """One line of the table; None where there is nothing to notice, for the call went on and succeeded."""

    made: int = 0
    noticed: int | None = 0
    recovered: int | None = 0

    def add(self, other: Row) -> None:
        """Adds another phase's."""
        self.made += other.made
        for name in ("noticed", "recovered"):
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, None if mine is None or theirs is None else mine + theirs)


@dataclasses.dataclass
class Tally:
    """What became of the faults of a phase.

    Attributes:
        rows: By (where, kind). The kinds in ``'reset'`` are noticed in one row, ``'all'``.
        too_slow: Calls that were broken off although nobody had made them hang: the machine was slow.
        neighbours: Abnormal timesteps of envs whose worker went because of another env in it.
        wrong: What does not fit, in words.
    """

    rows: dict[tuple[str, str], Row] = dataclasses.field(default_factory=dict)
    too_slow: int = 0
    neighbours: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)


def tally(
    records: Iterable[Record],
    notices: Collection[Notice],
    recovered: Collection[Notice],
    *,
    failed_resets: int,
    gone: Collection[int],
    all_back: bool,
    shared: bool = False,
) -> Tally:
    """Matches what was made with what was told.

    Args:
        records: All of the ledger.
        notices: Abnormal timesteps.
        recovered: Those after which the env came back.
        failed_resets: Attempts at a reset that the manager counted as failed.
        gone: The pids of all workers whose end was noticed.
        all_back: Whether in the end every env ran again.
        shared: Whether workers host several envs, so that one's fault can be overtaken by another's.
    """
    out = Tally()
    told = {(n.env_id, n.instance, n.episode, n.step): n for n in notices}
    back = set(recovered)
    explained, pids = set(), set()
    records = list(records)
    newest: dict[int, int] = {}
    killed = {record.pid for record in records if record.where == OUTSIDE}
    for record in records:
        if record.what == "built":
            newest[record.env_id] = newest.get(record.env_id, -1) + 1
    rows: dict[tuple[str, str], Row] = collections.defaultdict(Row)
    for fault in (record for record in records if record.what == "fault"):
        pids.add(fault.pid)
        row = rows[fault.where, fault.kind]
        row.made += 1
        if (fault.kind in _DEADLY or fault.where == OUTSIDE) and fault.pid not in gone:
            out.wrong.append(f"nobody noticed the death of process {fault.pid}: {fault}")
        if fault.where == OUTSIDE:
            row.noticed = (row.noticed or 0) + (fault.pid in gone)
            row.recovered = (row.recovered or 0) + (fault.pid in gone and all_back)
        elif KINDS[fault.kind].harmless or fault.where == "reset":
            row.noticed = row.recovered = None
        elif fault.where == "build":
            again = newest.get(fault.env_id, 0) > fault.instance
            row.noticed = (row.noticed or 0) + again
            row.recovered = (row.recovered or 0) + (again and all_back)
            if not again:
                out.wrong.append(f"nobody tried again after {fault}")
        else:
            place = (fault.env_id, fault.instance, fault.episode, fault.step)
            notice = told.get(place)
            if notice is None:
                out.wrong.append(f"nobody told of {fault}")
                continue
            explained.add(place)
            overtaken = notice.error == "WorkerDied" and notice.pid in killed
            if notice.error != ERRORS[fault.kind] and not overtaken and not shared:
                out.wrong.append(f"{fault} was told as {notice}")
                continue
            row.noticed = (row.noticed or 0) + 1
            row.recovered = (row.recovered or 0) + (notice in back)
    for place, notice in told.items():
        if place in explained:
            continue
        if notice.pid in pids and notice.pid is not None:
            out.neighbours += shared
        elif notice.error == "EnvTimeoutError":
            out.too_slow += 1
        elif not shared:
            out.wrong.append(f"nobody made what was told of: {notice}")
        else:
            out.neighbours += 1
    made = sum(
        row.made for (where, kind), row in rows.items() if where == "reset" and not KINDS[kind].harmless
    )
    rows["reset", "all"] = Row(made, failed_resets, failed_resets if all_back else 0)
    if failed_resets < made:
        out.wrong.append(f"{made} resets were made to fail, {failed_resets} were counted as failed")
    if len(told) != len(notices):
        out.wrong.append(f"{len(notices) - len(told)} steps were called abnormal twice")
    out.rows = dict(rows)
    return out
