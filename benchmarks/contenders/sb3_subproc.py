"""Stable-Baselines3's SubprocVecEnv: one process per env, pipes and pickles.

Started by fork: by its default, forkserver, each worker imports torch, which for 64 of them takes minutes,
and changes nothing about the speed afterwards.
"""

from harness import Running, Setup, main
from stable_baselines3.common.vec_env import SubprocVecEnv


def build(setup: Setup) -> Running:
    envs = SubprocVecEnv(setup.make_fns(), start_method="fork")
    envs.seed(0)
    envs.reset()
    rows = setup.action_rows()

    def step() -> int:
        envs.step(next(rows))
        return setup.envs

    return Running(step, envs.close)


if __name__ == "__main__":
    main(build, "stable-baselines3", "gymnasium", "numpy")
