"""A block of memory that processes share and that has no name.

On Linux an anonymous memory file, elsewhere on Unix a temporary file that is unlinked at once: when
the last process that holds it is gone, however it went, so is the memory. It is not bounded by the
size of /dev/shm. The block is seen as a ctypes array over a mapping; numpy arrays made of that keep
the mapping alive, so nothing is ever unmapped by hand and an array outlives its manager.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import sys
import tempfile
import weakref
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

from envmgr.errors import ShmError
from envmgr.memory.budget import available_bytes, readable, require, temp_bytes, too_little


class SharedBlock:
    """Bytes that every process sees which has the descriptor; zeros at first.

    A process that is forked has it; one that is started in another way is given it as an argument of
    multiprocessing's ``Process``, or is sent the descriptor and calls ``attach``.

    Args:
        nbytes: The size; 0 is one byte in truth.
        what: What it is for, for the message when there is too little memory.

    Attributes:
        fd: The descriptor, to hand to other processes; closed with the object.
        nbytes: The size.
        buffer: The bytes as a ctypes array.

    Raises:
        ShmError: There is too little memory, with how much is needed, how much is free, and what to do.
    """

    fd: int
    nbytes: int
    buffer: ctypes.Array[ctypes.c_ubyte]

    def __init__(self, nbytes: int, what: str = "envmgr") -> None:
        if nbytes < 0:
            raise ValueError(f"{what}: a size of {nbytes} bytes")
        fd = _memory_file(nbytes, what)
        try:
            _allocate(fd, max(1, nbytes))
            self._map(fd, nbytes)
        except OSError as error:
            os.close(fd)
            if error.errno == errno.EFBIG:
                raise ShmError(
                    f"{what} needs {readable(nbytes)} of shared memory in one piece; this process may not "
                    f"make files of that size ({error.strerror}); raise that limit (ulimit -f unlimited)"
                ) from error
            raise too_little(nbytes, what, available_bytes(), str(error.strerror)) from error
        except BaseException:  # a Ctrl-C too: the file has no name, so nobody else could close it
            os.close(fd)
            raise

    def _map(self, fd: int, nbytes: int) -> None:
        size = max(1, nbytes)
        # A mapping keeps a duplicate of the descriptor, which nobody needs, where it cannot be told not to.
        options: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        mapping = mmap.mmap(fd, size, **options)
        self._mapping = mapping
        self.buffer = (ctypes.c_ubyte * size).from_buffer(mapping)
        self.fd = fd
        self.nbytes = nbytes
        weakref.finalize(self, _close, fd)

    @classmethod
    def attach(cls, fd: int, nbytes: int) -> SharedBlock:
        """The block of another process, by a descriptor that is this object's own from now on."""
        block = cls.__new__(cls)
        try:
            block._map(fd, nbytes)
        except BaseException:  # as above: the descriptor is this object's own already
            _close(fd)
            raise
        return block

    def keep_from_forks(self) -> None:
        """Leaves the bytes out of every process that this one forks, where the system can do that (Linux).

        Whoever touches them there is killed by SIGSEGV, and what stands in them stays whole.
        """
        if hasattr(mmap, "MADV_DONTFORK"):
            with contextlib.suppress(OSError):
                self._mapping.madvise(mmap.MADV_DONTFORK)

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            raise TypeError(
                "shared memory can be handed to a process that is being started (as an argument of "
                "multiprocessing's Process), but not pickled or copied otherwise"
            )
        return _attach, (reduction.DupFd(self.fd), self.nbytes)


def _memory_file(nbytes: int, what: str) -> int:
    if hasattr(os, "memfd_create"):
        require(nbytes, what)
        with contextlib.suppress(PermissionError, NotImplementedError):
            return os.memfd_create("envmgr", os.MFD_CLOEXEC)
    require(nbytes, what, temp_bytes())
    fd, path = tempfile.mkstemp(prefix=f"envmgr-{os.getpid()}-")
    os.unlink(path)
    return fd


def _allocate(fd: int, nbytes: int) -> None:
    """Takes the memory now: too little of it is an OSError here, and SIGBUS at a later touch."""
    os.ftruncate(fd, nbytes)
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):  # some temp directories cannot
            raise


def _attach(dup: Any, nbytes: int) -> SharedBlock:
    return SharedBlock.attach(dup.detach(), nbytes)


def _close(fd: int) -> None:
    with contextlib.suppress(OSError):
        os.close(fd)
