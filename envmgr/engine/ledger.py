"""What is kept of every env and every worker: arrays for the uneventful majority, records for the rest.

It knows the legal moves and counts; what is to be done about anything is the machine's.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.engine.policy import Policy
from envmgr.engine.states import EnvState, check_move

IDLE, STEPPING, RESETTING = 0, 1, 2
"""What an env's worker is doing for it (``Ledger.op``)."""


@dataclasses.dataclass(slots=True)
class EnvRecord:
    """What is rarely needed of one env."""

    attempts: int = 0
    first_cause: Any = None
    first_at: str = ""
    reset_cause: Any = None
    step_attempts: int = 0
    step_cause: Any = None
    streak: int = 0
    streak_cause: Any = None
    owed: Any = None
    want_reset: bool = False
    again: bool = False
    timer: int = 0
    renewing: bool = False
    interrupted: Any = None
    renewals: collections.deque[tuple[float, Any, str]] = dataclasses.field(default_factory=collections.deque)
    renewal_count: int = 0
    retry_count: int = 0
    timeout_count: int = 0
    failure_count: int = 0
    story: collections.deque[str] = dataclasses.field(default_factory=lambda: collections.deque(maxlen=8))


class Ledger:
    """The states of all envs, their records, and the timers.

    Args:
        policy: The rules that the config sets.
        envs_of: The envs of each worker.
        on_move: Called with (env_id, old, new) at every change of a state.

    Attributes:
        states: int8, EnvState per env. Compare it with plain ints only: numpy asks a member of an enum for
            attributes, that runs Python code, and a Ctrl-C that hits that code is swallowed by numpy.
        op: uint8, what each env's worker does for it: IDLE, STEPPING or RESETTING.
        episodes: int64, finished episodes per env.
        fresh_at: int64, how many of them were finished when the env's worker came up.
        worker_up: Whether each worker can be sent to.
    """

    def __init__(
        self,
        policy: Policy,
        envs_of: Sequence[range],
        on_move: Callable[[int, EnvState, EnvState], None] | None = None,
    ) -> None:
        self._policy = policy
        self._envs_of = list(envs_of)
        self._worker_of = [w for w, envs in enumerate(envs_of) for _ in envs]
        n = len(self._worker_of)
        self.states: NDArray[np.int8] = np.zeros(n, np.int8)
        self.op: NDArray[np.uint8] = np.zeros(n, np.uint8)
        self.episodes: NDArray[np.int64] = np.zeros(n, np.int64)
        self.fresh_at: NDArray[np.int64] = np.zeros(n, np.int64)
        self.worker_up = [False] * len(self._envs_of)
        self._was_up = [False] * len(self._envs_of)
        self._dying = [False] * len(self._envs_of)
        self._retiring = [False] * len(self._envs_of)
        self._renew_due = [False] * len(self._envs_of)
        self._envs = [EnvRecord() for _ in range(n)]
        self._timers: list[tuple[float, int, str, int]] = []
        self._timer_count = 0
        self._on_move = on_move

    # -- what the engine asks and counts ---------------------------------------------------------------

    def next_due(self) -> float | None:
        """When the next Tick is wanted."""
        return self._timers[0][0] if self._timers else None

    def state(self, env_id: int) -> EnvState:
        """The state of one env."""
        return EnvState(int(self.states[env_id]))

    def owed(self, env_id: int) -> Any:
        """Why the next step of this env cannot be done (its worker died meanwhile), or None."""
        return self._envs[env_id].owed

    def any_owed(self) -> bool:
        """Whether some env is owed."""
        return any(env.owed is not None for env in self._envs)

    def wants_again(self, env_id: int) -> bool:
        """Whether the reply that is under way is to be dropped, for a reset was asked meanwhile."""
        return self._envs[env_id].again

    def interrupted(self, env_id: int) -> Any:
        """The cause with which the running call of an env is being broken off, or None."""
        return self._envs[env_id].interrupted

    def counts(self, env_id: int) -> tuple[int, int, int]:
        """(retries, renewals, timeouts) of an env."""
        env = self._envs[env_id]
        return env.retry_count, env.renewal_count, env.timeout_count

    def failures(self, env_id: int) -> int:
        """How many steps and resets of an env brought no result; see ``Statistics``."""
        return self._envs[env_id].failure_count

    def attempts(self, env_id: int) -> tuple[int, int]:
        """How many attempts have failed so far of the (step, reset) that an env is at."""
        env = self._envs[env_id]
        return env.step_attempts, env.attempts

    def overran(self, env_id: int) -> None:
        """A call was broken off because it took too long; counts it where no DeadlinePassed has."""
        env = self._envs[env_id]
        env.timeout_count += env.interrupted is None

    def killing(self) -> bool:
        """Whether some worker is being killed, so that its end is still to come."""
        return any(self._dying)

    def breaks_after(self, ids: Any) -> NDArray[np.bool_]:
        """Of which envs (an index array or a slice) the worker must not begin another episode by itself."""
        count = self.episodes[ids] + 1
        breaks: NDArray[np.bool_] = count >= self._policy.episode_num
        if self._policy.renew_every is not None:
            breaks |= count - self.fresh_at[ids] >= self._policy.renew_every
        return breaks

    def renewal_follows(self, env_id: int) -> bool:
        """Whether an env gets a fresh worker, and then another episode, when the running one has ended."""
        every, count = self._policy.renew_every, int(self.episodes[env_id]) + 1
        if every is None or not self._policy.auto_reset or count >= self._policy.episode_num:
            return False
        return count - int(self.fresh_at[env_id]) >= every

    def _is_worn(self, env_id: int) -> bool:
        """Whether an env's worker has had its episodes."""
        every = self._policy.renew_every
        return every is not None and int(self.episodes[env_id] - self.fresh_at[env_id]) >= every

    def all_done(self) -> bool:
        """Whether every env has had its episodes."""
        return bool((self.states == int(EnvState.DONE)).all())

    def steps_sent(self, ids: Any) -> None:
        """A batch of steps went out (an index array or a slice)."""
        self.op[ids] = STEPPING

    def steps_done(self, ids: Any) -> None:
        """A batch of steps came back well; done ones still want EpisodeEnded."""
        self.op[ids] = IDLE

    def good_step(self, env_id: int) -> None:
        """A step came back well of an env that had failed before."""
        env = self._envs[env_id]
        env.streak, env.streak_cause, env.step_attempts, env.interrupted = 0, None, 0, None

    def failed_before(self) -> list[int]:
        """Envs whose next good step ends a row of failures."""
        return [i for i, env in enumerate(self._envs) if env.streak or env.step_attempts]

    # -- moves -----------------------------------------------------------------------------------------

    def _move(self, env_id: int, new: EnvState) -> None:
        old = EnvState(int(self.states[env_id]))
        if old is new:
            return
        check_move(env_id, old, new, "Lately: " + ", ".join(self._envs[env_id].story))
        self.states[env_id] = int(new)
        if self._on_move is not None:
            self._on_move(env_id, old, new)

    def _at(self, due: float, what: str, index: int) -> None:
        self._timer_count += 1
        if what != "renew":  # one timer per env: a later one, or a reset, makes an earlier one void
            self._envs[index].timer = self._timer_count
        heapq.heappush(self._timers, (due, self._timer_count, what, index))
