"""The loop of ``envmgr run``: the same for a manager that waits for all of its envs and one that does not."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from envmgr.cli.policies import Policy
from envmgr.engine.states import EnvState
from envmgr.errors import EnvManagerError
from envmgr.observe.rollouts import Recorder
from envmgr.observe.trees import stack

_SAMPLE_EVERY = 0.02  # seconds
_IDLE = 0.002  # seconds


class Manager(Protocol):
    """What the loop needs of an env manager."""

    @property
    def ready_obs(self) -> dict[int, Any]:
        """The observations of the envs that wait for an action."""

    @property
    def done(self) -> bool:
        """Whether no env will ever be ready again."""

    @property
    def env_states(self) -> dict[int, Any]:
        """The state of each env."""

    def step(self, actions: dict[int, Any], /) -> dict[int, Any]:
        """Steps these envs, and gives the timesteps that are in."""

    def reset(self, reset_param: dict[int, Any], /) -> Any:
        """Resets these envs."""


class PolicyError(EnvManagerError):
    """The policy raised, or gave something else than one action per env."""


class Collection:
    """Episodes on their way in. Whenever the loop is cut short, what was collected until then is here.

    Args:
        quotas: How many episodes each env plays.
        keep_steps: Whether observations, actions and rewards are kept.
        clock: Gives seconds.

    Attributes:
        recorder: The episodes.
        samples: ``(seconds, steps)`` every now and then.
        elapsed: Seconds since the start of collecting.
    """

    def __init__(
        self,
        quotas: Sequence[int],
        *,
        keep_steps: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.recorder = Recorder(len(quotas), keep_steps=keep_steps)
        self.samples: list[tuple[float, int]] = []
        self.elapsed = 0.0
        self.wanted = sum(quotas)
        self._left = list(quotas)
        self._clock = clock

    def run(self, manager: Manager, policy: Policy, watch: Callable[[Collection], None]) -> None:
        """Collects until every env has played its quota.

        Args:
            manager: A launched manager.
            policy: What chooses the actions.
            watch: Called after every step.
        """
        left = self._left
        start = self._clock()
        open_quotas = sum(1 for quota in left if quota)
        while open_quotas and not manager.done:
            ready = manager.ready_obs
            ids = [env_id for env_id in ready if left[env_id]]
            timesteps = manager.step(self._answers(policy, ids, ready))
            self.elapsed = now = self._clock() - start
            for env_id, timestep in timesteps.items():
                if self.recorder.received(env_id, timestep, now) is not None:
                    left[env_id] -= 1
                    if left[env_id]:
                        _restart(manager, env_id)
                    else:
                        open_quotas -= 1
            if not self.samples or now - self.samples[-1][0] >= _SAMPLE_EVERY:
                self.samples.append((now, self.recorder.steps))
            watch(self)
            if not ids and not timesteps:
                # Every env that is still wanted is in its reset, and one is ready that is not: where the
                # quotas differ by one there is a moment at the end when this can be so.
                time.sleep(_IDLE)

    def _answers(self, policy: Policy, ids: list[int], ready: dict[int, Any]) -> dict[int, Any]:
        if not ids:
            return {}  # the step then only collects what is pending
        batch = stack([ready[env_id] for env_id in ids])
        try:
            actions = policy(ids, batch)
            if len(actions) != len(ids):
                raise PolicyError(f"the policy gave {len(actions)} actions for {len(ids)} envs")
        except EnvManagerError:
            raise
        except Exception as error:  # a user's policy may raise anything
            text = "".join(traceback.format_exception(error.with_traceback(_below(error))))
            raise PolicyError(
                f"the policy raised {type(error).__name__}: {error}\n\n{text.rstrip()}"
            ) from error
        self.recorder.sent(ids, batch, actions)
        return {env_id: actions[k] for k, env_id in enumerate(ids)}


def _restart(manager: Manager, env_id: int) -> None:
    """Resets an env that does not restart by itself: without auto_reset, and after some failures."""
    if manager.env_states[env_id] in (EnvState.NEED_RESET, EnvState.ERROR):
        manager.reset({env_id: None})


def _below(error: BaseException) -> Any:
    """The traceback without the loop's own frame."""
    return error.__traceback__.tb_next if error.__traceback__ is not None else None
