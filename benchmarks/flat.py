"""Whether anything grows over very many steps: memory, descriptors, threads, processes; in all processes.

    python benchmarks/flat.py                      # 100,000 calls each of three faces, episodes of 20 steps
    python benchmarks/flat.py --calls 6250         # 50,000 steps of single envs (case S05), some seconds

Each face has a process of its own, eight envs on two workers. Taken are the bytes that each process has for
itself alone (USS) and what is open, ten times on the way; the first tenth is warming up. Writes flat.json and
flat.md into benchmarks/results/trial/.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

FACES = {
    "arrays": "`step_arrays`, sync",
    "dict": "`step`, async, half of the envs at a time",
    "infos": "`step`, sync, an info in every step",
}
ENVS, WORKERS, SAMPLES = 8, 2, 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=100_000, help="of step, for each face (100000)")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "trial")
    parser.add_argument("--face", choices=sorted(FACES), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.face:
        print(json.dumps(walk(given.face, given.calls)))
        return
    paths = take(given.out, given.calls)
    print(paths[1].read_text(encoding="utf-8"))


def take(out: Path, calls: int, say: Callable[[str], None] = print) -> list[Path]:
    """Measures every face in a process of its own, and writes what was found: JSON, Markdown."""
    from table import facts_of

    found = {}
    for face in FACES:
        command = [sys.executable, __file__, "--face", face, "--calls", str(calls)]
        env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        found[face] = json.loads(done.stdout.splitlines()[-1])
        say(f"flat, {face}: {found[face]['steps']:,} steps, {found[face]['bytes_grown']} bytes grown")
    facts = facts_of("Nothing grows", {"calls": calls})
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "flat.json", out / "flat.md"]
    paths[0].write_text(json.dumps({**facts, "faces": found}, indent=1) + "\n", encoding="utf-8")
    paths[1].write_text(markdown(facts, found), encoding="utf-8")
    return paths


def markdown(facts: dict[str, Any], found: dict[str, Any]) -> str:
    """A row per face: from the end of the first tenth to the end."""
    lines = [f"# {facts['title']}", ""]
    lines += [f"{key}: {value}  " for key, value in facts.items() if key != "title"]
    lines += [
        "",
        "From after the first tenth to the end; steps are of single envs, KB are "
        "what a process has for itself (USS).",
        "",
        "| | steps | parent, KB more | nursery and workers, KB more | descriptors | processes | threads |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for face, one in found.items():
        parent, *workers = (f"{value / 1024:+.0f}" for value in one["bytes_grown"])
        counts = " | ".join(
            f"{one['early'][what]} to {one['late'][what]}" for what in ("fds", "processes", "threads")
        )
        lines.append(f"| {FACES[face]} | {one['steps']:,} | {parent} | {', '.join(workers)} | {counts} |")
    return "\n".join(lines) + "\n"


def walk(face: str, calls: int) -> dict[str, Any]:
    """Steps so often, and gives what was there early, late, and in between."""
    import psutil

    from envmgr import create_env_manager
    from envmgr.envs.toy import CounterEnv, InfoEnv

    env = InfoEnv if face == "infos" else CounterEnv
    cfg: dict[str, Any] = {"type": "async_subprocess" if face == "dict" else "subprocess"}
    if face == "dict":
        cfg.update(wait_num=ENVS // 2, step_wait_timeout=0.0)
    fns = [functools.partial(env, i, length=20) for i in range(ENVS)]
    with create_env_manager({**cfg, "num_workers": WORKERS}, fns) as manager:
        manager.launch()
        step = stepping(manager, face)
        pids = [os.getpid(), *sorted(child.pid for child in psutil.Process().children(recursive=True))]
        samples = []
        for _ in range(SAMPLES):
            for _ in range(calls // SAMPLES):
                step()
            gc.collect()
            samples.append(counts(pids))
        steps = sum(row["steps"] for row in manager.stats().values())
    early, late = samples[0], samples[-1]
    grown = [b - a for a, b in zip(early["bytes"], late["bytes"], strict=True)]
    return {
        "steps": steps,
        "bytes_grown": grown,
        "early": early,
        "late": late,
        "bytes": [sample["bytes"] for sample in samples],
    }


def stepping(manager: Any, face: str) -> Callable[[], object]:
    """One call of ``step``."""
    if face == "arrays":
        import numpy as np

        actions = np.zeros(ENVS, np.int64)
        manager.reset_arrays()
        return lambda: manager.step_arrays(actions)
    return lambda: manager.step(dict.fromkeys(manager.ready_obs, 0))


def counts(pids: list[int]) -> dict[str, Any]:
    """What each of these processes has, and how many descendants the first one has."""
    import psutil

    family = [psutil.Process(pid) for pid in pids]
    return {
        "bytes": [process.memory_full_info().uss for process in family],
        "fds": [process.num_fds() for process in family],
        "threads": [process.num_threads() for process in family],
        "processes": len(family[0].children(recursive=True)),
    }


if __name__ == "__main__":
    main()
