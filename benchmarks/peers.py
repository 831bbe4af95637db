"""Makes an environment of its own for each peer, under .venvs/, and says which could be installed.

    python benchmarks/peers.py                 # all, in turn; what is there already is left as it is
    python benchmarks/peers.py sb3 tianshou    # some
    python benchmarks/peers.py --again ding    # anew
    python benchmarks/peers.py --list

Peers pin each other's dependencies out of the way, hence one environment each. torch is held at one release,
as in the repository's own environment: every other one would be some gigabytes more.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from roster import VENVS  # noqa: E402

TORCH = "torch==2.13.0"

# DI-engine holds setuptools and flask at releases that today's torch does not go with.
_DING_NEEDS = [
    "gym",
    "DI-treetensor",
    "DI-toolkit",
    "trueskill",
    "tensorboardX",
    "matplotlib",
    "easydict",
    "pyyaml",
    "enum-tools",
    "cloudpickle",
    "hickle",
    "tabulate",
    "click",
    "flask",
    "requests",
    "responses",
    "URLObject",
    "pynng",
    "sniffio",
    "redis",
    "mpire",
    "einops",
]


class Peer(NamedTuple):
    """A library to compare with.

    Attributes:
        name: Of its environment, and of its entries in the roster.
        packages: What pip is asked for.
        probe: What must be importable for it to count as installed.
        alone: Packages that are installed last, without what they ask for; as far as it is needed, that is
            among ``packages``. For those whose own pins cannot be met any more.
    """

    name: str
    packages: list[str]
    probe: str
    alone: tuple[str, ...] = ()


PEERS = {
    peer.name: peer
    for peer in (
        Peer("sb3", ["stable-baselines3", "gymnasium", TORCH], "stable_baselines3.common.vec_env"),
        Peer("tianshou", ["tianshou", "gymnasium", TORCH], "tianshou.env"),
        Peer("torchrl", ["torchrl", "gymnasium", TORCH], "torchrl.envs"),
        Peer(
            "ding",
            ["gymnasium", "numpy<2", "setuptools<81", TORCH, *_DING_NEEDS],
            "ding.envs",
            ("DI-engine==0.5.3",),
        ),
        Peer(
            "puffer", ["pufferlib==1.0.1", "gymnasium", "psutil", "setuptools<81", TORCH], "pufferlib.vector"
        ),
        Peer("envpool", ["envpool", "gymnasium"], "envpool"),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="peer", help=f"of {', '.join(PEERS)}; all by default")
    parser.add_argument("--again", action="store_true", help="make environments anew that are there")
    parser.add_argument("--list", action="store_true", help="only say which are installed")
    given = parser.parse_args()
    unknown = set(given.names) - set(PEERS)
    if unknown:
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    for name in given.names or PEERS:
        if given.list:
            print(f"{name}: {state(PEERS[name])}")
        else:
            print(f"{name}: {install(PEERS[name], again=given.again)}", flush=True)


def state(peer: Peer) -> str:
    """Whether it is installed, or why not."""
    for mark in ("installed", "failed"):
        path = VENVS / peer.name / mark
        if path.exists():
            return f"{mark}: {path.read_text().strip().splitlines()[-1]}"
    return "not tried yet"


def install(peer: Peer, *, again: bool = False) -> str:
    """Makes the environment, and says how that went; the whole of what pip said is in its ``log``."""
    home = VENVS / peer.name
    if (home / "installed").exists() and not again:
        return state(peer)
    shutil.rmtree(home, ignore_errors=True)
    begin = time.monotonic()
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "-q"]
    steps = [
        [*pip, *peer.packages],
        *([*pip, "--no-deps", package] for package in peer.alone),
        [python, "-W", "ignore", "-c", f"import {peer.probe}"],
    ]
    log = ""
    for step in steps:
        done = subprocess.run(
            step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=home
        )
        log += done.stdout
        if done.returncode != 0:
            (home / "log").write_text(log)
            (home / "failed").write_text(_reason(done.stdout))
            return state(peer)
    freeze = [python, "-m", "pip", "freeze", "--disable-pip-version-check"]
    listed = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = {_normal(package) for package in (*peer.packages, *peer.alone, "numpy")}
    versions = ", ".join(line for line in listed if _normal(line) in wanted)
    (home / "log").write_text(log)
    (home / "installed").write_text(f"{versions} ({time.monotonic() - begin:.0f} s)\n")
    return state(peer)


def _normal(requirement: str) -> str:
    """The name in a requirement, spelled as all spell it."""
    return re.split(r"[=<>~!\[ ]", requirement)[0].lower().replace("_", "-")


def _reason(output: str) -> str:
    """The line of pip's, or of a traceback's, that says why."""
    lines = [line.strip() for line in output.strip().splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line or "Error" in line]
    return (errors or lines or ["no word"])[-1] + "\n"


if __name__ == "__main__":
    main()
