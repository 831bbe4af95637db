"""The arena: all rows of one manager, one batched array per kind of value, row = env_id.

Parent and workers hold the same arrays over one SharedBlock (or over private memory, where both
are the same process). Who may write what, and when, is a matter of the ``flag`` row: while it is
PENDING the row belongs to the worker, otherwise to the parent; nobody locks anything, so nobody
who dies can leave a lock behind.

``mail`` and ``awake`` are notes between the two sides, and either may write them (see ``workers/doze.py``).

Memory order: a side writes its rows first and the byte that announces them last, with ``fence``
between. On x86 stores become visible in the order they were made; elsewhere the lock inside
``fence`` orders them.
"""

from __future__ import annotations

import dataclasses
import platform
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envmgr.memory.block import SharedBlock
from envmgr.memory.layout import Layout

_ALIGN = 64  # a cache line: no two arrays share one


@dataclasses.dataclass(slots=True)
class ArenaPlan:
    """All that is needed to lay the same arrays over the same memory in another process.

    Attributes:
        env_num: Number of rows.
        worker_num: Number of workers.
        obs: Layout of the observations.
        action: Layout of the actions.
        reward_dtype: Dtype of a reward.
        reward_shape: Shape of one env's reward, () for a number.
        info_bytes: Size of the row for a small pickled info.
    """

    env_num: int
    worker_num: int
    obs: Layout
    action: Layout
    reward_dtype: str
    reward_shape: tuple[int, ...]
    info_bytes: int = 512

    def _fields(self) -> list[tuple[str, tuple[int, ...], Any]]:
        n, w = self.env_num, self.worker_num
        fields: list[tuple[str, tuple[int, ...], Any]] = [
            ("need", (1,), np.int64),
            # These five are neighbours: see ``verdict``.
            ("flag", (n,), np.uint8),
            ("cmd", (n,), np.uint8),
            ("status", (n,), np.uint8),
            ("terminated", (n,), np.bool_),
            ("truncated", (n,), np.bool_),
            ("seq", (n,), np.uint32),
            ("reply_seq", (n,), np.uint32),
            ("dirty", (n,), np.uint8),
            ("seed", (n,), np.uint64),
            ("seeded", (n,), np.uint8),
            ("reward", (n, *self.reward_shape), np.dtype(self.reward_dtype)),
            ("step_time", (n,), np.float64),
            ("reset_time", (n,), np.float64),
            ("running", (w,), np.int32),
            ("phase", (w,), np.uint8),
            ("awake", (w,), np.uint8),
            ("mail", (w,), np.uint8),
            ("stop_env", (w,), np.int32),
            ("stop_seq", (w,), np.uint32),
            ("batch_time", (w,), np.float64),
            ("batch_steps", (w,), np.int64),
            ("info_len", (n,), np.uint16),
            ("info", (n, self.info_bytes), np.uint8),
        ]
        for kind, layout in (("action", self.action), ("obs", self.obs), ("final", self.obs)):
            for k, leaf in enumerate(layout.row_leaves if layout.shared else ()):
                fields.append((f"{kind}{k}", (n, *leaf.shape), leaf.dtype))
        return fields

    def _placed(self) -> tuple[list[tuple[str, tuple[int, ...], Any, int]], int]:
        placed, at = [], 0
        for name, shape, dtype in self._fields():
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            placed.append((name, shape, np.dtype(dtype), at))
            at += -(-size // _ALIGN) * _ALIGN
        return placed, max(at, _ALIGN)

    @property
    def nbytes(self) -> int:
        """Bytes that the whole arena takes."""
        return self._placed()[1]


class Arena:
    """The rows, as numpy arrays. Each attribute is one array over all envs (or all workers).

    Attributes:
        obs, final, action: Lists of arrays, one per leaf with rows. ``obs`` and ``final`` are each side's own
            where the plan says that observations are not shared.
        need: How many replies the parent sleeps for; 0 while it is awake.
        reply_seq: Number of the request that a reply answers, beside ``seq`` of the request.
        dirty: 1 from the moment in which a worker begins to store an observation until it has announced it:
            who dies in between leaves what nobody is told of.
        running: The env that a worker steps now, -1 for none; -2 - i while it writes what env i returned.
        phase: What it does there: 0 a step, 1 a reset.
        awake: 1 while a worker looks at its commands by itself before it sleeps: no need to ring.
        mail: 1 once a message was sent to a worker, for one that is awake.
        stop_env, stop_seq: Which call is to be broken off.
    """

    need: NDArray[np.int64]
    flag: NDArray[np.uint8]
    cmd: NDArray[np.uint8]
    status: NDArray[np.uint8]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    seq: NDArray[np.uint32]
    reply_seq: NDArray[np.uint32]
    dirty: NDArray[np.uint8]
    seed: NDArray[np.uint64]
    seeded: NDArray[np.uint8]
    reward: NDArray[Any]
    step_time: NDArray[np.float64]
    reset_time: NDArray[np.float64]
    running: NDArray[np.int32]
    phase: NDArray[np.uint8]
    awake: NDArray[np.uint8]
    mail: NDArray[np.uint8]
    stop_env: NDArray[np.int32]
    stop_seq: NDArray[np.uint32]
    batch_time: NDArray[np.float64]
    batch_steps: NDArray[np.int64]
    info_len: NDArray[np.uint16]
    info: NDArray[np.uint8]

    def __init__(self, plan: ArenaPlan, block: SharedBlock | None) -> None:
        """Lays the arrays over ``block``, or over private memory when it is None."""
        self.plan = plan
        self.block = block
        placed, nbytes = plan._placed()
        # numpy's zeros take no memory before they are touched.
        memory: Any = np.zeros(nbytes, np.uint8) if block is None else block.buffer
        self.memory = memoryview(memory).cast("B")
        self._at: dict[str, tuple[int, int]] = {}
        groups: dict[str, list[NDArray[Any]]] = {"action": [], "obs": [], "final": []}
        for name, shape, dtype, at in placed:
            array: NDArray[Any] = np.ndarray(shape, dtype, self.memory, at)
            self._at[name] = (at, at + array.nbytes)
            for kind, arrays in groups.items():
                if name.startswith(kind) and name[len(kind) :].isdigit():
                    arrays.append(array)
                    break
            else:
                setattr(self, name, array)
        self.action, self.obs, self.final = groups["action"], groups["obs"], groups["final"]
        if not plan.obs.shared:  # each side has its own; a page of them is taken when it is written to
            self.obs, self.final = (
                [np.zeros((plan.env_num, *leaf.shape), leaf.dtype) for leaf in plan.obs.row_leaves]
                for _ in range(2)
            )

    def bytes_of(self, name: str) -> memoryview:
        """The bytes of one array: single items of a memoryview are quicker than numpy's."""
        lo, hi = self._at[name]
        return self.memory[lo:hi]

    def cells(self, code: Any) -> Any:
        """All of it as items of one type (a code of ``memoryview.cast``); ``place`` says which is whose."""
        return self.memory.cast(code)

    def place(self, name: str, i: int = 0) -> int:
        """Where item i of an array is among the ``cells`` of its type."""
        return self._at[name][0] // int(getattr(self, name).itemsize) + i

    def verdict(self) -> memoryview:
        """The bytes of flag, cmd, status, terminated and truncated in one, to be compared at once."""
        return self.memory[self._at["flag"][0] : self._at["truncated"][1]]

    @classmethod
    def shared(cls, plan: ArenaPlan) -> Arena:
        """A new arena in shared memory; ShmError when there is too little of it."""
        return cls(plan, SharedBlock(plan.nbytes))

    @classmethod
    def attached(cls, plan: ArenaPlan, fd: int) -> Arena:
        """The arena that another process made."""
        return cls(plan, SharedBlock.attach(fd, plan.nbytes))

    @classmethod
    def private(cls, plan: ArenaPlan) -> Arena:
        """An arena that this process keeps to itself."""
        return cls(plan, None)


STRONG_ORDER = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
"""Whether stores become visible in the order they were made."""
new_lock = threading.Lock
"""``new_lock().acquire()`` is what ``fence`` does; the hottest loop does it by itself, to save a call."""


def fence() -> None:
    """Orders what this thread wrote before against what it writes after, for other processes.

    Taking a lock is the only full barrier that plain Python has. A lock of its own each time, that nobody has
    to give back: a Ctrl-C behind the first of two calls would leave it taken for ever. On processors with a
    weak order one lock alone would let both sides move into it, so there two are taken.
    """
    new_lock().acquire()
    if not STRONG_ORDER:
        new_lock().acquire()


def _no_fence() -> None:
    """Stores become visible in the order they were made on this processor."""


order_stores = _no_fence if STRONG_ORDER else fence
"""Orders stores against later stores only, which costs nothing on x86."""
order_loads = order_stores
"""Orders loads against later loads only, which costs nothing there either."""
