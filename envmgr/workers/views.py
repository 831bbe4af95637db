"""The arena's rows as a worker's loops touch them: memoryviews, whose items are quicker than numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from envmgr.memory.arena import Arena


class Views:
    """Rows of all envs (indexed by env_id), and those of one worker (``my``, indexed from 0).

    Args:
        arena: The rows.
        worker: Index of the worker.
        envs: Its envs, neighbours.

    Attributes:
        plain_reward: Whether a reward is one float64, so that ``reward`` can take it.
    """

    def __init__(self, arena: Arena, worker: int, envs: range) -> None:
        mine = slice(envs.start, envs.stop)
        self.flag = arena.bytes_of("flag")
        self.status = arena.bytes_of("status")
        self.dirty = arena.bytes_of("dirty")
        self.seq = arena.bytes_of("seq").cast("I")
        self.reply_seq = arena.bytes_of("reply_seq").cast("I")
        self.terminated = arena.bytes_of("terminated").cast("?")
        self.truncated = arena.bytes_of("truncated").cast("?")
        self.need = arena.bytes_of("need").cast("q")
        self.step_time = arena.bytes_of("step_time").cast("d")
        self.reset_time = arena.bytes_of("reset_time").cast("d")
        plan = arena.plan
        self.plain_reward = plan.reward_shape == () and np.dtype(plan.reward_dtype) == np.float64
        self.reward: Any = arena.bytes_of("reward").cast("d") if self.plain_reward else {}
        self.my_cmd = arena.bytes_of("cmd")[mine]
        self.my_flag = self.flag[mine]
        self.my_seq, self.my_reply_seq = self.seq[mine], self.reply_seq[mine]
        self.my_status = self.status[mine]
        self.my_dirty = self.dirty[mine]
        self.my_terminated, self.my_truncated = (
            arena.bytes_of("terminated")[mine],
            arena.bytes_of("truncated")[mine],
        )
        self.my_running = arena.bytes_of("running").cast("i")[worker : worker + 1]
        self.my_phase = arena.bytes_of("phase")[worker : worker + 1]
        self.my_awake = arena.bytes_of("awake")[worker : worker + 1]
        self.my_mail = arena.bytes_of("mail")[worker : worker + 1]
        self.my_batch_time = arena.bytes_of("batch_time").cast("d")[worker : worker + 1]
