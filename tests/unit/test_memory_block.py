"""The nameless block of shared memory: its life, its ways into a child, what happens when there is none."""

import contextlib
import copy
import faulthandler
import gc
import mmap
import multiprocessing
import os
import pickle
import resource
import signal

import numpy as np
import pytest

from envmgr.errors import ShmError
from envmgr.memory import block as block_module
from envmgr.memory.block import SharedBlock
from tests.helpers.sync import shared_memory, wait_no_more_shared_memory


def array_of(block):
    return np.frombuffer(block.buffer, np.uint8)


def write_seven(block):
    array_of(block)[0] = 7


def write_by_descriptor(fd, nbytes):
    array_of(SharedBlock.attach(os.dup(fd), nbytes))[0] = 8


def test_starts_as_zeros_of_the_size_asked_for():
    block = SharedBlock(1000)
    assert block.nbytes == len(block.buffer) == 1000
    assert not array_of(block).any()


def test_zero_bytes_are_allowed_and_negative_ones_not():
    assert SharedBlock(0).nbytes == 0
    with pytest.raises(ValueError, match="a buffer: a size of -1 bytes"):
        SharedBlock(-1, "a buffer")


def test_attach_sees_the_same_bytes():
    block = SharedBlock(64)
    other = SharedBlock.attach(os.dup(block.fd), 64)
    array_of(block)[3] = 5
    assert array_of(other)[3] == 5


def test_attach_closes_the_descriptor_when_it_cannot_map():
    block = SharedBlock(10)
    fd = os.dup(block.fd)
    with pytest.raises(ValueError, match="mmap"):
        SharedBlock.attach(fd, 1 << 20)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_the_descriptor_goes_with_the_object_and_an_array_stays_readable():
    block = SharedBlock(1 << 16)
    fd = block.fd
    array = array_of(block)
    array[:] = 9
    del block
    gc.collect()
    with contextlib.suppress(OSError):  # closed; a number that was given out anew is another file
        assert "envmgr" not in os.readlink(f"/proc/self/fd/{fd}")
    assert (array == 9).all()


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_copy_outside_the_start_of_a_process_is_refused(how):
    with pytest.raises(TypeError, match="a process that is being started"):
        how(SharedBlock(8))


@pytest.mark.case("O06", "S01")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_of_any_start_method_writes_into_it(method):
    block = SharedBlock(64)
    child = multiprocessing.get_context(method).Process(target=write_seven, args=(block,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert array_of(block)[0] == 7


def test_a_forked_child_attaches_by_descriptor():
    block = SharedBlock(64)
    child = multiprocessing.get_context("fork").Process(target=write_by_descriptor, args=(block.fd, 64))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert array_of(block)[0] == 8


@pytest.mark.case("S02", "S03")
@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory files are Linux's")
def test_on_linux_it_has_no_name_and_is_not_bounded_by_dev_shm():
    before = shared_memory()
    block = SharedBlock(1 << 20)
    assert os.readlink(f"/proc/self/fd/{block.fd}").startswith("/memfd:envmgr")
    wait_no_more_shared_memory(before)
    assert not os.get_inheritable(block.fd)


@pytest.mark.parametrize("refusal", [None, PermissionError, NotImplementedError])
def test_without_memory_files_an_unlinked_temporary_file_takes_their_place(monkeypatch, tmp_path, refusal):
    monkeypatch.setattr(block_module.tempfile, "tempdir", str(tmp_path))
    if refusal is None:
        monkeypatch.delattr(os, "memfd_create")
    else:

        def refuse(*_):
            raise refusal("memfd_create")

        monkeypatch.setattr(os, "memfd_create", refuse)
    block = SharedBlock(4096)
    assert os.readlink(f"/proc/self/fd/{block.fd}").startswith(str(tmp_path))
    assert os.fstat(block.fd).st_nlink == 0
    assert list(tmp_path.iterdir()) == []
    write_seven(block)
    assert array_of(SharedBlock.attach(os.dup(block.fd), 4096))[0] == 7


def test_too_little_room_for_a_temporary_file_names_the_directory(monkeypatch, tmp_path):
    monkeypatch.setattr(block_module.tempfile, "tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(block_module, "temp_bytes", lambda: 100)
    with pytest.raises(ShmError, match=r"100 bytes are free.*TMPDIR \(now " + str(tmp_path)):
        SharedBlock(101)


@pytest.mark.case("S03")
def test_too_little_memory_is_said_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr("envmgr.memory.budget.available_bytes", lambda: 1 << 20)
    monkeypatch.setattr(os, "ftruncate", None)
    needed = 128 * 4 * 84 * 84 * 4
    with pytest.raises(ShmError, match=r"128 envs needs 13\.8 MiB .*1\.0 MiB are free.*--memory"):
        SharedBlock(needed, "128 envs")


@pytest.fixture
def no_big_files():
    """A limit of this process on the size of files, which memory files obey."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, old)


def test_a_refusal_by_the_system_is_an_error_with_its_cause_and_no_descriptor_left(no_big_files):
    fds = os.listdir("/proc/self/fd")
    with pytest.raises(ShmError, match=r"1\.0 MiB of shared memory.*File too large.*ulimit -f") as caught:
        SharedBlock(1 << 20)
    assert isinstance(caught.value.__cause__, OSError)
    assert os.listdir("/proc/self/fd") == fds


def test_no_address_space_is_the_same_error(monkeypatch):
    def refuse(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    fds = os.listdir("/proc/self/fd")
    with pytest.raises(ShmError, match="Cannot allocate memory"):
        SharedBlock(4096)
    assert os.listdir("/proc/self/fd") == fds


def test_a_file_system_that_cannot_allocate_ahead_is_no_reason_to_fail(monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    write_seven(SharedBlock(4096))


@pytest.mark.case("S04")
def test_many_blocks_leave_no_descriptor_and_no_mapping():
    def count():
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), sum("envmgr" in line for line in maps)

    before = count()
    for _ in range(200):
        write_seven(SharedBlock(1 << 14))
    assert count() == before


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTFORK"), reason="only Linux can leave memory out of a fork")
@pytest.mark.parametrize("kept", [False, True])
def test_what_is_kept_from_forks_is_not_there_in_one(kept):
    block = SharedBlock(100)
    if kept:
        block.keep_from_forks()
    child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()  # its report on stderr is not what is tested
            array_of(block)[0] = 3
        finally:
            os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert (ended, array_of(block)[0]) == ((-signal.SIGSEGV, 0) if kept else (0, 3))
