"""Measures how fast managers step: any env for ``bench``, one that does nothing for ``check``."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envmgr.cli.checking.layouts import Cost
from envmgr.errors import EnvManagerError
from envmgr.managers.create import create_env_manager
from envmgr.observe.trees import row, stack
from envmgr.workers.cores import usable_cores

_BANK = 16  # batches of random actions, made beforehand


def cost_of_a_step(obs_bytes: int, *, envs: int = 8, span: float = 0.05) -> Cost:
    """What a step costs beside the env's own work, for observations of a size.

    Args:
        obs_bytes: Bytes of one observation.
        envs: How many envs step together.
        span: Seconds to measure for, three times in each layout; the best counts, as the least disturbed.
    """
    from envmgr.envs.toy import PixelEnv

    fns = [functools.partial(PixelEnv, (max(1, obs_bytes),))] * envs
    cores = usable_cores()
    workers = max(1, min(cores, envs))
    configs = ({"type": "base"}, {"type": "subprocess", "num_workers": workers}, {"type": "subprocess"})
    base, few, each = (1 / max(speeds_of(config, fns, span=span, times=3)) for config in configs)
    return Cost(base, few, each, envs, cores)


def speeds_of(
    config: Mapping[str, Any],
    env_fns: Sequence[Callable[[], Any]],
    *,
    span: float,
    times: int = 1,
    warm_up: float = 0.02,
    seed: int = 0,
) -> list[float]:
    """Steps per second of a manager, all envs together, through the array face.

    It is launched, stepped for a while unmeasured, then measured, and closed. The envs are not seeded: once
    they are, ``base`` keeps Python's own generator apart for each, which no other manager has to.

    Args:
        config: Its config. With a ``wait_num`` each env gets its next action as soon as it has come back.
        env_fns: The envs.
        span: Seconds to measure for; at least one batch is waited for.
        times: How often.
        warm_up: Seconds before that.
        seed: Of the actions.
    """
    manager: Any = create_env_manager(dict(config), list(env_fns))
    try:
        manager.launch()
        bank = _actions(manager.action_space, len(env_fns), seed)
        manager.reset_arrays()
        turn = _send_and_recv(manager, bank) if "wait_num" in config else _in_step(manager, bank)
        _turns(turn, warm_up)
        return [_turns(turn, span) for _ in range(times)]
    finally:
        manager.close()


def _turns(turn: Callable[[], int], span: float) -> float:
    steps, start = 0, time.perf_counter()
    while True:
        steps += turn()
        elapsed = time.perf_counter() - start
        if elapsed >= span:
            return steps / elapsed


def _in_step(manager: Any, bank: list[Any]) -> Callable[[], int]:
    at, count = 0, manager.env_num

    def turn() -> int:
        nonlocal at
        at = (at + 1) % _BANK
        manager.step_arrays(bank[at])
        return int(count)

    return turn


def _send_and_recv(manager: Any, bank: list[Any]) -> Callable[[], int]:
    """Each env gets its next action as soon as it has come back."""
    manager.send(bank[0])
    at = 0

    def turn() -> int:
        nonlocal at
        at = (at + 1) % _BANK
        ids = manager.recv().env_id
        manager.send(row(bank[at], ids), ids)
        return len(ids)

    return turn


def _actions(space: Any, count: int, seed: int) -> list[Any]:
    if not callable(getattr(space, "sample", None)):
        raise EnvManagerError(
            f"the env's action_space is {space!r}, which has no sample(): no random actions"
        )
    if callable(getattr(space, "seed", None)):
        space.seed(seed)
    return [stack([space.sample() for _ in range(count)]) for _ in range(_BANK)]
