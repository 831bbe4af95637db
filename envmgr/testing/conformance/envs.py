"""The envs of the conformance suite: tiny, exact, and found by their name in any process.

All are in Gymnasium's style without deriving from it: what an env does decides. Each observation is written
into one buffer again and again, as simulators do, so that a manager that forgets to copy is caught.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
from gymnasium import spaces


class ToldToFail(ValueError):  # noqa: N818 - what a user's own env might raise
    """What these envs raise where they are told to."""


class Log:
    """Words that envs leave in a file, whatever process they live in; one atomic write a line."""

    def __init__(self, path: str) -> None:
        self.path = path

    def add(self, *words: Any) -> None:
        """Appends a line."""
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, (" ".join(map(str, words)) + "\n").encode())
        finally:
            os.close(fd)

    def lines(self, first: str) -> list[list[str]]:
        """The lines that begin with a word, without it."""
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="utf-8") as file:
            return [words[1:] for line in file if (words := line.split())[0] == first]


class TallyEnv:
    """Counts: its observation is ``(env_id, episode, t)``, float64, and its reward ``100 * env_id + t``.

    Args:
        env_id: Whose observations these are.
        length: Steps of an episode, None for no end.
        truncate: Whether an episode ends by truncation instead of termination.
        fail_step: The step of an episode that raises, None for none.
        fail_resets: Which resets of this instance raise (1 is the first).
        wrong_shape_at: The step whose observation has a number too many, None for none.
        gate: A path; steps wait until it exists.
        log: Where to write "init", "reset", "failed" and "close", with the env_id and the process.
    """

    def __init__(
        self,
        env_id: int = 0,
        length: int | None = None,
        truncate: bool = False,
        fail_step: int | None = None,
        fail_resets: tuple[int, ...] = (),
        wrong_shape_at: int | None = None,
        gate: str | None = None,
        log: Log | None = None,
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Discrete(1000)
        self.env_id, self.length, self.truncate = env_id, length, truncate
        self.fail_step, self.fail_resets, self.wrong_shape_at = fail_step, fail_resets, wrong_shape_at
        self.gate, self.log = gate, log
        self.colour, self.lock = f"colour-{env_id}", threading.Lock()
        self.episode, self.t, self.start = -1, 0, 0
        self.steps, self.resets = 0, 0
        self.seeds: list[int | None] = []
        self.actions: list[int] = []
        self._buffer = np.zeros(3)
        self._note("init")

    @property
    def pid(self) -> int:
        """The process that this env lives in."""
        return os.getpid()

    def shout(self, word: str) -> str:
        """A method to be called from outside."""
        return f"{word}-{self.env_id}"

    def _note(self, what: str) -> None:
        if self.log is not None:
            self.log.add(what, self.env_id, os.getpid())

    def _obs(self) -> np.ndarray:
        self._buffer[:] = self.env_id, self.episode, self.t
        return self._buffer

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None, start: int = 0
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode at ``t = start``."""
        self.resets += 1
        if self.resets in self.fail_resets:
            self._note("failed")
            raise ToldToFail(f"reset {self.resets} of env {self.env_id}")
        self._note("reset")
        self.seeds.append(seed)
        self.episode += 1
        self.t = self.start = start
        return self._obs(), {"episode": self.episode}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Counts on."""
        while self.gate is not None and not os.path.exists(self.gate):
            time.sleep(0.001)
        if self.t - self.start + 1 == self.fail_step:
            self._note("failed")
            raise ToldToFail(f"step {self.fail_step} of env {self.env_id}")
        self.t += 1
        self.steps += 1
        self.actions.append(int(action))
        over = self.length is not None and self.t - self.start >= self.length
        obs = self._obs()
        if self.t - self.start == self.wrong_shape_at:
            obs = np.zeros(4)
        reward = 100.0 * self.env_id + self.t
        return obs, reward, over and not self.truncate, over and self.truncate, {"t": self.t}

    def render(self) -> np.ndarray:
        """A picture in the env's own colour."""
        return np.full((2, 2, 3), self.env_id, np.uint8)

    def close(self) -> None:
        """Says so."""
        self._note("close")


class ChanceEnv:
    """Draws everything from its own generator: observations, rewards, length and end of an episode."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {"x": spaces.Box(0.0, 1.0, (4,), np.float64), "n": spaces.Discrete(1_000_000)}
        )
        self.action_space = spaces.Discrete(5)
        self.rng = np.random.default_rng()
        self.left = 0
        self._x = np.zeros(4)

    def _obs(self) -> dict[str, Any]:
        self._x[:] = self.rng.random(4)
        return {"x": self._x, "n": int(self.rng.integers(1_000_000))}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode; a seed begins the generator anew."""
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.left = int(self.rng.integers(1, 6))
        return self._obs(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Draws on."""
        self.left -= 1
        reward = float(self.rng.random()) + int(action)
        truncated = self.left == 0 and bool(self.rng.integers(2))
        return self._obs(), reward, self.left == 0 and not truncated, truncated, {}

    def close(self) -> None:
        """Nothing to close."""


class NestedEnv:
    """A nested observation, one leaf of which is a text, or none; keeps the actions that it is given.

    Args:
        env_id: Goes into every leaf.
        text: Whether there is a text among the leaves, which has no fixed layout.
    """

    def __init__(self, env_id: int = 0, text: bool = True) -> None:
        leaves: dict[str, Any] = {
            "image": spaces.Box(0, 255, (2, 3), np.uint8),
            "pair": spaces.Tuple((spaces.Discrete(1000), spaces.MultiBinary(3))),
            "scalar": spaces.Box(-np.inf, np.inf, (), np.float32),
        }
        if text:
            leaves["text"] = spaces.Text(20)
        self.observation_space = spaces.Dict(leaves)
        self.action_space = spaces.Dict(
            {"move": spaces.Box(-1.0, 1.0, (2,), np.float32), "press": spaces.Discrete(9)}
        )
        self.env_id, self.text, self.t = env_id, text, 0
        self.given: list[Any] = []
        self._image = np.zeros((2, 3), np.uint8)

    @staticmethod
    def expected(env_id: int, t: int, text: bool = True) -> dict[str, Any]:
        """The observation of one env after ``t`` steps."""
        k = 10 * env_id + t
        obs: dict[str, Any] = {
            "image": np.full((2, 3), k, np.uint8),
            "pair": (np.int64(k), np.array([k & 1, k >> 1 & 1, k >> 2 & 1], np.int8)),
            "scalar": np.array(k / 7.0, np.float32),
        }
        if text:
            obs["text"] = "x" * (k % 20)
        return obs

    def _obs(self) -> dict[str, Any]:
        obs = self.expected(self.env_id, self.t, self.text)
        self._image[:] = obs["image"]
        obs["image"] = self._image
        return obs

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins at ``t = 0``."""
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Keeps the action."""
        self.t += 1
        self.given.append({"move": np.array(action["move"]), "press": int(action["press"])})
        return self._obs(), 0.0, False, False, {}

    def close(self) -> None:
        """Nothing to close."""


def no_env() -> None:
    """An env_fn that forgot its ``return``."""


def failing_env_fn() -> TallyEnv:
    """An env_fn that raises."""
    raise ToldToFail("this env cannot be built")
