"""The leak check finds each kind of leftover, and nothing where there is none."""

import contextlib
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import envmgr
from envmgr.testing import LeakError, no_leaks
from envmgr.testing.leaks import Snapshot, end_new_processes

SLEEPER = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@contextlib.contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until its standard input is closed."""
    with subprocess.Popen(SLEEPER, stdin=subprocess.PIPE) as process:
        yield process


def test_nothing_left_is_no_error() -> None:
    with no_leaks(), sleeper(), open(os.devnull):
        pass


def test_a_process_that_stays_is_named() -> None:
    with contextlib.ExitStack() as stack:
        with pytest.raises(LeakError, match=r"process \d+"), no_leaks(timeout=0.1, ignore=["fds"]):
            stack.enter_context(sleeper())


def test_a_grandchild_is_found() -> None:
    code = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); p.wait()"
    command = [sys.executable, "-c", code, *SLEEPER]
    before = Snapshot.take()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        found = Snapshot.take().children - before.children
        assert grandchild in {process.pid for process in found}
        end_new_processes(before)


def test_end_processes_ends_what_it_reports() -> None:
    with pytest.raises(LeakError), no_leaks(timeout=0.1, ignore=["fds"], end_processes=True):
        process = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.close()
    process.wait()  # returns at once: it is gone


def test_a_process_on_its_way_out_is_waited_for() -> None:
    context = multiprocessing.get_context("fork")
    with no_leaks(ignore=["fds"]):  # the Process object holds some until it is closed
        process = context.Process(target=threading.Event().wait, args=(0.2,))
        process.start()
    assert process.exitcode == 0
    process.close()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_the_helpers_of_multiprocessing_are_not_leaks(method: str) -> None:
    with no_leaks(timeout=20):
        process = multiprocessing.get_context(method).Process(target=os.getpid)
        process.start()
        process.join()
        process.close()


def test_a_thread_that_stays_is_named() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="the-one", daemon=True)
    with pytest.raises(LeakError, match=r"thread 'the-one' \(daemon\)"), no_leaks(timeout=0.1):
        thread.start()
    stop.set()
    thread.join()


def test_a_thread_on_its_way_out_is_waited_for() -> None:
    with no_leaks():
        threading.Thread(target=threading.Event().wait, args=(0.2,)).start()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are not listed here")
def test_a_descriptor_that_stays_is_named() -> None:
    with pytest.raises(LeakError, match=r"descriptor \d+: pipe:"), no_leaks():
        ends = os.pipe()
    for end in ends:
        os.close(end)


def test_a_descriptor_in_an_uncollected_cycle_is_no_leak() -> None:
    with no_leaks():
        cycle: list[object] = [multiprocessing.Pipe()]
        cycle.append(cycle)
        del cycle


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no shared memory directory")
def test_a_shared_memory_entry_is_named() -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="leak-test-") as file:
        name = file.name
        with (
            pytest.raises(LeakError, match="shared memory /dev/shm/leak-test-more"),
            no_leaks(ignore=["fds"]),
        ):
            more = tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="leak-test-more-")  # noqa: SIM115
        more.close()
    assert not os.path.exists(name)


def test_a_temporary_file_of_ours_is_named_and_others_are_not() -> None:
    with tempfile.NamedTemporaryFile(prefix="another-"), no_leaks(ignore=["fds"]):
        pass
    with contextlib.ExitStack() as stack:
        with pytest.raises(LeakError, match=r"temporary file .*envmgr-"), no_leaks(ignore=["fds"]):
            stack.enter_context(tempfile.NamedTemporaryFile(prefix=f"envmgr-{os.getpid()}-"))


def test_a_temporary_file_of_another_process_is_not_ours() -> None:
    with contextlib.ExitStack() as stack, no_leaks(ignore=["fds"]):
        stack.enter_context(tempfile.NamedTemporaryFile(prefix=f"envmgr-{os.getppid()}-"))


def test_all_of_our_temporary_names_tell_whose_they_are() -> None:
    package = Path(envmgr.__file__).parent
    sources = "".join(file.read_text() for file in package.rglob("*.py"))
    names = re.findall(r'prefix=(f?"envmgr.*?)"', sources)
    assert len(names) >= 3
    assert all(name.startswith('f"envmgr-{os.getpid()}-') for name in names), names


def test_an_error_in_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), no_leaks():
        1 / 0  # noqa: B018


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no such kind of leak: sockets; there are children"):
        with no_leaks(ignore=["sockets"]):
            pass
