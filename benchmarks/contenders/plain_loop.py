"""No library: one process steps its envs one after the other."""

import itertools

from harness import Running, Setup, main


def build(setup: Setup) -> Running:
    envs = [make() for make in setup.make_fns()]
    for i, env in enumerate(envs):
        env.reset(seed=i)
    bank = itertools.cycle(setup.actions().tolist())

    def step() -> int:
        for env, action in zip(envs, next(bank), strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(envs)

    return Running(step, lambda: [env.close() for env in envs])


if __name__ == "__main__":
    main(build, "gymnasium", "numpy")
