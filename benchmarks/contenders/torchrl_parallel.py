"""torchrl's ParallelEnv: one process per env, tensors in shared memory; done envs restart by themselves."""

import functools
import itertools

import torch
from harness import Running, Setup, main
from torchrl.envs import GymWrapper, ParallelEnv


def wrapped(make: object) -> object:
    return GymWrapper(make(), categorical_action_encoding=True)  # type: ignore[operator]


def build(setup: Setup) -> Running:
    torch.set_num_threads(1)
    makes = [functools.partial(wrapped, make) for make in setup.make_fns()]
    envs = ParallelEnv(setup.envs, makes, mp_start_method="fork")
    data = envs.reset()
    rows = itertools.cycle(torch.as_tensor(setup.actions()).unbind(0))

    def step() -> int:
        nonlocal data
        data["action"] = next(rows)
        _, data = envs.step_and_maybe_reset(data)
        return setup.envs

    return Running(step, envs.close)


if __name__ == "__main__":
    main(build, "torchrl", "torch", "gymnasium", "numpy")
