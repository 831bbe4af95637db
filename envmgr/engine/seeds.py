"""Which seed an env gets at its next reset: pure bookkeeping.

An env's seed is used once, and its own generator runs on from there. A renewed env must not start
with episode 0 again, so it gets a fresh child of its seed, from (its seed, env_id, how often it was
renewed), which no other env and no other renewal has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envmgr.errors import ConfigError
from envmgr.workers.hygiene import derive

_LIMIT = 2**32 - 1  # what every generator of the field takes (numpy's legacy one is the narrowest)

_RENEWAL = 0x72656E65  # keeps the seeds of renewals apart from those of dynamic episodes

PLAIN, STATIC, DYNAMIC = 1, 2, 3
"""How a seed is handed over: as it is; or through the env's own ``seed``, ``dynamic_seed`` False or True."""


class SeedBook:
    """The seeds of all envs.

    Args:
        env_num: How many envs there are.
        mode: ``'offset'`` (env i gets seed + i) or ``'spawn'`` (its child of one SeedSequence).
    """

    def __init__(self, env_num: int, mode: str = "offset") -> None:
        self._n = env_num
        self._mode = mode
        self._base: list[int | None] = [None] * env_num
        self._next: list[int | None] = [None] * env_num
        self._dynamic: list[bool | None] = [None] * env_num
        self._own_dynamic: list[bool] = [False] * env_num
        self._episode = [0] * env_num
        self._renewals = [0] * env_num
        self._taken: list[tuple[int | None, int] | None] = [None] * env_num
        self.fresh: set[int] = set()
        """Envs that were given a seed since somebody last looked; whoever looks takes them out."""

    def set(self, seed: Any, dynamic_seed: bool | None = None) -> dict[int, int | None]:
        """Takes ``manager.seed``'s argument: an int, a list (one per env), a dict or None.

        Returns:
            env_id -> its seed, for those that were named.
        """
        seeds = self._spread(seed)
        for i, s in seeds.items():
            self._base[i] = self._next[i] = s
            self._dynamic[i] = dynamic_seed
            self._episode[i] = self._renewals[i] = 0
            self._taken[i] = None
        self.fresh.update(seeds)
        return seeds

    def _spread(self, seed: Any) -> dict[int, int | None]:
        n = self._n
        if isinstance(seed, np.ndarray) and seed.ndim == 0:
            seed = seed[()]
        if seed is None:
            return dict.fromkeys(range(n))
        if isinstance(seed, Mapping):
            out: dict[int, int | None] = {}
            for i, s in seed.items():
                if isinstance(i, bool) or not isinstance(i, int | np.integer) or not 0 <= int(i) < n:
                    raise ConfigError(f"seed names env {i!r}; this manager has the envs 0 to {n - 1}")
                out[int(i)] = None if s is None else _checked(s)
            return out
        if isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str | bytes):
            if len(seed) != n:
                raise ConfigError(
                    f"seed is a list of {len(seed)}; this manager has {n} envs, give one seed for each"
                )
            return {i: None if s is None else _checked(s) for i, s in enumerate(seed)}
        base = _checked(seed)
        if self._mode == "spawn":
            children = np.random.SeedSequence(base).spawn(n)
            return {i: int(child.generate_state(1, np.uint32)[0]) for i, child in enumerate(children)}
        return {i: (base + i) & _LIMIT for i in range(n)}

    def base(self, env_id: int) -> int | None:
        """The seed that was set for an env, None for none."""
        return self._base[env_id]

    def passes_dynamic(self, env_id: int) -> None:
        """Says that this env's own ``seed`` takes ``dynamic_seed`` and varies the seed itself."""
        self._own_dynamic[env_id] = True

    def renewed(self, env_id: int) -> None:
        """The env was built anew: its next seed is a fresh child."""
        base = self._base[env_id]
        self._renewals[env_id] += 1
        if base is not None:
            self._next[env_id] = derive(base, env_id, self._renewals[env_id], _RENEWAL) & _LIMIT

    def give_back(self, env_id: int) -> None:
        """The reset that took a seed failed: the next attempt gets the same one."""
        taken = self._taken[env_id]
        if taken is not None:
            self._next[env_id], self._episode[env_id] = taken

    def take(self, env_id: int) -> tuple[int, int] | None:
        """The seed for the next reset of this env as (seed, how), or None for none; it counts as used."""
        seed = self._next[env_id]
        self._taken[env_id] = None if seed is None else (seed, self._episode[env_id])
        if seed is None:
            return None
        dynamic = self._dynamic[env_id]
        if self._own_dynamic[env_id]:
            self._next[env_id] = None
            return seed, PLAIN if dynamic is None else DYNAMIC if dynamic else STATIC
        if dynamic:
            self._episode[env_id] += 1
            self._next[env_id] = derive(seed, env_id, self._episode[env_id]) & _LIMIT
        else:
            self._next[env_id] = None
        return seed, PLAIN


def _checked(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ConfigError(f"a seed is a whole number of at least 0, not {seed!r} ({type(seed).__name__})")
    if not 0 <= int(seed) <= _LIMIT:
        raise ConfigError(f"a seed is between 0 and {_LIMIT}, not {seed!r}")
    return int(seed)
