"""Tianshou's vector envs, one process per env; the caller resets what is done, as Tianshou's collector does.

``--option shmem``: ShmemVectorEnv instead of SubprocVectorEnv. ``--option half``: wait_num is half of the
envs.
"""

import numpy as np
from harness import Running, Setup, main
from tianshou.env import ShmemVectorEnv, SubprocVectorEnv


def build(setup: Setup) -> Running:
    n = setup.envs
    cls = ShmemVectorEnv if "shmem" in setup.options else SubprocVectorEnv
    half = "half" in setup.options
    envs = cls(setup.make_fns(), wait_num=max(1, n // 2) if half else None)
    envs.seed(0)
    envs.reset()
    rows = setup.action_rows()

    def step() -> int:
        _, _, terminated, truncated, _ = envs.step(next(rows))
        done = np.flatnonzero(terminated | truncated)
        if len(done):
            envs.reset(done)
        return n

    ready = np.arange(n)

    def step_half() -> int:
        nonlocal ready
        _, _, terminated, truncated, infos = envs.step(next(rows)[ready], ready)
        ready = np.array([info["env_id"] for info in infos])
        done = ready[terminated | truncated]
        if len(done):
            envs.reset(done)
        return len(ready)

    return Running(step_half if half else step, envs.close)


if __name__ == "__main__":
    main(build, "tianshou", "gymnasium", "numpy")
