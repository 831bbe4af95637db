"""What the engine needs of a config besides the policy."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(slots=True)
class Settings:
    """Limits and switches. Times in seconds, None for no limit."""

    connect_timeout: float | None = None
    step_timeout: float | None = None
    reset_timeout: float | None = None
    interrupt_grace: float = 1.0
    close_grace: float = 2.0
    shared_memory: bool = True
    copy_on_get: bool = True
