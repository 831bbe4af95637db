"""Videos of what an env plays, by Gymnasium's own recorder, for envs without ``enable_save_replay``."""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from typing import Any

from envmgr.envs.chain import find, name_of
from envmgr.errors import EnvManagerError

_count = itertools.count()


def record(env: Any, path: Any) -> Any:
    """Wraps a Gymnasium env in ``RecordVideo``: one file an episode.

    Args:
        env: The env.
        path: The folder, made if need be. Several envs may share it: file names carry the process
            id and a number.

    Raises:
        EnvManagerError: If the env is not a Gymnasium env, does not render images, or if the package
            that writes videos is missing.
    """
    name = name_of(env)
    gymnasium: Any = sys.modules.get("gymnasium")  # a Gymnasium env has imported it long ago
    if gymnasium is None or not isinstance(env, gymnasium.Env):
        raise EnvManagerError(
            f"{name} has no enable_save_replay(path), and only Gymnasium envs can be recorded from outside: "
            "give the env that method, or wrap it in a recorder inside its env_fn"
        )
    mode = find(env, "render_mode")
    if mode not in ("rgb_array", "rgb_array_list"):
        raise EnvManagerError(
            f"{name} has render_mode={mode!r} and cannot be recorded: make it with render_mode='rgb_array' "
            "(or give it a method enable_save_replay(path))"
        )
    if path is None:
        raise EnvManagerError(
            f"enable_save_replay needs a folder for the videos of {name}; it was given None"
        )
    from gymnasium.wrappers import RecordVideo

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the folder exists is what envs that share one expect
        try:
            return RecordVideo(
                env,
                os.fspath(path),
                episode_trigger=lambda episode: True,
                name_prefix=f"replay-{os.getpid()}-{next(_count)}",
            )
        except gymnasium.error.DependencyNotInstalled as error:
            raise EnvManagerError(f"{name} cannot be recorded: {error}") from error
