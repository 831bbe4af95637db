"""``Checker``: does every timestep belong where it came?

Pure: it is told what was ready, what was sent and what came back, and follows each env's own count of
instances, episodes and steps. A step is *lost* when an action was never answered or a number is skipped,
*duplicated* when an answer comes that was given already or that nobody waits for, *mixed up* when it is
another env's, answers another action, or is not whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from envmgr.testing.soak import envs
from envmgr.testing.soak.envs import ACTION, CHECKSUM, ENV, EPISODE, INSTANCE, STEP

_TOLD = 20


class Notice(NamedTuple):
    """One abnormal timestep: which step of which env it stands for, and what is said of it.

    ``error`` is the error's class name, ``'said'`` where the env itself called the step abnormal.
    """

    env_id: int
    instance: int
    episode: int
    step: int
    error: str
    pid: int | None = None
    text: str = ""


@dataclasses.dataclass
class _Env:
    head: tuple[int, ...] = ()
    """Of the last good observation; empty before the first."""
    running: bool = False
    """Whether the next observation belongs to the same episode."""
    broken: int = 0
    """Abnormal timesteps since it was last seen to run."""
    action: int | None = None
    """What is not answered yet."""
    skipped: int = 0
    """Resets whose observation was never seen, so far."""


class Checker:
    """Follows ``envs`` envs.

    Args:
        count: How many envs there are.
        overruns: Gives how often calls of an env were broken off for their time. A reset that was, but came
            to its end all the same, may leave an episode that nobody sees.

    Attributes:
        good: Timesteps that were right, per env.
        lost: Steps that were lost.
        duplicated: Steps that came twice.
        mixed_up: Timesteps that did not belong where they came.
        notices: Every abnormal timestep.
        recovered: How many of them were followed by a first observation of that env.
        stories: What was wrong, the first few.
    """

    def __init__(self, count: int, overruns: Callable[[int], int] = lambda _: 0) -> None:
        self._envs = [_Env() for _ in range(count)]
        self._overruns = overruns
        self._sent = 0
        self.good = [0] * count
        self.lost = self.duplicated = self.mixed_up = 0
        self.notices: list[Notice] = []
        self.recovered: list[Notice] = []
        self.stories: list[str] = []

    # -- what happens ----------------------------------------------------------------------------------

    def ready(self, observations: Mapping[int, Any]) -> None:
        """These envs can be stepped, and this is what they show."""
        for i, obs in observations.items():
            env = self._envs[i]
            if env.action is not None:
                self._mixed(i, "is ready while its step is not answered")
                continue
            head = self._read(i, obs)
            if head is None:
                continue
            if env.running:
                if head != env.head:
                    self._mixed(i, f"shows {head}; its last step gave {env.head}")
                continue
            self._begins(i, env, head)

    def sends(self, ids: Any) -> dict[int, int]:
        """Actions for these envs, each another number; they count as sent."""
        actions = {}
        for i in ids:
            self._sent += 1
            self._envs[i].action = actions[i] = self._sent
        return actions

    def takes_back(self, actions: Mapping[int, int]) -> None:
        """They were not sent after all."""
        for i in actions:
            self._envs[i].action = None

    def got(self, timesteps: Mapping[int, Any]) -> list[int]:
        """These came back. Gives the envs that called themselves abnormal, and want a reset."""
        want_reset = []
        for i, timestep in timesteps.items():
            env = self._envs[i]
            action, env.action = env.action, None
            if action is None:
                self.duplicated += 1
                self._tell(i, "gave a timestep that nobody waits for")
                continue
            info = timestep.info
            if info.get("err") is not None:
                self._failed(i, env, timestep)
                continue
            said = bool(info.get("abnormal", False))
            if self._good(i, env, timestep, action, said) and said:
                self._notice(i, env, env.head[STEP], "said")
                want_reset.append(i)
        return want_reset

    def ends(self) -> None:
        """Nothing more comes: what is not answered is lost."""
        for i, env in enumerate(self._envs):
            if env.action is not None:
                self.lost += 1
                self._tell(i, f"never answered action {env.action}")

    def all_back(self) -> bool:
        """Whether every env runs, after whatever happened to it, and nothing is unanswered."""
        return all(env.running and not env.broken and env.action is None for env in self._envs)

    @property
    def unanswered(self) -> int:
        """Actions that are not answered yet."""
        return sum(env.action is not None for env in self._envs)

    # -- how it is judged ------------------------------------------------------------------------------

    def _read(self, i: int, obs: Any) -> tuple[int, ...] | None:
        head = tuple(obs["head"].tolist())
        if head[ENV] != i:
            self._mixed(i, f"gave an observation of env {head[ENV]}")
            return None
        body = obs["body"]
        if envs.checksum(head, body) != head[CHECKSUM] or not np.array_equal(body, envs.body_of(head)):
            self._mixed(i, f"gave an observation that is not whole: {head}")
            return None
        return head

    def _begins(self, i: int, env: _Env, head: tuple[int, ...]) -> None:
        """The first observation of an episode."""
        old = env.head
        if head[STEP] != 0:
            self._mixed(i, f"begins an episode with {head}, after {old}")
        elif old:
            begun = (head[INSTANCE], head[EPISODE])
            if begun <= (old[INSTANCE], old[EPISODE]):
                self.duplicated += 1
                self._tell(i, f"begins {begun} after {(old[INSTANCE], old[EPISODE])}")
            elif begun[0] == old[INSTANCE]:
                env.skipped += head[EPISODE] - old[EPISODE] - 1
                if env.skipped > self._overruns(i):
                    self.lost += 1
                    env.skipped = 0
                    self._tell(
                        i, f"begins {begun} after {(old[INSTANCE], old[EPISODE])}: an episode is missing"
                    )
        if env.broken:
            self.recovered += self.notices_of(i)[-env.broken :]
        env.head, env.running, env.broken = head, True, 0

    def _good(self, i: int, env: _Env, timestep: Any, action: int, said: bool) -> bool:
        head = self._read(i, timestep.obs)
        if head is None:
            return False
        last, env.head = env.head, head
        env.running = not timestep.done and not said
        if head[INSTANCE : EPISODE + 1] != last[INSTANCE : EPISODE + 1]:
            self._mixed(i, f"answered with {head}, after {last}")
        elif head[STEP] <= last[STEP]:
            self.duplicated += 1
            self._tell(i, f"answered with {head}, after {last}")
        elif head[STEP] > last[STEP] + 1:
            self.lost += head[STEP] - last[STEP] - 1
            self._tell(i, f"answered with {head}, after {last}")
        elif head[ACTION] != action:
            self._mixed(i, f"was sent action {action} and answered {head[ACTION]}")
        elif not self._rest_is_right(head, timestep, said):
            self._mixed(i, f"has another step's reward, end or info: {timestep[1:]} at {head}")
        else:
            self.good[i] += 1
            return True
        return False

    @staticmethod
    def _rest_is_right(head: tuple[int, ...], timestep: Any, said: bool) -> bool:
        over = head[STEP] >= envs.length_of(*head[:STEP])
        truncated = over and head[EPISODE] % 2 == 1
        info = {
            key: timestep.info[key] for key in timestep.info if key not in ("abnormal", "TimeLimit.truncated")
        }
        return (
            float(timestep.reward) == float(head[CHECKSUM])
            and (timestep.done, timestep.truncated) == (over, truncated)
            and (info == envs.info_of(head) or said)
        )

    def _failed(self, i: int, env: _Env, timestep: Any) -> None:
        err = timestep.info["err"]
        if timestep.info.get("abnormal") is not True or not timestep.done or float(timestep.reward) != 0.0:
            self._mixed(i, f"has an error in a timestep that is not abnormal: {timestep[1:]}")
        head = self._read(i, timestep.obs)
        if head is not None and head != env.head:
            self._mixed(i, f"failed with {head}; its last good observation was {env.head}")
        self._notice(
            i, env, env.head[STEP] + 1, type(err).__name__, getattr(err, "pid", None), str(err)[:300]
        )

    def _notice(
        self, i: int, env: _Env, step: int, error: str, pid: int | None = None, text: str = ""
    ) -> None:
        env.running, env.broken = False, env.broken + 1
        self.notices.append(Notice(i, env.head[INSTANCE], env.head[EPISODE], step, error, pid, text))

    def notices_of(self, i: int) -> list[Notice]:
        """The abnormal timesteps of one env."""
        return [notice for notice in self.notices if notice.env_id == i]

    def _mixed(self, i: int, what: str) -> None:
        self.mixed_up += 1
        self._tell(i, what)

    def _tell(self, i: int, what: str) -> None:
        if len(self.stories) < _TOLD:
            self.stories.append(f"env {i} {what}")
