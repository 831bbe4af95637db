"""What the parts of a manager's face share: which attributes there are, and nothing else.

The face is one class to its users and to its subclasses, and one idea per file to its readers: ``stepping``,
``reading``, ``spaces``, ``seeding`` and ``attributes`` are mixins of ``base.BaseEnvManager``, which has the
life. Mixins rather than parts that are called, so that a step is not one call longer.
"""

from __future__ import annotations

import threading
from typing import Any

from easydict import EasyDict

from envmgr.engine.engine import Engine
from envmgr.engine.seeds import SeedBook
from envmgr.managers.arrays import ArrayFace


class Face:
    """The attributes of a manager, that ``BaseEnvManager`` sets, and what its mixins ask of it."""

    _engine: Engine | None
    _cfg: EasyDict
    _env_num: int
    _calling: threading.RLock  # type: ignore[valid-type,unused-ignore]
    _seeds: SeedBook
    _arrays: ArrayFace | None
    _every: list[int]
    _launched: bool
    _was_closed: bool
    _replay_paths: list[str] | None
    _action_spaces: dict[int, Any]
    _last_stats: dict[int, dict[str, Any]]

    def _check_process(self) -> None:
        """IllegalStateError in a child that was forked from this process."""
        raise NotImplementedError

    def _connected(self) -> Engine:
        """The engine; its workers are up, but nothing need have been reset."""
        raise NotImplementedError

    def _running(self) -> Engine:
        """The engine of a manager that is launched; ManagerClosedError where it is not."""
        raise NotImplementedError

    def _wait_ready(self, engine: Engine) -> list[int]:
        """The envs that can be stepped, at least one where some reset is under way."""
        raise NotImplementedError

    def _gather_rule(self) -> tuple[int | None, float | None]:
        """(wait_num, window): None, None for all of what was asked."""
        raise NotImplementedError

    def _reset(self, engine: Engine, ids: list[int], params: dict[int, Any]) -> None:
        """Resets some envs and waits until they are in RUN."""
        raise NotImplementedError
