"""gymnasium.vector.AsyncVectorEnv with shared memory, as it comes: one process per env."""

import gymnasium
from harness import Running, Setup, main


def build(setup: Setup) -> Running:
    envs = gymnasium.vector.AsyncVectorEnv(setup.make_fns(), shared_memory=True)
    envs.reset(seed=0)
    rows = setup.action_rows()

    def step() -> int:
        envs.step(next(rows))
        return setup.envs

    return Running(step, envs.close)


if __name__ == "__main__":
    main(build, "gymnasium", "numpy")
