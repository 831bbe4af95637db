"""envmgr's ``subprocess`` manager by its dict face; ``--workers`` as num_workers."""

import itertools

from harness import Running, Setup, main

from envmgr import create_env_manager


def build(setup: Setup) -> Running:
    cfg = {"type": "subprocess", "num_workers": setup.workers}
    manager = create_env_manager(cfg, setup.make_fns())
    manager.seed(0)
    manager.launch()
    bank = itertools.cycle([dict(enumerate(row)) for row in setup.actions().tolist()])
    n = setup.envs
    everyone = len(manager.ready_obs) == n

    def step() -> int:
        nonlocal everyone
        actions = next(bank)
        if not everyone:  # some are in their automatic reset
            actions = {i: actions[i] for i in manager.ready_obs}
        timesteps = manager.step(actions)
        everyone = not any(timestep.done for timestep in timesteps.values()) and len(timesteps) == n
        return len(timesteps)

    return Running(step, manager.close)


if __name__ == "__main__":
    main(build, "envmgr", "gymnasium", "numpy")
