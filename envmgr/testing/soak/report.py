"""The table at the end of a soak, and whether all is well."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from envmgr.testing.faults import KINDS
from envmgr.testing.soak.phase import PhaseResult, Usage
from envmgr.testing.soak.tally import OUTSIDE, Row

MAY_GROW = {"memory": 16 << 20, "fds": 0, "threads": 0, "processes": 0}
"""What a whole soak may leave: allocators keep some memory, nothing else stays."""


@dataclasses.dataclass
class Report:
    """All phases, and what this process held before and after them.

    Attributes:
        results: One per phase.
        begin: Before the first, after a warm-up.
        end: After the last.
    """

    results: list[PhaseResult]
    begin: Usage
    end: Usage

    @property
    def lost(self) -> int:
        """Steps that were lost."""
        return sum(result.checker.lost for result in self.results)

    @property
    def duplicated(self) -> int:
        """Steps that came twice."""
        return sum(result.checker.duplicated for result in self.results)

    @property
    def mixed_up(self) -> int:
        """Timesteps that did not belong where they came."""
        return sum(result.checker.mixed_up for result in self.results)

    def complaints(self) -> list[str]:
        """What is wrong, in words; empty when all is well."""
        out = []
        for result in self.results:
            name = result.phase.name
            if result.broke:
                out.append(f"{name}: ended by\n{result.broke}")
            out += [f"{name}: {story}" for story in result.checker.stories]
            out += [f"{name}: {text}" for text in result.tally.wrong[:20]]
            if not result.broke and not result.checker.all_back():
                out.append(f"{name}: not every env came back")
            for what in ("fds", "threads", "processes"):
                if result.end[what] > result.begin[what]:
                    out.append(f"{name}: {what} grew from {result.begin[what]} to {result.end[what]}")
        for what, allowed in MAY_GROW.items():
            if self.end[what] > self.begin[what] + allowed:
                out.append(f"{what} grew from {self.begin[what]} to {self.end[what]}")
        return out

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.duplicated or self.mixed_up or self.complaints())

    # -- text ------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for result in self.results:
            yield (
                f"{result.phase.name}: {result.phase.envs} envs, {result.seconds:.0f} s, "
                f"{sum(result.checker.good):,} steps, {result.stats['episodes']:,.0f} episodes, "
                f"{result.stats['renewals']:,.0f} renewals, {result.stats['timeouts']:,.0f} timeouts"
            )
        yield ""
        yield f"{'where':<9} {'fault':<20} {'made':>8} {'noticed':>8} {'recovered':>10}"
        for (where, kind), row in self._rows().items():
            noticed, recovered = _number(row.noticed), _number(row.recovered)
            yield f"{where:<9} {kind:<20} {row.made:>8} {noticed:>8} {recovered:>10}"
        yield ""
        slow = sum(result.tally.too_slow for result in self.results)
        neighbours = sum(result.tally.neighbours for result in self.results)
        yield f"{'steps':<30} {sum(sum(r.checker.good) for r in self.results):>8,}"
        yield f"{'abnormal steps':<30} {sum(len(r.checker.notices) for r in self.results):>8,}"
        yield f"{'  of them: the machine was slow':<30} {slow:>7,}"
        if neighbours:
            yield f"{'  of them: a neighbour failed':<30} {neighbours:>8,}"
        yield f"{'steps lost':<30} {self.lost:>8,}"
        yield f"{'steps duplicated':<30} {self.duplicated:>8,}"
        yield f"{'steps mixed up':<30} {self.mixed_up:>8,}"
        yield ""
        yield f"{'held by the caller':<30} {'start':>8} {'end':>8}"
        begin, end = (usage["memory"] / 2**20 for usage in (self.begin, self.end))
        yield f"{'memory of its own, MB':<30} {begin:>8.1f} {end:>8.1f}"
        for what, name in (
            ("fds", "descriptors"),
            ("threads", "threads"),
            ("processes", "processes under it"),
        ):
            yield f"{name:<30} {self.begin[what]:>8} {self.end[what]:>8}"
        for result in self.results:
            held = [
                f"{u['memory'] / 2**20:.1f} MB, {u['fds']} fds, {u['processes']} processes"
                for u in (result.begin, result.end)
            ]
            yield f"  in {result.phase.name}: {' -> '.join(held)}"
        yield ""
        complaints = self.complaints()
        yield from complaints
        yield "all is well" if self.ok else f"{len(complaints)} complaints"

    def _rows(self) -> dict[tuple[str, str], Row]:
        rows: dict[tuple[str, str], Row] = {}
        for result in self.results:
            for key, row in result.tally.rows.items():
                if key in rows:
                    rows[key].add(row)
                else:
                    rows[key] = dataclasses.replace(row)
        kinds, places = [*KINDS, "all"], ["step", "reset", "build", OUTSIDE]
        return dict(sorted(rows.items(), key=lambda kv: (places.index(kv[0][0]), kinds.index(kv[0][1]))))


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
