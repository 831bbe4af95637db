"""A block of memory that processes share and that has no name.

On Linux an anonymous memory file, elsewhere on Unix a temporary file that is unlinked at once: when
the last process that holds it is gone, however it went, so is the memory. It is not bounded by the
size of /dev/shm. The block is seen as a ctypes array over a mapping; numpy arrays made of that keep
the mapping alive, so nothing is ever unmapped by hand and an array outlives its manager.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import tempfile
import weakref
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

from envmgr.errors import ShmError
from envmgr.memory.budget import require, temp_bytes


class SharedBlock:
    """Bytes that every process sees which has the descriptor.

    Args:
        nbytes: The size; 0 is one byte in truth.
        what: What it is for, for the message when there is too little memory.

    Attributes:
        fd: The descriptor, to hand to other processes.
        nbytes: The size.
        buffer: The bytes as a ctypes array.

    Raises:
        ShmError: There is too little memory, with how much is needed, how much is free, and what to do.
    """

    def __init__(self, nbytes: int, what: str = "envmgr") -> None:
        if hasattr(os, "memfd_create"):
            require(nbytes, what)
            fd = os.memfd_create("envmgr", os.MFD_CLOEXEC)
        else:
            require(nbytes, what, temp_bytes())
            fd, path = tempfile.mkstemp(prefix=f"envmgr-{os.getpid()}-")
            os.unlink(path)
        try:
            self._allocate(fd, max(1, nbytes), what)
        except BaseException:
            os.close(fd)
            raise
        self._map(fd, nbytes)

    @staticmethod
    def _allocate(fd: int, nbytes: int, what: str) -> None:
        os.ftruncate(fd, nbytes)
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(fd, 0, nbytes)  # fails here, rather than with SIGBUS at a later touch
            except OSError as error:
                raise ShmError(
                    f"{what} could not get {nbytes} bytes of shared memory: {error.strerror}. Use fewer envs or "
                    "smaller observations, or give the container more memory"
                ) from error

    def _map(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        self.nbytes = nbytes
        size = max(1, nbytes)
        self.buffer = (ctypes.c_ubyte * size).from_buffer(mmap.mmap(fd, size))
        self._finalizer = weakref.finalize(self, _close, fd)

    @classmethod
    def attach(cls, fd: int, nbytes: int) -> SharedBlock:
        """The block of another process, by a descriptor that is this process's own from now on."""
        block = cls.__new__(cls)
        block._map(fd, nbytes)
        return block

    def __reduce__(self) -> Any:
        if get_spawning_popen() is None:
            raise TypeError(
                "shared memory can be handed to a process that is being started (as an argument of "
                "multiprocessing's Process), but not pickled otherwise"
            )
        return _attach, (reduction.DupFd(self.fd), self.nbytes)


def _attach(dup: Any, nbytes: int) -> SharedBlock:
    return SharedBlock.attach(dup.detach(), nbytes)


def _close(fd: int) -> None:
    with contextlib.suppress(OSError):
        os.close(fd)
