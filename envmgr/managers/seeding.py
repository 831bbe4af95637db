"""Seeds, and where replays go: what is said before a reset and holds from there on."""

from __future__ import annotations

import os
from typing import Any

from envmgr.engine.calls import Call, call_envs
from envmgr.engine.engine import Engine
from envmgr.errors import ConfigError
from envmgr.managers.face import Face


class Seeding(Face):
    """Seeds and replay paths outlive a launch."""

    def seed(self, seed: Any, dynamic_seed: bool | None = None) -> None:
        """Sets the seeds that the next resets use; the envs' own generators run on from there.

        Args:
            seed: An int (env i gets seed + i, or its child with ``seed_mode='spawn'``), a list with one
                seed per env, a dict ``{env_id: seed}`` that leaves the others alone, or None for chance.
            dynamic_seed: True: another seed for every episode, derived from the seed. None, False: the seed
                is used once. Envs whose own ``seed`` takes ``dynamic_seed`` are told.

        Raises:
            ConfigError: Not a whole number of at least 0, a list of another length, an unknown env_id.
        """
        with self._calling:
            self._check_process()
            if dynamic_seed is not None and not isinstance(dynamic_seed, bool):
                raise ConfigError(f"dynamic_seed is True, False or None, not {dynamic_seed!r}")
            for i in self._seeds.set(seed, dynamic_seed):
                self._action_spaces.pop(i, None)

    def enable_save_replay(self, replay_path: Any) -> None:
        """Has the envs save replays from their next reset on; kept over a relaunch.

        Args:
            replay_path: A directory for all, or a list with one per env; None forgets what was said, from the
                next launch on.

        Raises:
            ConfigError: Neither of these, or a list of another length.
        """
        with self._calling:
            self._check_process()
            if replay_path is None:
                self._replay_paths = None
                return
            if isinstance(replay_path, str | os.PathLike):
                paths = [os.fspath(replay_path)] * self._env_num
            else:
                try:
                    paths = [os.fspath(p) for p in replay_path]
                except TypeError:
                    raise ConfigError(
                        "replay_path is a directory (a str or a path) for all envs, or a list with one per "
                        f"env, not {replay_path!r}"
                    ) from None
                if len(paths) != self._env_num:
                    raise ConfigError(
                        f"replay_path is a list of {len(paths)}; this manager has {self._env_num} envs"
                    )
            if self._engine is not None and self._launched:
                self._send_replay_paths(self._running(), paths)
            self._replay_paths = paths  # not before: paths that no env takes must not spoil the next launch

    def _send_replay_paths(self, engine: Engine, paths: list[str]) -> None:
        call_envs(engine, [Call(i, "call", "enable_save_replay", (path,)) for i, path in enumerate(paths)])
