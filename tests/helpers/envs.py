"""Envs for tests: small, exact, and faulty where they are told to be.

All live at module level and are built through ``functools.partial``, so that they pickle under spawn
and forkserver. Their observations say whose they are, ``(env_id, episode, t)``, so that a row that is
torn, stale or another env's is seen at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envmgr import create_env_manager
from tests.helpers.sync import Log, Signal, first_time

FAULT_EXIT_CODE = 7


class Boom(ValueError):  # noqa: N818 - the user's own habit
    """What the faulty envs raise: a class of the user's own."""


def raise_boom(message: str) -> None:
    """The innermost frame of an env's own error."""
    raise Boom(message)


def hang_in_c() -> None:
    """Waits in C, with the GIL held, for a mutex that nobody will release.

    No Python code runs meanwhile, in no thread, no signal handler; and unlike a sleep, no signal ends it.
    """
    libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)  # zeros: an initialised mutex
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def hang_stubbornly() -> None:
    """Python code that nothing but SIGKILL ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        with contextlib.suppress(BaseException):
            while True:
                time.sleep(600)


def do_fault(kind: str) -> None:
    """Lets the process or the call fail in the way that is named."""
    if kind == "raise":
        raise_boom("boom in user code")
    elif kind == "system_exit":
        raise SystemExit(3)
    elif kind == "keyboard_interrupt":
        raise KeyboardInterrupt
    elif kind == "exit":
        os._exit(FAULT_EXIT_CODE)
    elif kind == "exit0":
        os._exit(0)
    elif kind == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    elif kind == "sigsegv":
        import faulthandler

        faulthandler.disable()  # its report on stderr is not what is tested
        ctypes.string_at(0)
    elif kind == "sigstop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "sleep":
        time.sleep(600)
    elif kind == "hang_gil":
        hang_in_c()
    elif kind == "stubborn":
        hang_stubbornly()
    elif kind == "deaf":
        os.closerange(3, 4096)
        hang_stubbornly()
    else:
        raise AssertionError(f"no such fault: {kind}")


class CounterEnv(gymnasium.Env):
    """Counts: the observation is ``(env_id, episode, t)`` and the reward ``100 * env_id + t``.

    Args:
        env_id: What to write into each observation.
        length: Steps in an episode; None never ends.
        truncate: Whether episodes end by truncation instead of termination.
        reuse: Whether all observations are the same array, written to in place.
        infos: Whether each step and reset has an info dict.
        log: A ``Log`` that every init, reset and close is written to.
        gate: A ``Signal`` that each step waits for.
        entered: A ``Signal`` that each step posts before it waits.
        reset_gate: A ``Signal`` that each reset after the first waits for.
    """

    def __init__(
        self,
        env_id: int = 0,
        length: int | None = None,
        truncate: bool = False,
        reuse: bool = False,
        infos: bool = False,
        log: Log | None = None,
        gate: Signal | None = None,
        entered: Signal | None = None,
        reset_gate: Signal | None = None,
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Discrete(1000)
        self.env_id, self.length, self.truncate = env_id, length, truncate
        self.infos, self.log, self.gate, self.entered = infos, log, gate, entered
        self.reset_gate = reset_gate
        self.episode, self.t, self.start = -1, 0, 0
        self.resets, self.steps, self.closes = 0, 0, 0
        self.seeds: list[int | None] = []
        self.buffer = np.zeros(3) if reuse else None
        self.actions: list[Any] = []
        self._note("init")

    @property
    def where_pid(self) -> int:
        """The process that hosts this env."""
        return os.getpid()

    @property
    def where_thread(self) -> bool:
        """Whether this env is stepped in its process's main thread."""
        return threading.current_thread() is threading.main_thread()

    def _note(self, what: str) -> None:
        if self.log is not None:
            self.log.add(what, self.env_id, os.getpid())

    def _obs(self) -> np.ndarray:
        obs = self.buffer if self.buffer is not None else np.empty(3)
        obs[:] = self.env_id, self.episode, self.t
        return obs

    def reset(self, *, seed: int | None = None, options: dict | None = None, start: int = 0) -> Any:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.resets += 1
        self._note("reset")
        if self.reset_gate is not None and self.resets > 1:
            self.reset_gate.pass_through()
        self.episode += 1
        self.start = self.t = start
        return self._obs(), {"episode": self.episode, "env_id": self.env_id} if self.infos else {}

    def step(self, action: Any) -> Any:
        if self.entered is not None:
            self.entered.post()
        if self.gate is not None:
            self.gate.pass_through()
        self.actions.append(action)
        self.steps += 1
        self.t += 1
        over = self.length is not None and self.t - self.start >= self.length
        info = {"t": self.t, "env_id": self.env_id} if self.infos else {}
        return (
            self._obs(),
            100.0 * self.env_id + self.t,
            over and not self.truncate,
            over and self.truncate,
            info,
        )

    def render(self) -> np.ndarray:
        return np.full((2, 2, 3), self.env_id, np.uint8)

    def close(self) -> None:
        self.closes += 1
        self._note("close")


class FaultyEnv(CounterEnv):
    """A ``CounterEnv`` that fails where it is told to.

    Args:
        step_fault: What happens in a step (see ``do_fault``), None for nothing.
        reset_fault: What happens in a reset.
        at_step: In which step of an episode (1 is the first).
        at_reset: From which reset of this instance on (1 is the first).
        once: A path: the fault happens only for the first env that touches it, over all processes.
        before: A ``Signal`` posted just before the fault.
    """

    def __init__(
        self,
        env_id: int = 0,
        step_fault: str | None = None,
        reset_fault: str | None = None,
        at_step: int = 1,
        at_reset: int = 1,
        once: str | None = None,
        before: Signal | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(env_id, **kwargs)
        self.step_fault, self.reset_fault, self.at_step, self.at_reset = (
            step_fault,
            reset_fault,
            at_step,
            at_reset,
        )
        self.once, self.before = once, before

    def _fail(self, kind: str) -> None:
        if self.once is None or first_time(self.once):
            if self.before is not None:
                self.before.post()
            do_fault(kind)

    def step(self, action: Any) -> Any:
        if self.step_fault is not None and self.t - self.start + 1 == self.at_step:
            self._note("fault")
            self._fail(self.step_fault)
        return super().step(action)

    def reset(self, **kwargs: Any) -> Any:
        if self.reset_fault is not None and self.resets + 1 >= self.at_reset:
            self._note("fault")
            self.resets += 1
            self._fail(self.reset_fault)
            self.resets -= 1
        return super().reset(**kwargs)


class SwallowingEnv(CounterEnv):
    """Hangs in step ``at``, once; when it is broken off it goes on as if nothing had been (O17)."""

    def __init__(self, env_id: int = 0, at: int = 2, once: str = "", **kwargs: Any) -> None:
        super().__init__(env_id, **kwargs)
        self.at, self.once = at, once

    def step(self, action: Any) -> Any:
        if self.t - self.start + 1 == self.at and first_time(self.once):
            with contextlib.suppress(BaseException):
                time.sleep(600)
        return super().step(action)


class FreshOnlyEnv(CounterEnv):
    """Can be reset once; a second reset of the same instance always fails (F13)."""

    def reset(self, **kwargs: Any) -> Any:
        if self.resets:
            self._note("refused")
            raise_boom("cannot be reset twice")
        return super().reset(**kwargs)


class SeededEnv(gymnasium.Env):
    """Everything drawn from its own seeded generator: length of the episode, observations, rewards, infos.

    Every other step has an info.

    Args:
        env_id: For the log only; the numbers depend on the seed alone.
        sleep: Mean seconds that a step sleeps, drawn from a generator that nobody seeds.
        die_at: In which step of its life the first instance dies (with ``once``), None for never.
        once: A path that tells the first instance from later ones.
    """

    def __init__(
        self, env_id: int = 0, sleep: float = 0.0, die_at: int | None = None, once: str | None = None
    ) -> None:
        self.observation_space = spaces.Dict(
            {"x": spaces.Box(-np.inf, np.inf, (4,), np.float64), "n": spaces.Discrete(1_000_000)}
        )
        self.action_space = spaces.Discrete(5)
        self.env_id, self.sleep, self.die_at, self.once = env_id, sleep, die_at, once
        self.clock = random.Random()
        self.lived, self.t, self.length = 0, 0, 1

    def _obs(self) -> dict[str, Any]:
        return {"x": self.np_random.random(4), "n": int(self.np_random.integers(1_000_000))}

    def _info(self) -> dict[str, Any]:
        drawn = self.np_random.random((2, 2)).astype(np.float32)
        return {
            "t": self.t,
            "drawn": drawn,
            "more": {"n": self.np_random.integers(9), "name": f"at {self.t}"},
        }

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(1, 9))
        return self._obs(), self._info()

    def step(self, action: Any) -> Any:
        if self.sleep:
            time.sleep(2 * self.sleep * self.clock.random())
        self.lived += 1
        if self.lived == self.die_at and self.once is not None and first_time(self.once):
            os._exit(FAULT_EXIT_CODE)
        self.t += 1
        obs = self._obs()
        reward = float(self.np_random.random()) + int(action)
        over = self.t >= self.length
        truncated = over and bool(self.np_random.integers(2))
        info = {} if self.t % 2 else self._info()
        return obs, reward, over and not truncated, truncated, info

    @property
    def where_pid(self) -> int:
        """The process that hosts this env."""
        return os.getpid()


class ReplayEnv:
    """Gives the observations it was handed, one after the other, and keeps the actions that it is given."""

    def __init__(self, observation_space: Any, action_space: Any, observations: list[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.observations, self.given = observations, []

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.given = []
        return self.observations[0], {}

    def step(self, action: Any) -> Any:
        self.given.append(action)
        return self.observations[len(self.given)], 0.0, False, False, {}

    def close(self) -> None:
        pass


class GlobalRngEnv(gymnasium.Env):
    """Draws from the global generators of ``numpy.random`` and ``random`` and never seeds them."""

    def __init__(self, env_id: int = 0) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (4,), np.float64)
        self.action_space = spaces.Discrete(5)

    def _obs(self) -> np.ndarray:
        return np.array([np.random.random(), np.random.random(), random.random(), random.random()])

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        return self._obs(), 0.0, False, False, {}


class NestedEnv(gymnasium.Env):
    """A counter in every leaf of a nested space; ``reuse``: the same objects each step."""

    def __init__(self, env_id: int = 0, reuse: bool = False, length: int | None = None) -> None:
        self.observation_space = spaces.Dict(
            {
                "a": spaces.Tuple((spaces.Box(0, 255, (2, 3), np.uint8), spaces.Discrete(1000))),
                "b": spaces.Dict(
                    {"c": spaces.Box(-np.inf, np.inf, (2,), np.float32), "d": spaces.MultiBinary(3)}
                ),
                "e": spaces.MultiDiscrete([300, 300]),
                "f": spaces.Box(-np.inf, np.inf, (), np.float64),
            }
        )
        self.action_space = spaces.Discrete(5)
        self.env_id, self.t, self.reuse, self.length = env_id, 0, reuse, length
        self.u8, self.f32 = np.zeros((2, 3), np.uint8), np.zeros(2, np.float32)
        self.multi, self.binary = np.zeros(2, np.int64), np.zeros(3, np.int8)

    @staticmethod
    def expected(env_id: int, t: int) -> dict[str, Any]:
        """The observation that env ``env_id`` gives after ``t`` steps."""
        k = 10 * env_id + t
        return {
            "a": (np.full((2, 3), k % 256, np.uint8), np.int64(k % 1000)),
            "b": {"c": np.full(2, k, np.float32), "d": np.array([k & 1, k >> 1 & 1, k >> 2 & 1], np.int8)},
            "e": np.array([k % 300, t % 300], np.int64),
            "f": np.array(k / 7.0),
        }

    def _obs(self) -> dict[str, Any]:
        obs = self.expected(self.env_id, self.t)
        if self.reuse:
            self.u8[:], self.f32[:] = obs["a"][0], obs["b"]["c"]
            self.multi[:], self.binary[:] = obs["e"], obs["b"]["d"]
            obs["a"] = (self.u8, obs["a"][1])
            obs["b"] = {"c": self.f32, "d": self.binary}
            obs["e"] = self.multi
        return obs

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self._obs(), float(self.t), self.t == self.length, False, {}


class EchoEnv(gymnasium.Env):
    """Tells what kind of action it was given; with ``scribble`` it also writes into it."""

    def __init__(self, env_id: int = 0, action_space: Any = None, scribble: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = action_space
        self.env_id, self.scribble, self.steps = env_id, scribble, 0
        self.last: Any = None

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        kind = type(action).__name__
        shape, dtype = np.shape(action), str(getattr(action, "dtype", ""))
        total = float(np.sum(action)) if kind != "bytes" and dtype != "object" else 0.0
        if self.scribble:
            action[...] = 99
        info = {"kind": kind, "shape": shape, "dtype": dtype, "is_index": hasattr(action, "__index__")}
        return np.array([total]), 0.0, False, False, info


class ActionKeepingEnv(EchoEnv):
    """Keeps its last action as ``last``."""

    def step(self, action: Any) -> Any:
        self.last = action
        return np.zeros(1), 0.0, False, False, {}


class ObsEnv(gymnasium.Env):
    """Gives the observations it was handed, one after another, the first in reset; the last for ever."""

    def __init__(self, env_id: int = 0, space: Any = None, observations: Any = (), fill: Any = None) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(5)
        self.env_id, self.observations, self.k = env_id, observations, 0
        if fill is not None:  # observations that do not pickle are made here
            self.observations = fill()

    def _next(self) -> Any:
        obs = self.observations[min(self.k, len(self.observations) - 1)]
        self.k += 1
        return obs

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        return self._next(), {}

    def step(self, action: Any) -> Any:
        return self._next(), 0.0, False, False, {}


class BigEnv(gymnasium.Env):
    """A large observation that is filled with one value per step."""

    def __init__(self, env_id: int = 0, size: int = 300_000) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = spaces.Discrete(5)
        self.env_id, self.t, self.buffer = env_id, 0, np.zeros(size, np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self.t = 0
        self.buffer[:] = 100_000 * self.env_id
        return self.buffer, {}

    def step(self, action: Any) -> Any:
        self.t += 1
        self.buffer[:] = 100_000 * self.env_id + self.t
        return self.buffer, 0.0, False, False, {}


class AbnormalEnv(CounterEnv):
    """Reports itself abnormal in step ``at``, with an observation of its own and, if asked, the end."""

    def __init__(self, env_id: int = 0, at: int = 2, ends: bool = True, **kwargs: Any) -> None:
        super().__init__(env_id, **kwargs)
        self.at, self.ends = at, ends

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.t == self.at:
            return obs, reward, self.ends, False, {**info, "abnormal": True}
        return obs, reward, terminated, truncated, info


class InfoEnv(CounterEnv):
    """Has an info in every step, made by ``make_info(t)``."""

    def __init__(self, env_id: int = 0, make_info: Any = None, **kwargs: Any) -> None:
        super().__init__(env_id, **kwargs)
        self.make_info = make_info

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], self.make_info(self.t))


def info_with_lambda(t: int) -> dict[str, Any]:
    """An info with one value that does not pickle."""
    return {"t": t, "bad": threading.Lock()}


class AttributeEnv(CounterEnv):
    """Attributes of every sort; one that does not pickle, one that raises."""

    def __init__(self, env_id: int = 0, asked: Log | None = None, **kwargs: Any) -> None:
        super().__init__(env_id, **kwargs)
        self.colour = f"colour-{env_id}"
        self.lock = threading.Lock()
        self.asked = asked

    @property
    def broken(self) -> int:
        """Raises, as a property of a user's env may."""
        raise Boom("this property is broken")

    def nap(self, seconds: float) -> None:
        """A method that takes its time."""
        time.sleep(seconds)

    def __getattr__(self, name: str) -> Any:
        asked = self.__dict__.get("asked")
        if asked is not None:
            asked.add("asked", name)
        raise AttributeError(f"{type(self).__name__} has no {name}")


class SpawningEnv(CounterEnv):
    """Starts a process of its own in its constructor (F16)."""

    def __init__(self, env_id: int = 0, **kwargs: Any) -> None:
        super().__init__(env_id, **kwargs)
        queue = multiprocessing.get_context("fork").Queue()
        child = multiprocessing.get_context("fork").Process(target=queue.put, args=(41 + 1,))
        child.start()
        self.answer = queue.get(timeout=30)
        child.join(30)


class ManagingEnv(CounterEnv):
    """An env that has a manager of its own, with one env in it."""

    def __init__(self, env_fn: Callable[[], Any], context: str) -> None:
        super().__init__()
        cfg = {"type": "subprocess", "context": context, "step_timeout": None}
        self.inner = create_env_manager(cfg, [env_fn])
        self.inner.launch()

    def step(self, action: Any) -> Any:
        self.inner.step({0: action})
        return super().step(action)

    def close(self) -> None:
        self.inner.close()
        super().close()


class AlarmEnv(CounterEnv):
    """Uses SIGALRM for itself: each step sets a timer and waits until its own handler has run."""

    def __init__(self, env_id: int = 0, **kwargs: Any) -> None:
        super().__init__(env_id, **kwargs)
        self.alarms = 0
        signal.signal(signal.SIGALRM, self._on_alarm)

    def _on_alarm(self, *_: Any) -> None:
        self.alarms += 1

    def step(self, action: Any) -> Any:
        before = self.alarms
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while self.alarms == before:
            signal.pause()
        return super().step(action)

    @property
    def handler_is_mine(self) -> bool:
        """Whether SIGALRM still goes to this env's handler."""
        return signal.getsignal(signal.SIGALRM) == self._on_alarm


class PrintingEnv(CounterEnv):
    """Prints ten megabytes in its second step (F19)."""

    def step(self, action: Any) -> Any:
        if self.t == 1:
            line = "x" * 1023 + "\n"
            for _ in range(10 * 1024):
                sys.stdout.write(line)
            sys.stdout.flush()
        return super().step(action)


class KillOnRead:
    """An array that kills its process as soon as numpy reads it: death in the middle of writing a row."""

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
        return np.zeros(8)


class HalfWrittenEnv(gymnasium.Env):
    """Dies while its observation is being copied, once (O15)."""

    def __init__(self, env_id: int = 0, once: str = "") -> None:
        self.observation_space = spaces.Dict(
            {
                "a": spaces.Box(-np.inf, np.inf, (1000,), np.float64),
                "b": spaces.Box(-np.inf, np.inf, (8,), np.float64),
                "c": spaces.Box(-np.inf, np.inf, (1000,), np.float64),
            }
        )
        self.action_space = spaces.Discrete(5)
        self.env_id, self.once, self.t = env_id, once, 0

    def _obs(self) -> dict[str, Any]:
        k = 100.0 * self.env_id + self.t
        return {"a": np.full(1000, k), "b": np.full(8, k), "c": np.full(1000, k)}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        obs = self._obs()
        if self.t == 3 and first_time(self.once):
            obs["b"] = KillOnRead()
        return obs, 0.0, False, False, {}


def torn_array(path: str, array: np.ndarray) -> np.ndarray:
    """The same values, but the second half of the memory behind them is gone: who reads on dies of SIGBUS.

    A plain ndarray for all that numpy can tell; its items are read one after the other, first to last.
    """
    import faulthandler

    faulthandler.disable()  # its report on stderr is not what is tested
    np.repeat(array, 2).tofile(path)
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        os.ftruncate(file.fileno(), len(mapped) // 2)
    return np.frombuffer(mapped, array.dtype)[::2]


class TornEnv(gymnasium.Env):
    """Dies when half of its large observation is in its row, in its third step, once (O15).

    All numbers of an observation are the same, and none is 0.

    Args:
        env_id: Whose the observations are.
        torn: A path for the observation that is torn; None for an env that never dies.
        leaf: Whether the observation is a Dict with the large array between two others.
        info: Whether the third step has an info.
    """

    SIZE = 300_000

    def __init__(
        self, env_id: int = 0, torn: str | None = None, leaf: bool = False, info: bool = False
    ) -> None:
        large = spaces.Box(-np.inf, np.inf, (self.SIZE,), np.float32)
        small = spaces.Box(-np.inf, np.inf, (100,), np.float32)
        self.observation_space = spaces.Dict({"a": small, "b": large, "c": small}) if leaf else large
        self.action_space = spaces.Discrete(5)
        self.env_id, self.torn, self.leaf, self.info, self.t = env_id, torn, leaf, info, 0

    @property
    def where_pid(self) -> int:
        """The process that hosts this env."""
        return os.getpid()

    def _obs(self, torn: bool = False) -> Any:
        value = np.float32(100 * self.env_id + self.t + 1)
        large, small = np.full(self.SIZE, value), np.full(100, value)
        if torn and self.torn is not None and first_time(self.torn):
            large = torn_array(self.torn, large)
        return {"a": small, "b": large, "c": small} if self.leaf else large

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        third = self.t == 3
        return (
            self._obs(torn=third),
            float(self.t),
            False,
            False,
            {"third": True} if third and self.info else {},
        )


class FreeFormEnv:
    """No spaces at all: whatever it is given comes back, by the side channel."""

    observation_space = None
    action_space = None

    def __init__(self, env_id: int = 0, size: int = 0) -> None:
        self.env_id, self.size, self.steps = env_id, size, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        return {"who": self.env_id, "data": b""}, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return {"who": self.env_id, "data": bytes(self.size), "got": action}, 1.0, False, False, {}

    def close(self) -> None:
        pass


class FreeFormWhereEnv(FreeFormEnv):
    """Says which process it lives in."""

    @property
    def where_pid(self) -> int:
        """The process that hosts this env."""
        return os.getpid()


class HeardEnv(FreeFormEnv):
    """Says that it has been given an action."""

    def __init__(self, env_id: int = 0, heard: Any = None) -> None:
        super().__init__(env_id)
        self.heard = heard

    def step(self, action: Any) -> Any:
        self.heard.post(1)
        return {"who": self.env_id}, 1.0, False, False, {}


class TimestepEnv:
    """The ``BaseEnvTimestep`` style: ``seed`` apart from ``reset``, one timestep a step.

    With a static seed every episode is the same; with a dynamic one they differ, reproducibly.
    """

    def __init__(
        self, env_id: int = 0, length: int = 3, with_replay: bool = True, log: Log | None = None
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Discrete(5)
        self.reward_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.env_id, self.length, self.log = env_id, length, log
        self.t, self.episode = 0, -1
        self.given: Any = None
        self.dynamic: Any = None
        self.replay_path: Any = None
        if with_replay:
            self.enable_save_replay = self._enable_save_replay

    def _enable_save_replay(self, replay_path: Any = None) -> None:
        self.replay_path = replay_path
        if self.log is not None:
            self.log.add("replay", self.env_id, replay_path)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self.given, self.dynamic = seed, dynamic_seed
        if self.log is not None:
            self.log.add("seed", self.env_id, seed, dynamic_seed)

    def reset(self, **kwargs: Any) -> np.ndarray:
        self.t, self.episode = 0, self.episode + 1
        if self.log is not None:
            self.log.add("reset", self.env_id, *sorted(f"{k}={v}" for k, v in kwargs.items()))
        return np.array([self.env_id, 0.0])

    def step(self, action: Any) -> Any:
        from envmgr import BaseEnvTimestep

        self.t += 1
        reward = np.array([self.t], np.float32)
        return BaseEnvTimestep(np.array([self.env_id, float(self.t)]), reward, self.t >= self.length, {})

    def close(self) -> None:
        pass

    @property
    def where_pid(self) -> int:
        """The process that hosts this env."""
        return os.getpid()


class OldGymEnv:
    """Old gym: four values, ``reset`` without a seed, no ``seed`` method."""

    def __init__(self, env_id: int = 0, length: int = 3, seed_fault: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = spaces.Discrete(5)
        self.env_id, self.length, self.t = env_id, length, 0
        if seed_fault:
            self.seed = self._seed

    def _seed(self, seed: Any = None) -> None:
        raise Boom("this env cannot be seeded")

    def reset(self) -> np.ndarray:
        self.t = 0
        return np.array([0.0])

    def step(self, action: Any) -> Any:
        self.t += 1
        over = self.t >= self.length
        return np.array([float(self.t)]), float(self.t), over, {"TimeLimit.truncated": True} if over else {}

    def close(self) -> None:
        pass


class RewardEnv(CounterEnv):
    """A ``CounterEnv`` whose reward is made by ``make_reward(t)``."""

    def __init__(
        self, env_id: int = 0, make_reward: Any = None, reward_space: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(env_id, **kwargs)
        self.make_reward = make_reward
        if reward_space is not None:
            self.reward_space = reward_space

    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, self.make_reward(self.t), terminated, truncated, info


class LockTakingEnv(CounterEnv):
    """Takes a lock that belongs to a module, which a thread of the parent may hold (F17)."""

    def reset(self, **kwargs: Any) -> Any:
        from tests.helpers import locked

        with locked.LOCK:
            return super().reset(**kwargs)


class ModulesEnv(CounterEnv):
    """Says what its process has imported."""

    @property
    def loaded(self) -> list[str]:
        """The top-level modules."""
        return sorted({name.partition(".")[0] for name in sys.modules})


class LastWordsEnv(CounterEnv):
    """Says in the middle of a step that it is there, waits, and then has much to say."""

    def __init__(self, env_id: int = 0, here: Any = None, info: bool = True, **kwargs: Any) -> None:
        super().__init__(env_id, **kwargs)
        self.here, self.info = here, info

    def step(self, action: Any) -> Any:
        Signal(self.here / "stepping").post(1)
        Signal(self.here / "go on").wait(1, 40)
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, {"long": "x" * 5000} if self.info else info


class BigAnswerEnv(CounterEnv):
    """Env 0 dies when it is asked; the others have an answer that no socket holds."""

    def big_answer(self) -> bytes:
        """Five megabytes."""
        if self.env_id == 0:
            os._exit(3)
        return bytes(5_000_000)


class CloseRaisesEnv(CounterEnv):
    """Its ``close`` raises."""

    def close(self) -> None:
        raise Boom("in close")


class CloseHangsEnv(CounterEnv):
    """Its ``close`` does not come back."""

    def close(self) -> None:
        hang_stubbornly()


class FaultyLockTakingEnv(FaultyEnv, LockTakingEnv):
    """Takes the lock in each reset, and fails in a step."""


class FaultyAlarmEnv(FaultyEnv, AlarmEnv):
    """Uses SIGALRM, and fails in a step."""


class Painted(gymnasium.Wrapper):
    """A wrapper with an attribute of its own, around an env with others."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.paint = "red"


def painted(env_id: int = 0) -> gymnasium.Env:
    """An ``AttributeEnv`` inside two wrappers."""
    return Painted(gymnasium.wrappers.TimeLimit(AttributeEnv(env_id), 1000))


def slow_start(env_id: int, gate: Signal) -> CounterEnv:
    """An env_fn that waits before it builds."""
    gate.pass_through()
    return CounterEnv(env_id)


def no_env() -> None:
    """An env_fn that forgot its ``return``."""


def failing_env_fn(kind: str = "raise") -> CounterEnv:
    """An env_fn that fails."""
    do_fault(kind)
    return CounterEnv()


def different_env(env_id: int = 0, size: int = 3) -> CounterEnv:
    """An env whose observation has ``size`` numbers."""
    env = CounterEnv(env_id)
    env.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)
    return env
