"""``Ledger``: what was done, in a file that survives whoever did it.

A process that a fault kills cannot count it any more, and a renewed worker knows nothing of the one before.
So each fault is written down right before it happens: one line, one append, which the system does whole or
not at all, from any process, without a lock that a dead one could leave behind.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple


class Record(NamedTuple):
    """One line.

    Attributes:
        what: ``'built'`` (an instance began to be built), ``'fault'``, or ``'claim'`` (a turn was asked for).
        kind: The kind of the fault, or the name of the claim.
        where: The call in which it happened.
        env_id: The env.
        instance: Its instance, 0 for the first.
        episode: Its episode in this instance.
        step: The step of the episode that it happened in; 1 is the first.
        pid: The process.
        key: ``Fault.key`` of what was claimed.
    """

    what: str
    kind: str = ""
    where: str = ""
    env_id: int = 0
    instance: int = 0
    episode: int = -1
    step: int = 0
    pid: int = 0
    key: str = ""


class Ledger:
    """A file of records. Any number of processes may write; it is picklable, and holds nothing open.

    Args:
        path: The file; it is made when first written to.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def add(self, record: Record) -> None:
        """Appends a record."""
        line = json.dumps(record).encode() + b"\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)

    def records(self, what: str | None = None) -> list[Record]:
        """All records so far, in order; only those of one sort if ``what`` is given."""
        try:
            lines = Path(self.path).read_text().splitlines()
        except FileNotFoundError:
            return []
        records = [Record(*json.loads(line)) for line in lines]
        return [record for record in records if what is None or record.what == what]

    def claim(self, key: str, times: int) -> bool:
        """Whether what ``key`` stands for may happen once more, and takes that turn.

        Of several who ask at once, those whose lines come first in the file have it.
        """
        if len(self._claims(key)) >= times:
            return False
        name = os.urandom(8).hex()
        self.add(Record("claim", name, pid=os.getpid(), key=key))
        return name in self._claims(key)[:times]

    def instance(self, env_id: int) -> int:
        """Notes that an instance of an env begins to be built, and gives its number: 0 for the first."""
        self.add(Record("built", env_id=env_id, pid=os.getpid()))
        return sum(record.env_id == env_id for record in self.records("built")) - 1

    def _claims(self, key: str) -> list[str]:
        return [record.kind for record in self.records("claim") if record.key == key]
