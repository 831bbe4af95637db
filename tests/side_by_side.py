"""Runs the tests in several pytest processes, each with a share: ``tests/side_by_side.py 2 [pytest args]``.

Not in the workers of pytest-xdist, because those have a thread besides their main one: a manager never
forks a process that has threads, so there every launch would start a fresh interpreter first, and it is the
way with one thread that most scripts go. pytest-split shares the tests out.

Each share has a temp directory of its own, so that no leak check sees what a test of another one has there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import IO, NamedTuple

EVENLY = ("--splitting-algorithm", "least_duration")  # one here, one there: slow tests stand side by side
NO_TESTS = 5  # pytest's exit code where nothing was collected


def main(jobs: int, args: list[str]) -> int:
    """Runs all shares, shows what each printed, and gives the exit code."""
    start = time.monotonic()
    codes, counts = [], dict.fromkeys(("passed", "failed", "error", "skipped", "xfailed"), 0)
    with contextlib.ExitStack() as stack:
        shares = [begin(group, jobs, args, stack) for group in range(1, jobs + 1)]
        for share in shares:
            summary = show(share).strip().rpartition("\n")[2]
            codes.append(share.process.returncode)
            for word in counts:
                found = re.search(rf"(\d+) {word}", summary)
                counts[word] += int(found[1]) if found else 0
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no test ran"
    print(f"{told} in {time.monotonic() - start:.0f} s, {jobs} side by side", flush=True)
    bad = [code for code in codes if code not in (0, NO_TESTS)]
    return bad[0] if bad else 0 if 0 in codes else NO_TESTS


class Share(NamedTuple):
    """One of the pytest processes; all but the first one write into a file, shown at the end."""

    process: subprocess.Popen[str]
    out: IO[str] | None
    folder: str


def begin(group: int, jobs: int, args: list[str], stack: contextlib.ExitStack) -> Share:
    """Starts one share, and has it ended by whatever ends the stack."""
    out: IO[str] | None = None
    if group > 1:
        out = stack.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115 - it is one
    folder = tempfile.mkdtemp(prefix=f"tests-{group}-")
    split = ["--splits", str(jobs), "--group", str(group), *EVENLY] if jobs > 1 else []
    command = [sys.executable, "-m", "pytest", *split, *args]
    environ = {**os.environ, "TMPDIR": folder}
    process = subprocess.Popen(command, stdout=out or subprocess.PIPE, text=True, env=environ)
    share = Share(process, out, folder)
    stack.callback(end, share)
    return share


def end(share: Share) -> None:
    """Waits for a share that was interrupted with us, and removes its folder if no test of it failed."""
    try:
        share.process.wait(30)
    except subprocess.TimeoutExpired:
        share.process.kill()
        share.process.wait()
    if share.process.returncode in (0, NO_TESTS):
        shutil.rmtree(share.folder, ignore_errors=True)  # a process that was killed may still write there
    else:
        print(f"what its tests wrote is in {share.folder}", flush=True)


def show(share: Share) -> str:
    """Waits for a share and prints what it says: the first one's as it goes, so that one sees it going."""
    text = ""
    for line in share.process.stdout or ():
        print(line, end="", flush=True)
        text += line
    share.process.wait()
    if share.out is not None:
        share.out.seek(0)
        text = share.out.read()
        print(text, flush=True)
    return text


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
