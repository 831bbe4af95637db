"""EnvPool: envs in C++, with a thread pool. Its CartPole is its own: only the whole can be compared."""

import envpool
from harness import Running, Setup, main


def build(setup: Setup) -> Running:
    if setup.scenario != "cartpole":
        raise SystemExit("EnvPool steps only the envs that it ships")
    envs = envpool.make_gymnasium("CartPole-v1", num_envs=setup.envs, num_threads=setup.workers or 2, seed=0)
    envs.reset()
    rows = setup.action_rows()

    def step() -> int:
        envs.step(next(rows))
        return setup.envs

    return Running(step, envs.close)


if __name__ == "__main__":
    main(build, "envpool", "gymnasium", "numpy")
