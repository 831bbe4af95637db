"""Managers for tests: the ``make`` fixture, which launches in every kind, and small ways to drive them.

``make`` is parametrised over kinds: ``base``, ``subprocess-fork``, ``async_subprocess-spawn`` and so on.
By default a test runs in ``base`` and in both process managers under fork; the marks below widen or
narrow that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.helpers.sync import DEADLINE, wait_until

CONTEXTS = ("fork", "spawn", "forkserver")
FORK = ("base", "subprocess-fork", "async_subprocess-fork")
PROCESS = ("subprocess-fork", "async_subprocess-fork")
# Both managers and all start methods, not each with each: a fresh interpreter per worker is half a second.
PROCESS_EVERYWHERE = (*PROCESS, "async_subprocess-spawn", "subprocess-forkserver")
EVERYWHERE = ("base", *PROCESS_EVERYWHERE)
START_METHODS = ("subprocess-fork", "async_subprocess-spawn", "subprocess-forkserver")


def kinds(*names: str) -> Any:
    """Runs a test in these kinds."""
    return pytest.mark.parametrize("make", names, indirect=True)


in_base = kinds("base")
in_processes = kinds(*PROCESS)
in_sync = kinds("subprocess-fork")
in_async = kinds("async_subprocess-fork")
in_start_methods = kinds(*START_METHODS)
in_base_and_start_methods = kinds("base", *START_METHODS)
in_base_and_sync = kinds("base", "subprocess-fork")
in_every_process_kind = kinds(*PROCESS_EVERYWHERE)
everywhere = kinds(*EVERYWHERE)


class Maker:
    """Makes managers of one kind and closes them all at the end.

    An async manager waits for all results unless a test says otherwise, so that what holds for every
    manager can be written once.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.type, _, context = kind.partition("-")
        self.context = context or None
        self.is_base = self.type == "base"
        self.is_async = self.type.startswith("async")
        self.made: list[Any] = []

    def config(self, n: int, **cfg: Any) -> dict[str, Any]:
        """The config of a manager of this kind with ``n`` envs."""
        full: dict[str, Any] = {"type": self.type}
        if self.context:
            full["context"] = self.context
        if self.is_async:
            full.update(wait_num=max(n, 1), step_wait_timeout=None)
        full.update(cfg)
        return full

    def __call__(self, env_fns: list[Callable[[], Any]], **cfg: Any) -> Any:
        from envmgr import create_env_manager

        manager = create_env_manager(self.config(len(env_fns), **cfg), env_fns)
        self.made.append(manager)
        return manager

    def launched(self, env_fns: list[Callable[[], Any]], **cfg: Any) -> Any:
        """A manager that is launched, with all its envs in RUN."""
        manager = self(env_fns, **cfg)
        manager.launch()
        wait_ready(manager)
        return manager

    def close(self) -> None:
        """Closes everything made."""
        for manager in self.made:
            manager.close()


def making(kind: str) -> Iterator[Maker]:
    """A maker of one kind, whose managers are closed in the end: what a ``make`` fixture yields from."""
    maker = Maker(kind)
    try:
        yield maker
    finally:
        maker.close()


@pytest.fixture(params=FORK)
def make(request: pytest.FixtureRequest) -> Iterator[Maker]:
    """A maker of managers, one run per kind."""
    yield from making(request.param)


@pytest.fixture
def signals(make: Maker, tmp_path: Any) -> Iterator[Callable[[str], Any]]:
    """Named signals; when the test is over every wait on them is let through, so that envs can be closed."""
    from tests.helpers.sync import Signal

    made: dict[str, Signal] = {}

    def signal(name: str) -> Signal:
        if name not in made:
            made[name] = Signal(str(tmp_path / f"{name}.fifo"))
        return made[name]

    yield signal
    for one in made.values():
        one.post(200)
    make.close()
    for one in made.values():
        one.close()


def many(env: Callable[..., Any], n: int, **kwargs: Any) -> list[Callable[[], Any]]:
    """``n`` env_fns that build ``env`` with their own env_id."""
    return [partial(env, i, **kwargs) for i in range(n)]


def wait_ready(manager: Any, ids: Any = None, deadline: float = DEADLINE) -> dict[int, Any]:
    """Waits until all of ``ids`` (default: every env that is not DONE) are in ``ready_obs``, and gives it."""

    def look() -> dict[int, Any] | None:
        wanted = ids
        if wanted is None:
            wanted = [i for i in range(manager.env_num) if not manager.env_state_done(i)]
        obs = manager.ready_obs
        return obs if set(wanted) <= set(obs) else None

    return wait_until(look, f"envs {ids} to be ready", deadline)


def error_of(expected: Any, call: Callable[..., Any], *args: Any) -> Any:
    """The error that a call raises, for tests that try many bad arguments on one manager; it has a text."""
    try:
        got = call(*args)
    except expected as error:
        if not str(error).strip():
            raise AssertionError(f"{args!r}: {type(error).__name__} without a text") from error
        return error
    raise AssertionError(f"{args!r} was taken, and gave {got!r}")


class Sent:
    """Which workers a manager has sent messages to from now on: a request that is counted here has gone out.

    Args:
        manager: A manager of processes that is launched.
        before: Called with the worker just before each message goes out, by who sends it: nobody else
            hears of anything meanwhile.
    """

    def __init__(self, manager: Any, before: Callable[[int], Any] | None = None) -> None:
        self.workers: list[int] = []
        self._pool = manager._engine.pool
        send = self._pool.send_packed

        def counted(worker: int, packed: Any) -> None:
            if before is not None:
                before(worker)
            send(worker, packed)
            self.workers.append(worker)

        self._pool.send_packed = counted

    def wait(self, n: int = 1) -> None:
        """Waits until ``n`` messages have been sent."""
        wait_until(lambda: len(self.workers) >= n, f"{n} messages to be sent")

    def stop(self) -> None:
        """Counts no more."""
        del self._pool.send_packed


def launch_all(manager: Any) -> dict[int, Any]:
    """Launches and waits until every env is ready: what fails in either shows here."""
    manager.launch()
    return wait_ready(manager)


def state_of(manager: Any, i: int) -> str:
    """The name of an env's state."""
    from envmgr import EnvState

    return EnvState(manager.env_states[i]).name


def wait_state(manager: Any, i: int, name: str, deadline: float = DEADLINE) -> None:
    """Waits until env ``i`` is in the state that is named."""
    wait_until(lambda: state_of(manager, i) == name, f"env {i} to be {name}", deadline)


def actions_for(ids: Any, action: int = 0) -> dict[int, Any]:
    """The same action for each of ``ids``."""
    return {int(i): action for i in ids}


def step_until(manager: Any, actions: dict[int, Any], wanted: Any = None) -> dict[int, Any]:
    """Steps, then collects what is pending until ``wanted`` (default: all that were stepped) have come."""
    wanted = set(actions if wanted is None else wanted)
    got = dict(manager.step(actions))

    def more() -> bool:
        if not wanted <= set(got):
            got.update(manager.step({}))
        return wanted <= set(got)

    wait_until(more, f"results of {sorted(wanted)}")
    return got


def same(a: Any, b: Any) -> bool:
    """Whether two observations or infos have the same structure, dtypes and values (NaN equals NaN)."""
    if isinstance(a, dict) or isinstance(b, dict):
        return (
            isinstance(a, dict)
            and isinstance(b, dict)
            and set(a) == set(b)
            and all(same(a[k], b[k]) for k in a)
        )
    if isinstance(a, tuple) or isinstance(b, tuple):
        return (
            isinstance(a, tuple)
            and isinstance(b, tuple)
            and len(a) == len(b)
            and all(same(x, y) for x, y in zip(a, b, strict=True))
        )
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))


def trajectories(manager: Any, steps: int, n_actions: int = 5, infos: bool = False) -> dict[int, list[Any]]:
    """Steps every env ``steps`` times, whatever the order, and gives each env's own story.

    The action is a function of the env and of how often it was stepped, so the story depends on nothing else.
    ``infos``: each reset and each step is told with its info, too.
    """
    story: dict[int, list[Any]] = {i: [] for i in range(manager.env_num)}
    asked = dict.fromkeys(range(manager.env_num), 0)

    def round_() -> bool:
        ready = {i: obs for i, obs in manager.ready_obs.items() if asked[i] < steps}
        begin = [i for i in ready if not story[i] or story[i][-1][0] == "end"]
        first = manager.ready_info if infos and begin else {}
        for i in begin:
            story[i].append(("reset", ready[i], *([first[i]] if infos else [])))
        actions = {}
        for i in ready:
            actions[i] = _action(i, asked[i], n_actions)
            asked[i] += 1
        for i, ts in manager.step(actions).items():
            step = ("step", ts.obs, float(ts.reward), bool(ts.terminated), bool(ts.truncated))
            story[i].append((*step, *([told_info(ts.info)] if infos else [])))
            if ts.done:
                story[i].append(("end", bool(ts.info.get("abnormal", False))))
        return all(sum(e[0] == "step" for e in s) == steps for s in story.values())

    wait_until(round_, f"{steps} steps of every env", 60.0)
    return story


def array_trajectories(manager: Any, steps: int, n_actions: int = 5) -> dict[int, list[Any]]:
    """What ``trajectories`` tells, infos included, of the array face; the obs are Dicts of arrays."""
    obs, infos = manager.reset_arrays()
    every = range(manager.env_num)
    story: dict[int, list[Any]] = {i: [] for i in every}
    asked, begins = dict.fromkeys(every, 0), {i: (_row(obs, i), infos.get(i, {})) for i in every}
    idle, stepping = list(every), 0
    while idle or stepping:
        if idle:
            manager.send(np.array([_action(i, asked[i], n_actions) for i in idle]), idle)
        for i in idle:
            asked[i] += 1
            if i in begins:
                story[i].append(("reset", *begins.pop(i)))
        stepping += len(idle)
        out = manager.recv()
        idle, stepping = [], stepping - len(out.env_id)
        for k, i in enumerate(out.env_id.tolist()):
            info = dict(out.info.get(i, {}))
            reset_info, ends = info.pop("reset_info", {}), (bool(out.terminated[k]), bool(out.truncated[k]))
            last = out.final_obs[i] if any(ends) else _row(out.obs, k)
            story[i].append(("step", last, float(out.reward[k]), *ends, told_info(info)))
            if any(ends):
                story[i].append(("end", bool(info.get("abnormal", False))))
                begins[i] = _row(out.obs, k), reset_info
            if asked[i] < steps:
                idle.append(i)
    return story


def _action(env_id: int, asked: int, n_actions: int) -> int:
    return (7 * env_id + 3 * asked) % n_actions


def _row(obs: dict[str, Any], k: int) -> dict[str, Any]:
    return {key: value[k] for key, value in obs.items()}


def told_info(info: Any) -> dict[str, Any]:
    """An info without what the face or the run adds: how the episode ended is told beside it, of an error
    only its class (its text names a process).
    """
    told = {key: value for key, value in info.items() if key != "TimeLimit.truncated"}
    return {**told, "err": type(told["err"]).__name__} if "err" in told else told


def assert_same_stories(a: dict[int, list[Any]], b: dict[int, list[Any]]) -> None:
    """Fails at the first event in which two sets of trajectories differ."""
    assert a.keys() == b.keys()
    for i in a:
        assert len(a[i]) == len(b[i]), f"env {i}: {len(a[i])} events against {len(b[i])}"
        for k, (x, y) in enumerate(zip(a[i], b[i], strict=True)):
            assert x[0] == y[0] and len(x) == len(y), f"env {i}, event {k}: {x} against {y}"
            for u, v in zip(x[1:], y[1:], strict=True):
                assert same(u, v), f"env {i}, event {k}: {x} against {y}"
