"""Whole programs that are run, watched and killed: for what cannot be tried inside pytest's own process.

A script runs in a session of its own, so that signals to its group reach nobody else, with its own temp
directory. Its stderr goes to a file: a pipe would be kept open by the workers that it is about.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.helpers.sync import Log, Signal, wait_until

ROOT = Path(__file__).resolve().parents[2]

PREAMBLE = """
import gc, os, signal, sys, time
from functools import partial
from pathlib import Path

from envmgr import create_env_manager
from tests.helpers import envs
from tests.helpers.managers import many
from tests.helpers.sync import Log, Signal

# A shell that starts something in the background has it ignore SIGINT, and that is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
HERE = Path(sys.argv[1])
KIND, CONTEXT = sys.argv[2], sys.argv[3]
log = Log(HERE / "log")


def make(env_fns, **cfg):
    return create_env_manager({"type": KIND, "context": CONTEXT, **cfg}, env_fns)

"""


class Script:
    """One running program."""

    def __init__(self, body: str, here: Path, kind: str, context: str, *, guard: bool = True) -> None:
        self.here = here
        self.log = Log(here / "log")
        (here / "tmp").mkdir()
        path = here / "script.py"
        body = textwrap.dedent(body)
        if guard:
            body = "def main():\n" + textwrap.indent(body, "    ")
            body += '\n\nif __name__ == "__main__":\n    main()\n'
        path.write_text(PREAMBLE + body)
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(here / "tmp"), "PYTHONUNBUFFERED": "1"}
        with open(here / "out", "wb") as out, open(here / "err", "wb") as err:
            self.popen = subprocess.Popen(
                [sys.executable, str(path), str(here), kind, context],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=env,
                cwd=here,
                start_new_session=True,
            )
        self.process = psutil.Process(self.popen.pid)
        self.seen: set[psutil.Process] = set()

    def family(self) -> list[psutil.Process]:
        """All that it started, as of now: its descendants, and whoever else is of its session."""
        found = set(session_of(self.popen.pid))
        with contextlib.suppress(psutil.NoSuchProcess):
            found.update(self.process.children(recursive=True))
        found.discard(self.process)
        self.seen.update(found)
        return list(found)

    def wait_all_gone(self, deadline: float = 5.0) -> None:
        """Waits until all that it ever started has ended, also what nobody has seen yet."""
        wait_until(
            lambda: not alive([*self.family(), *self.seen]),
            "all that a script started to go",
            deadline,
        )

    def signal(self, number: int, group: bool = False) -> None:
        """Sends a signal to the program, or to it and all that it started."""
        if group:
            os.killpg(self.popen.pid, number)
        else:
            self.popen.send_signal(number)

    def wait(self, deadline: float = 40.0) -> int:
        """Waits for the program itself and gives its exit code."""
        return self.popen.wait(deadline)

    @property
    def out(self) -> str:
        """What it, or anything it started, wrote on stdout so far."""
        return (self.here / "out").read_text()

    @property
    def err(self) -> str:
        """What it, or anything it started, wrote on stderr so far."""
        return (self.here / "err").read_text()

    def end(self) -> None:
        """Kills whatever is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        for process in [*self.family(), *self.seen]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.popen.wait(10)


def session_of(leader: int) -> list[psutil.Process]:
    """The processes of a session, whoever their parents are by now."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if os.getsid(pid) == leader:
                found.append(psutil.Process(pid))
    return found


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that run; a zombie that nobody has reaped yet does not."""
    found = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def wait_gone(processes: list[psutil.Process], deadline: float = 5.0) -> None:
    """Waits until all of them have ended."""
    wait_until(lambda: not alive(processes), f"{len(processes)} processes to go", deadline)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Any]:
    """Starts scripts: ``script(body, kind, context)``; kills what is left of them at the end."""
    running: list[Script] = []

    def start(body: str, kind: str = "subprocess", context: str = "fork", **kwargs: Any) -> Script:
        here = tmp_path / f"run{len(running)}"
        here.mkdir()
        running.append(Script(body, here, kind, context, **kwargs))
        return running[-1]

    yield start
    for one in running:
        one.end()


@pytest.fixture
def signal_at() -> Iterator[Any]:
    """Opens named signals by path, for tests without a manager of their own."""
    made: list[Signal] = []

    def at(path: Path) -> Signal:
        made.append(Signal(str(path)))
        return made[-1]

    yield at
    for one in made:
        one.close()
