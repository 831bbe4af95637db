"""What the soak runs: an env whose every observation proves where it belongs, with faults around it."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envmgr.testing.faults import Fault, FaultyEnv

BODY = 600
"""Bytes of an observation beside its head: more than one cache line, so that it could be torn."""

ENV, INSTANCE, EPISODE, STEP, ACTION, CHECKSUM = range(6)
"""What stands where in the head of an observation."""

_BASE = np.arange(BODY, dtype=np.uint32)


class Board:
    """Numbers in a file that all processes map: what the envs counted, and whether faults are called off.

    Args:
        path: The file, made by ``create``.
    """

    def __init__(self, path: str) -> None:
        self._cells: NDArray[np.int64] = np.memmap(path, np.int64, "r+")

    @staticmethod
    def create(path: str, envs: int) -> Board:
        """Makes the file for so many envs."""
        np.zeros(envs + 1, np.int64).tofile(path)
        return Board(path)

    @property
    def calm(self) -> bool:
        """Whether no more faults are made."""
        return bool(self._cells[-1])

    @calm.setter
    def calm(self, value: bool) -> None:
        self._cells[-1] = value

    @property
    def steps(self) -> NDArray[np.int64]:
        """Steps that each env has finished, over all its instances."""
        return self._cells[:-1]


def body_of(head: Sequence[int]) -> NDArray[np.uint8]:
    """The body that belongs to a head: every byte depends on every number of it."""
    start = (head[ENV] * 31 + head[INSTANCE] * 7 + head[EPISODE] * 3 + head[STEP]) % 251
    return ((_BASE + np.uint32(start)) % 251).astype(np.uint8)


def checksum(head: Sequence[int], body: NDArray[np.uint8]) -> int:
    """Of the first five numbers of a head and the body."""
    return zlib.crc32(body.tobytes(), zlib.crc32(np.array(head[:CHECKSUM], np.int64).tobytes()))


def info_of(head: Sequence[int]) -> dict[str, Any]:
    """The info that belongs to a step: mostly none, sometimes small, now and then too large for its row."""
    step = head[STEP]
    if step % 5:
        return {}
    return {"head": list(head[:CHECKSUM]), "fill": bytes(4000 if step % 25 == 0 else 10)}


def length_of(env_id: int, instance: int, episode: int) -> int:
    """Steps of an episode: from 1 to 60, different in each."""
    return 1 + (env_id * 17 + instance * 29 + episode * 13) % 60


class SoakEnv(gymnasium.Env[Any, Any]):
    """Every observation says whose it is; see ``ENV`` and the names beside it for its head.

    Args:
        env_id: The env.
        instance: Which instance of it.
        board: Where finished steps are counted.
    """

    def __init__(self, env_id: int, instance: int, board: Board) -> None:
        self.observation_space: Any = spaces.Dict(
            {
                "head": spaces.Box(-(2**62), 2**62, (6,), np.int64),
                "body": spaces.Box(0, 255, (BODY,), np.uint8),
            }
        )
        self.action_space: Any = spaces.Discrete(2**40)
        self.env_id, self.instance, self.board = env_id, instance, board
        self.episode, self.t = -1, 0

    def _obs(self, action: int) -> tuple[list[int], dict[str, Any]]:
        head = [self.env_id, self.instance, self.episode, self.t, action, 0]
        body = body_of(head)
        head[CHECKSUM] = checksum(head, body)
        return head, {"head": np.array(head, np.int64), "body": body}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts the next episode."""
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(-1)[1], {}

    def step(self, action: Any) -> Any:
        """Counts on."""
        self.t += 1
        head, obs = self._obs(int(action))
        over = self.t >= length_of(self.env_id, self.instance, self.episode)
        truncated = over and self.episode % 2 == 1
        self.board.steps[self.env_id] += 1
        return obs, float(head[CHECKSUM]), over and not truncated, truncated, info_of(head)


class SoakFaultyEnv(FaultyEnv):
    """A ``SoakEnv`` with faults, until the board says that it is calm. What it prints goes nowhere.

    Args:
        board: Path of the board.
        **kwargs: Of ``FaultyEnv``.
    """

    def __init__(self, board: str, **kwargs: Any) -> None:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        self.board = Board(board)
        super().__init__(None, **kwargs)

    def _built(self, env: Any) -> SoakEnv:
        return SoakEnv(self.env_id, self.instance, self.board)

    def due(self, where: str) -> Fault | None:
        """None when it is calm."""
        return None if self.board.calm else super().due(where)


def soak_faults(rate: float) -> tuple[Fault, ...]:
    """Every kind, in every place where a manager has to get over it.

    Args:
        rate: Faults per step, all kinds together. Resets fail ten times as often, and renewals fifty times.
    """
    in_step = (
        *("raise", "system_exit", "keyboard_interrupt", "rubbish", "misfit", "abnormal"),
        *("exit", "segfault", "kill", "sleep", "hang", "hang_in_c", "stop"),
        *("slow", "leak_memory", "leak_fds", "print"),
    )
    in_reset = ("raise", "exit", "segfault", "sleep", "hang_in_c", "stop", "slow")
    in_build = ("raise", "exit", "segfault")
    renewed = range(1, 2**62)  # the first instances come up, or there would be nothing to run
    return (
        *(Fault(kind, probability=rate / len(in_step)) for kind in in_step),
        *(Fault(kind, where="reset", probability=min(0.5, 10 * rate) / len(in_reset)) for kind in in_reset),
        *(
            Fault(kind, where="build", in_instance=renewed, probability=min(0.5, 50 * rate) / len(in_build))
            for kind in in_build
        ),
    )
