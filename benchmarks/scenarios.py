"""The envs that everything is measured on, the same objects for every contender.

Nothing here needs envmgr to be installed: a contender's Python only needs numpy and gymnasium, and this
repository in its path (the toy envs are ours; their module imports nothing else of envmgr).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Scenario(NamedTuple):
    """An env, and what it is here for. ``make(env_id)`` builds one."""

    name: str
    about: str
    make: Callable[[int], Any]


def _null(env_id: int) -> Any:
    from envmgr.envs.toy import NullEnv

    return NullEnv()


def _pix(env_id: int) -> Any:
    from envmgr.envs.toy import PixelEnv

    return PixelEnv((4, 84, 84))


def _flat(size: int, env_id: int) -> Any:
    from envmgr.envs.toy import PixelEnv

    return PixelEnv((size,))


def _slow_start(env_id: int) -> Any:
    import psutil

    time.sleep(1.0)
    env = _null(env_id)
    env.up_after = time.time() - psutil.Process().create_time()  # seconds that its process has lived
    return env


def _dict(env_id: int) -> Any:
    from envmgr.envs.toy import DictEnv

    return DictEnv()


def _infos(env_id: int) -> Any:
    from envmgr.envs.toy import InfoEnv

    return InfoEnv(env_id, length=None)


def _sleepy(env_id: int) -> Any:
    from envmgr.envs.toy import SleepyEnv

    return SleepyEnv(0.0, 0.002, rng_seed=env_id)


def _cartpole(env_id: int) -> Any:
    import gymnasium

    # Without the checker, which is for debugging and would be most of the time of a step.
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


SCENARIOS = {
    s.name: s
    for s in (
        Scenario("null", "an env that does nothing, Box(4) float32: what is left is the library", _null),
        Scenario("cartpole", "Gymnasium's CartPole-v1, its resets included", _cartpole),
        Scenario("pix", "an env that does nothing, Box(4, 84, 84) uint8", _pix),
        Scenario("16b", "an env that does nothing, 16 bytes of observation", functools.partial(_flat, 16)),
        Scenario("1kb", "the same with a kilobyte", functools.partial(_flat, 1_000)),
        Scenario("32kb", "the same with 32 kilobytes", functools.partial(_flat, 32_000)),
        Scenario("1mb", "the same with a megabyte", functools.partial(_flat, 1_000_000)),
        Scenario("dict", "an env that does nothing, Dict of an image, a vector and a number", _dict),
        Scenario("infos", "a counter with an info dict in every step", _infos),
        Scenario("sleepy", "an env that sleeps 0 to 2 ms in each step, uniformly", _sleepy),
        Scenario("slow_start", "an env that does nothing, and takes a second to build", _slow_start),
    )
}
