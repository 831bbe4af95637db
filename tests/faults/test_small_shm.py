"""A really small ``/dev/shm``, as containers have it, and a temp directory that is really full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.managers import CONTEXTS

ROOT = Path(__file__).parents[2]
NOT_ALLOWED = 77

# A process may have users of its own only while it has one thread, so before numpy is imported.
PROGRAM = """
import ctypes, os, sys, tempfile

NEW_MOUNTS, NEW_USERS, PRIVATE = 0x20000, 0x10000000, 0x44000  # of unshare(2) and mount(2)


def done(code):
    if code != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def small_shm():
    # For this process and those that it starts.
    libc, uid, gid = ctypes.CDLL(None, use_errno=True), os.geteuid(), os.getegid()
    done(libc.unshare(NEW_MOUNTS | NEW_USERS if uid else NEW_MOUNTS))
    if uid:
        for name, text in ("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1"):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    done(libc.mount(b"none", b"/", None, ctypes.c_ulong(PRIVATE), None))
    done(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", ctypes.c_ulong(0), b"size=64k"))


if __name__ == "__main__":
    try:
        small_shm()
    except OSError as error:
        print(error)
        sys.exit(77)

import numpy as np
from functools import partial
from gymnasium import spaces
from envmgr import ShmError, create_env_manager
from envmgr.memory import block
from tests.helpers import envs

frame = np.zeros((4, 84, 84), np.float32)
space = spaces.Box(-np.inf, np.inf, frame.shape, np.float32)


def launch():
    fns = [partial(envs.ObsEnv, i, space=space, observations=[frame]) for i in range(128)]
    with create_env_manager({"type": "subprocess", "context": sys.argv[1], "num_workers": 2}, fns) as manager:
        manager.launch()
        manager.reset_arrays()
        return manager.step_arrays(np.zeros(128, np.int64)).obs.shape


def refused():
    try:
        launch()
    except ShmError as error:
        print(error)
    else:
        sys.exit("it was launched")


if __name__ == "__main__":
    print(os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize)
    print(launch())
    # Where there are no memory files a temp directory takes their place: let it be this one.
    del os.memfd_create
    tempfile.tempdir = "/dev/shm"
    refused()
    # It looked free, but somebody else was quicker.
    block.temp_bytes = lambda: 1 << 40
    refused()
    print(os.listdir("/dev/shm"))
"""


@pytest.mark.case("S03")
@pytest.mark.parametrize("context", CONTEXTS)
def test_128_envs_of_four_frames_beside_64_kilobytes(tmp_path, context):
    """With memory files its size does not matter; without them it is said what is needed and what is free."""
    (tmp_path / "program.py").write_text(PROGRAM)
    run = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), context],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    if run.returncode == NOT_ALLOWED:
        pytest.skip(f"no mount namespace can be made here: {run.stdout.strip()}")
    assert run.returncode == 0, run.stdout + run.stderr
    size, shape, foreseen, refused, left = run.stdout.splitlines()
    assert size == "65536" and shape == "(128, 4, 84, 84)"
    for text in (foreseen, refused):
        assert "MiB of shared memory" in text and "are free" in text and "TMPDIR (now /dev/shm)" in text
    assert "64.0 KiB are free" in foreseen
    assert "No space left on device" in refused
    assert left == "[]"
    assert run.stderr == ""
