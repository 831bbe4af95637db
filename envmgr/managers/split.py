"""Which worker hosts which envs: neighbours, as evenly as it goes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any


def split(env_num: int, envs_per_worker: int, num_workers: int | None) -> list[range]:
    """The envs of each worker.

    Args:
        env_num: How many envs there are.
        envs_per_worker: How many a worker hosts at the most.
        num_workers: How many workers there are; wins over ``envs_per_worker``. Never more than envs.
    """
    if num_workers is None:
        num_workers = -(-env_num // envs_per_worker)
    workers = min(num_workers, env_num)
    size, more = divmod(env_num, workers)
    out, at = [], 0
    for w in range(workers):
        count = size + (1 if w < more else 0)
        out.append(range(at, at + count))
        at += count
    return out


def place(affinity: Any, workers: int) -> list[Sequence[int] | None]:
    """Where each worker may run.

    Args:
        affinity: None (anywhere), ``'spread'`` (one core each, in turn), or a list: one entry per worker
            (a core or a list of cores), taken in turn when it is shorter.
        workers: How many there are.
    """
    if affinity is None:
        return [None] * workers
    if affinity == "spread":
        cores = (
            sorted(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else list(range(os.cpu_count() or 1))
        )
        return [[cores[w % len(cores)]] for w in range(workers)]
    entries = list(affinity)
    return [
        [e] if isinstance(e, int) else list(e) for e in (entries[w % len(entries)] for w in range(workers))
    ]
