"""DI-engine's ``subprocess`` and (``--option async``) ``async_subprocess`` env managers: one process per env.

Driven as its collectors drive them: actions for what is in ``ready_obs``. Done envs restart by themselves.
"""

import functools
import itertools
import logging

import numpy as np
from ding.envs import AsyncSubprocessEnvManager, BaseEnv, BaseEnvTimestep, SyncSubprocessEnvManager
from harness import Running, Setup, main


class Wrapped(BaseEnv):
    """A Gymnasium env in DI-engine's form."""

    def __init__(self, make: object) -> None:
        self._env = make()  # type: ignore[operator]
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space
        self.reward_space = None
        self._seed: int | None = None

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._seed = seed

    def reset(self, **params: object) -> object:
        obs, _ = self._env.reset(seed=self._seed)
        self._seed = None
        return obs

    def step(self, action: object) -> object:
        obs, reward, terminated, truncated, info = self._env.step(action)
        return BaseEnvTimestep(obs, np.array([reward], np.float32), terminated or truncated, info)

    def close(self) -> None:
        self._env.close()

    def __repr__(self) -> str:
        return "Wrapped"


def build(setup: Setup) -> Running:
    logging.disable(logging.INFO)
    n = setup.envs
    makes = [functools.partial(Wrapped, make) for make in setup.make_fns()]
    if "async" in setup.options:
        cls, cfg = AsyncSubprocessEnvManager, {"wait_num": max(1, n // 2)}
    else:
        cls, cfg = SyncSubprocessEnvManager, {}
    full = cls.default_config()
    full.update(cfg)
    manager = cls(makes, full)
    manager.seed(0)
    manager.launch()
    bank = itertools.cycle([dict(enumerate(row)) for row in setup.actions()])

    def step() -> int:
        actions = next(bank)
        return len(manager.step({i: actions[i] for i in manager.ready_obs}))

    return Running(step, manager.close)


if __name__ == "__main__":
    main(build, "DI-engine", "gymnasium", "numpy")
