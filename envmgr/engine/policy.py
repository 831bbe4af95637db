"""The rules that a config sets, as plain data for the machine."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(slots=True)
class Policy:
    """The rules that a config sets.

    Attributes:
        episode_num: Episodes per env; inf for no end.
        auto_reset: Whether an env that is done restarts by itself.
        max_retry: Attempts in all for a reset (and for a step with ``retry_step``).
        retry_wait: Seconds between them.
        renew: Whether a reset is tried again on a new worker.
        reset_on_error: Whether a failed step becomes an abnormal timestep, rather than an error.
        retry_step: Whether the same action may be sent again.
        close_on_error: Whether an error closes the manager.
        abnormal_is_error: Whether an env that calls itself abnormal waits for ``reset``.
        max_renewals: Renewals of one env within ``renewal_window`` seconds.
        renew_every: Episodes after which an env gets a fresh worker; None for never. One env per worker.
    """

    episode_num: float = float("inf")
    auto_reset: bool = True
    max_retry: int = 1
    retry_wait: float = 0.1
    renew: bool = False
    reset_on_error: bool = False
    retry_step: bool = False
    close_on_error: bool = True
    abnormal_is_error: bool = True
    max_renewals: int = 10
    renewal_window: float = 300.0
    renew_every: int | None = None

    @property
    def endless(self) -> bool:
        """Whether every episode may be followed by another in the same worker at once."""
        return self.episode_num == float("inf") and self.renew_every is None
