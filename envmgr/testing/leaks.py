"""Does a piece of code leave anything behind?

What a manager can leave behind is of five kinds: child processes, threads, file descriptors,
entries in ``/dev/shm``, and envmgr's own temporary files. ``no_leaks`` lists all of them before and
after a block and raises on what is new::

    with no_leaks():
        manager = create_env_manager(cfg, env_fns)
        manager.launch()
        manager.close()

What is on its way out is given time: the check waits for each new process and thread itself to
end (up to ``timeout`` in all), and only then looks at files, which go with their owners.

Left out on purpose, because they are one per interpreter and stay for its life: multiprocessing's
resource tracker and fork server, and the descriptors held open to them. Other programs on the
machine make files in ``/dev/shm`` and the temp directory too: an entry is not ours while a process
outside our own tree has it open or mapped, or when its name carries the pid of one
(``envmgr-<pid>-...``, the form of all of envmgr's temporary names).
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

KINDS = ("children", "threads", "fds", "shm", "temp")

_SHM = Path("/dev/shm")
_FDS = Path("/proc/self/fd")
_TEMP_NAME = re.compile(r"envmgr-(\d+)-")


class LeakError(AssertionError):
    """Something that was not there before the block is still there after it."""


@dataclass(frozen=True)
class Snapshot:
    """What exists at one moment; of each kind, only what can be told apart later."""

    children: frozenset[psutil.Process]
    threads: frozenset[threading.Thread]
    fds: frozenset[tuple[int, str]]
    shm: frozenset[Path]
    temp: frozenset[Path]

    @classmethod
    def take(cls, children: bool = True) -> Snapshot:
        """Lists what is there now; ``children=False`` leaves those out, the one kind that takes long."""
        return cls(
            children=frozenset(_children() if children else ()),
            threads=frozenset(threading.enumerate()),
            fds=frozenset(_fds()),
            shm=frozenset(_entries(_SHM, "")),
            temp=frozenset(path for directory in _temp_dirs() for path in _entries(directory, "envmgr")),
        )


@contextlib.contextmanager
def no_leaks(
    *, timeout: float = 5.0, ignore: Collection[str] = (), end_processes: bool = False
) -> Iterator[Snapshot]:
    """Raises when the block leaves something behind.

    A block that raises is not checked: its frames, which the exception holds, keep things alive.

    Args:
        timeout: Seconds that processes and threads have, all together, to end by themselves.
        ignore: Kinds that are not looked at, out of ``KINDS``.
        end_processes: Whether leftover processes are killed after they were reported, so that
            what runs next is not slowed down by them.

    Yields:
        What was there before.

    Raises:
        LeakError: Naming everything that is left.
        ValueError: ``ignore`` names a kind that does not exist.
    """
    unknown = set(ignore) - set(KINDS)
    if unknown:
        raise ValueError(f"no such kind of leak: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    before = Snapshot.take()
    yield before
    found = leftovers(before, timeout=timeout, ignore=ignore)
    if end_processes:
        end_new_processes(before)
    if found:
        raise LeakError("left behind:\n  " + "\n  ".join(found))


def leftovers(before: Snapshot, *, timeout: float = 5.0, ignore: Collection[str] = ()) -> list[str]:
    """Says what is there now that was not there before, one line for each.

    Args:
        before: The moment to compare with.
        timeout: Seconds that processes and threads have to end by themselves.
        ignore: Kinds that are not looked at.

    Returns:
        The lines; none when nothing is left.
    """
    deadline = time.monotonic() + timeout
    lines: list[str] = []
    if "children" not in ignore:
        lines += [_describe_process(process) for process in _wait_for_children(before, deadline)]
    if "threads" not in ignore:
        lines += [
            f"thread {thread.name!r}{' (daemon)' if thread.daemon else ''}"
            for thread in _wait_for_threads(before, deadline)
        ]
    now = Snapshot.take(children=False)
    if now.fds - before.fds or now.shm - before.shm or now.temp - before.temp:
        gc.collect()  # a file can hang on nothing but an uncollected cycle
        now = Snapshot.take(children=False)
    if "fds" not in ignore:
        lines += [f"descriptor {fd}: {target}" for fd, target in sorted(now.fds - before.fds)]
    if "shm" not in ignore:
        found = _wait_for_files(_ours(now.shm - before.shm), deadline)
        lines += [f"shared memory {path}" for path in found]
    if "temp" not in ignore:
        lines += [f"temporary file {path}" for path in _ours(now.temp - before.temp)]
    return lines


def end_new_processes(before: Snapshot) -> None:
    """Kills the processes of our own tree that were not there before, and reaps them."""
    new = _children() - before.children
    for process in new:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(new, timeout=5.0)


def _children() -> set[psutil.Process]:
    if _childless():
        return set()
    helpers = _helper_pids()
    return {process for process in psutil.Process().children(recursive=True) if process.pid not in helpers}


def _childless() -> bool:
    """Whether the system says, in no time, that there is no child; False where it cannot say so."""
    if not hasattr(os, "waitid"):
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _helper_pids() -> set[int]:
    """The processes that multiprocessing keeps for the life of the interpreter."""
    pids = set()
    for module, holder, attribute in (
        ("multiprocessing.resource_tracker", "_resource_tracker", "_pid"),
        ("multiprocessing.forkserver", "_forkserver", "_forkserver_pid"),
    ):
        # Read from what is loaded: nothing is started or imported by looking.
        pid = getattr(getattr(sys.modules.get(module), holder, None), attribute, None)
        if isinstance(pid, int):
            pids.add(pid)
    return pids


def _wait_for_children(before: Snapshot, deadline: float) -> list[psutil.Process]:
    # Those of multiprocessing first, through their own objects: reaping one behind such an object's
    # back would take its exit code from it. active_children() joins those that have ended already.
    for child in multiprocessing.active_children():
        if child.pid is not None and _as_process(child.pid) not in before.children:
            child.join(_left(deadline))
    new = list(_children() - before.children)
    _, alive = psutil.wait_procs(new, timeout=_left(deadline))
    return alive


def _as_process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _wait_for_threads(before: Snapshot, deadline: float) -> list[threading.Thread]:
    new = [thread for thread in threading.enumerate() if thread not in before.threads]
    for thread in new:
        if thread is not threading.current_thread():
            thread.join(_left(deadline))
    return [thread for thread in new if thread.is_alive()]


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _describe_process(process: psutil.Process) -> str:
    try:
        with process.oneshot():
            command = " ".join(process.cmdline()) or process.name()
            return f"process {process.pid} ({process.status()}): {command[:200]}"
    except psutil.Error:
        return f"process {process.pid}"


def _fds() -> set[tuple[int, str]]:
    """The open descriptors and what each is; empty where the system does not list them."""
    found = set()
    helpers = _helper_fds()
    try:
        names = os.listdir(_FDS)
    except OSError:
        return set()
    for name in names:
        try:
            # A file that somebody else deletes meanwhile is the same file.
            target = os.readlink(_FDS / name).removesuffix(" (deleted)")
        except OSError:
            continue  # the descriptor of the listing itself
        if int(name) not in helpers:
            found.add((int(name), target))
    return found


def _helper_fds() -> set[int]:
    """Our ends of the pipes to multiprocessing's own processes."""
    fds = set()
    for module, holder, attribute in (
        ("multiprocessing.resource_tracker", "_resource_tracker", "_fd"),
        ("multiprocessing.forkserver", "_forkserver", "_forkserver_alive_fd"),
    ):
        fd = getattr(getattr(sys.modules.get(module), holder, None), attribute, None)
        if isinstance(fd, int):
            fds.add(fd)
    return fds


def _temp_dirs() -> set[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return {Path(tempfile.gettempdir()), *([Path(runtime)] if runtime else [])}


def _entries(directory: Path, prefix: str) -> list[Path]:
    """The entries of a directory that belong to this user and whose names begin so."""
    found = []
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                with contextlib.suppress(OSError):
                    owner = entry.stat(follow_symlinks=False).st_uid
                    if not hasattr(os, "geteuid") or owner == os.geteuid():
                        found.append(Path(entry.path))
    return found


def _wait_for_files(paths: list[Path], deadline: float) -> list[Path]:
    """Those still there at the deadline: a killed process's semaphores go when its tracker gets to it."""
    while paths and time.monotonic() < deadline:
        time.sleep(0.05)
        paths = [path for path in paths if path.exists()]
    return paths


def _ours(paths: Collection[Path]) -> list[Path]:
    """Those of some new entries that no process outside our own tree owns."""
    if not paths:
        return []
    tree = {os.getpid(), *(process.pid for process in psutil.Process().children(recursive=True))}
    elsewhere = set()
    for process in psutil.process_iter():
        if process.pid not in tree:
            elsewhere |= {path for path in paths if _owns(process.pid, path)}
    # Looked at again last: its owner may have removed it meanwhile.
    return sorted(path for path in set(paths) - elsewhere if path.exists())


def _owns(pid: int, path: Path) -> bool:
    match = _TEMP_NAME.match(path.name)
    if match:
        return int(match.group(1)) == pid
    proc = Path("/proc", str(pid))
    with contextlib.suppress(OSError):
        if str(path) in (proc / "maps").read_text():
            return True
        return any(_readlink(fd) == str(path) for fd in (proc / "fd").iterdir())
    return False


def _readlink(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
