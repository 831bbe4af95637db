"""A really small ``/dev/shm``, as containers have it, and a temp directory that is really full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.managers import CONTEXTS

ROOT = Path(__file__).parents[2]

PROGRAM = """
import os, sys, tempfile
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
    mine = ["unshare", "-m" if os.geteuid() == 0 else "-rm"]
    tried = subprocess.run([*mine, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no mount namespace can be made here: {tried.stderr.strip()}")
    (tmp_path / "program.py").write_text(PROGRAM)
    mount = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$0" "$@"'
    run = subprocess.run(
        [*mine, "sh", "-c", mount, sys.executable, str(tmp_path / "program.py"), context],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    size, shape, foreseen, refused, left = run.stdout.splitlines()
    assert size == "65536" and shape == "(128, 4, 84, 84)"
    for text in (foreseen, refused):
        assert "MiB of shared memory" in text and "are free" in text and "TMPDIR (now /dev/shm)" in text
    assert "64.0 KiB are free" in foreseen
    assert "No space left on device" in refused
    assert left == "[]"
    assert run.stderr == ""
