"""Runs the tests in several pytest processes, each with a share: ``tests/side_by_side.py 2 [pytest args]``.

Not in the workers of pytest-xdist, because those have a thread besides their main one: a manager never
forks a process that has threads, so there every launch would start a fresh interpreter first, and it is the
way with one thread that most scripts go. pytest-split shares the tests out.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time

EVENLY = ("--splitting-algorithm", "least_duration")  # one here, one there: slow tests stand side by side
NO_TESTS = 5  # pytest's exit code where nothing was collected


def main(jobs: int, args: list[str]) -> int:
    """Runs all shares, shows what each printed, and gives the exit code."""
    start = time.monotonic()
    shares = []
    for group in range(1, jobs + 1):
        # The first one prints as it goes, so that one sees it going.
        out = None if group == 1 else tempfile.TemporaryFile("w+")  # noqa: SIM115 - read below
        split = ["--splits", str(jobs), "--group", str(group), *EVENLY] if jobs > 1 else []
        command = [sys.executable, "-m", "pytest", *split, *args]
        process = subprocess.Popen(command, stdout=out or subprocess.PIPE, text=True)
        shares.append((process, out))
    codes, counts = [], dict.fromkeys(("passed", "failed", "error", "skipped", "xfailed"), 0)
    for process, out in shares:
        text = ""
        if process.stdout is not None:
            for line in process.stdout:
                print(line, end="", flush=True)
                text += line
        codes.append(process.wait())
        if out is not None:
            out.seek(0)
            text = out.read()
            print(text, flush=True)
        summary = text.strip().rpartition("\n")[2]
        for word in counts:
            found = re.search(rf"(\d+) {word}", summary)
            counts[word] += int(found[1]) if found else 0
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no test ran"
    print(f"{told} in {time.monotonic() - start:.0f} s, {jobs} side by side", flush=True)
    bad = [code for code in codes if code not in (0, NO_TESTS)]
    return bad[0] if bad else 0 if 0 in codes else NO_TESTS


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
