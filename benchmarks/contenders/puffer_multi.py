"""PufferLib's Multiprocessing: shared memory, and both sides poll without sleeping.

``--workers``: processes; as each needs a core of its own, one by default.
"""

import functools
import os

import pufferlib.emulation
import pufferlib.vector
from harness import Running, Setup, main


def puffer_env(make: object) -> object:
    return pufferlib.emulation.GymnasiumPufferEnv(env_creator=make)


def build(setup: Setup) -> Running:
    envs = pufferlib.vector.make(
        functools.partial(puffer_env, setup.make_fns()[0]),
        num_envs=setup.envs,
        num_workers=setup.workers or 1,
        backend=pufferlib.vector.Multiprocessing,
    )
    envs.async_reset(0)
    envs.recv()
    rows = setup.action_rows()

    def step() -> int:
        envs.send(next(rows))
        envs.recv()
        return setup.envs

    def close() -> None:
        for process in envs.processes:
            process.kill()

    return Running(step, close)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(build, "pufferlib", "gymnasium", "numpy")
