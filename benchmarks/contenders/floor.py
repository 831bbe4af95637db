"""The floor: the least that any library of this shape can do, as a sketch without features.

Forked workers, numpy arrays in shared memory with a byte per worker that says that there is work and one
that says that it is done, at which both sides look, giving way to each other (a worker for a millisecond,
then it sleeps on a pipe; the caller without end): the same doorbells and rows as envmgr. No errors, no
timeouts, no states, no infos, no automatic restart of anything but the env itself. What a contender is
measured against when one asks how close it is to the limit. ``--workers`` says how many processes share the
envs; with ``--option bells`` nobody looks: a worker that sleeps is rung for, and every answer is a ring.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from typing import Any

import numpy as np
from harness import Running, Setup, main

LOOKS = 1e-3  # seconds
FENCE = threading.Lock()


def shared(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array that a fork shares instead of copying."""
    dtype = np.dtype(dtype)
    size = max(1, int(np.prod(shape)) * dtype.itemsize)
    return (
        np.frombuffer(mmap.mmap(-1, size), np.uint8, size).view(dtype)[: int(np.prod(shape))].reshape(shape)
    )


def leaves_of(space: Any) -> list[tuple[str | None, tuple[int, ...], Any]]:
    """Key, shape and dtype of each leaf of a space: a lone one, or those of a flat Dict."""
    if hasattr(space, "keys"):
        return [(key, space[key].shape, space[key].dtype) for key in space]
    return [(None, space.shape, space.dtype)]


def fence() -> None:
    """Orders stores against later loads."""
    FENCE.acquire()
    FENCE.release()


def heard(bell: int, asked: Any, awake: Any, me: int, looks: float) -> bool:
    """Waits for work: polls for so many seconds, then sleeps. False at the end."""
    until = time.perf_counter() + looks
    while not asked[me]:
        if looks and time.perf_counter() < until:
            os.sched_yield()
            continue
        awake[me] = 0
        fence()
        if not asked[me] and not os.read(bell, 1):
            return False
        awake[me] = 1
    return True


def work(
    makes: list[Any], lo: int, me: int, bell: int, reply: int, arrays: tuple[Any, ...], looks: float
) -> None:
    """A worker's life: envs ``lo`` and up."""
    leaves, obs_arrays, actions, rewards, terminated, truncated, bytes_ = arrays
    asked, done, awake = (memoryview(row) for row in bytes_)
    envs = [make() for make in makes]
    steps = [env.step for env in envs]
    rows = [[array[lo + k : lo + k + 1] for array in obs_arrays] for k in range(len(envs))]
    keys = [key for key, _, _ in leaves]
    plain = keys == [None]
    acts, rews = memoryview(actions)[lo:], memoryview(rewards)[lo:]
    terms, truncs = memoryview(terminated)[lo:], memoryview(truncated)[lo:]

    def put(k: int, obs: Any) -> None:
        if plain:
            rows[k][0][0] = obs
        else:
            for key, row in zip(keys, rows[k], strict=True):
                row[0] = obs[key]

    for k, env in enumerate(envs):
        put(k, env.reset(seed=lo + k)[0])
    os.write(reply, b"r")
    while heard(bell, asked, awake, me, looks):
        asked[me] = 0
        for k, step in enumerate(steps):
            obs, reward, term, trunc, _ = step(acts[k])
            if term or trunc:
                obs, _ = envs[k].reset()
            put(k, obs)
            rews[k] = reward
            terms[k] = term
            truncs[k] = trunc
        done[me] = 1
        if not looks:
            os.write(reply, b"s")


def build(setup: Setup) -> Running:
    looks = 0.0 if "bells" in setup.options else LOOKS
    n, w = setup.envs, min(setup.workers or setup.envs, setup.envs)
    makes = setup.make_fns()
    probe = makes[0]()
    leaves = leaves_of(probe.observation_space)
    obs_arrays = [shared((n, *shape), dtype) for _, shape, dtype in leaves]
    actions, rewards = shared((n,), np.int64), shared((n,), np.float64)
    terminated, truncated = shared((n,), np.uint8), shared((n,), np.uint8)
    bytes_ = shared((3, w), np.uint8)
    arrays = (leaves, obs_arrays, actions, rewards, terminated, truncated, bytes_)
    asked, done, awake = (memoryview(row) for row in bytes_)
    awake[:] = all_ones = b"\x01" * w
    nothing = bytes(w)
    replies, reply = os.pipe()
    bells: list[int] = []
    bounds = [n * k // w for k in range(w + 1)]
    for me, (lo, hi) in enumerate(itertools.pairwise(bounds)):
        hear, ring = os.pipe()
        if os.fork() == 0:
            for fd in (*bells, ring, replies):  # or the others' end would not be seen
                os.close(fd)
            try:
                work(makes[lo:hi], lo, me, hear, reply, arrays, looks)
            finally:
                os._exit(0)
        os.close(hear)
        bells.append(ring)
    rows = setup.action_rows()

    def gather() -> None:
        missing = w
        while missing:
            missing -= len(os.read(replies, missing))

    def step() -> int:
        actions[:] = next(rows)
        done[:] = nothing
        asked[:] = all_ones
        fence()
        if awake.tobytes() != all_ones:
            for me, bell in enumerate(bells):
                if not awake[me]:
                    os.write(bell, b"w")
        if not looks:
            gather()
        while done.tobytes() != all_ones:
            os.sched_yield()
        _ = [array.copy() for array in obs_arrays]
        _ = rewards.copy(), terminated.copy(), truncated.copy()
        return n

    def close() -> None:
        for bell in bells:
            os.close(bell)
        for _ in bells:
            os.wait()

    gather()
    return Running(step, close)


if __name__ == "__main__":
    main(build, "gymnasium", "numpy")
