"""Workers that are killed from outside, at any moment: in a call, in a row, while they announce it.

What is told then is a good step or an abnormal one. An abnormal timestep holds the last good observation, or
zeros where that was written over already; never what a step had left that nobody is told of.
"""

from __future__ import annotations

import os
import random
import signal
import threading

import numpy as np
import pytest
from gymnasium import spaces

from envmgr import WorkerDied
from tests.helpers import envs
from tests.helpers.managers import kinds, many, wait_ready

KILLS = 20


class StoryEnv(envs.CounterEnv):
    """Its observation is the same number everywhere: how many steps this very process has made."""

    def __init__(self, env_id=0, size=5, infos=False):
        super().__init__(env_id, length=7)
        self.observation_space = spaces.Box(0, 1e9, (size,), np.float64)
        self.infos, self.made = infos, 0

    def _look(self):
        return np.full(self.observation_space.shape, self.made, np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset()
        self.made += 1
        return self._look(), {}

    def step(self, action):
        _, _, terminated, truncated, _ = super().step(action)
        self.made += 1
        return self._look(), float(self.made), terminated, truncated, {"n": self.made} if self.infos else {}


class Killer:
    """Kills workers of a manager in a thread of its own, each at a random moment after a good step."""

    def __init__(self, manager, workers):
        self._manager, self._workers = manager, workers
        self._random = random.Random(7)
        self._over = threading.Event()
        self._good_step = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.kills = 0

    def _run(self):
        while self.kills < KILLS:
            self._good_step.wait()
            if self._over.wait(self._random.uniform(0, 0.02)):
                return
            pid = self._manager._engine.pool.pid(self._random.randrange(self._workers))
            if pid is not None:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.kills += 1
                self._good_step.clear()

    def saw_good_step(self):
        """The next kill may come."""
        self._good_step.set()

    @property
    def done(self):
        return not self._thread.is_alive()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._good_step.set()
        self._thread.join()


def number(obs):
    """What stands in all of an observation."""
    assert np.ptp(obs) == 0, f"torn, or of two steps: {sorted(set(obs.tolist()))}"
    return float(obs[0])


@pytest.mark.case("O08", "O15", "O17")
@pytest.mark.parametrize(("size", "infos"), [(5, False), (3000, True)], ids=["", "large, infos"])
@pytest.mark.parametrize(("n", "workers"), [(3, 3), (6, 2)])
@kinds("subprocess-fork", "async_subprocess-fork", "subprocess-forkserver")
def test_abnormal_timesteps_hold_the_last_good_observation_or_zeros(make, n, workers, size, infos):
    manager = make.launched(
        many(StoryEnv, n, size=size, infos=infos),
        num_workers=workers,
        on_error="reset",
        max_renewals=10**6,
        max_retry=10**6,
        retry_waiting_time=0.001,
    )
    last = {i: number(obs) for i, obs in wait_ready(manager).items()}
    abnormal = 0
    with Killer(manager, workers) as killer:
        while not killer.done:
            ready = manager.ready_obs
            for i, obs in ready.items():
                assert last.setdefault(i, number(obs)) == number(obs)
            for i, ts in manager.step(dict.fromkeys(ready, 0)).items():
                if ts.info.get("abnormal", False):
                    abnormal += 1
                    assert isinstance(ts.info["err"], WorkerDied) and ts.done and float(ts.reward) == 0
                    assert number(ts.obs) in (0, last[i])
                else:
                    killer.saw_good_step()
                    assert number(ts.obs) == float(ts.reward) == last[i] + 1
                    assert ts.info.get("n", last[i] + 1) == last[i] + 1
                last[i] = number(ts.obs)
                if ts.done:
                    del last[i]
    assert killer.kills == KILLS and abnormal
