"""What the parts of the suite share: making managers, waiting for them, and saying what was wrong.

The suite runs in pytest but does not import it. Checks are functions with a message rather than bare asserts,
because pytest rewrites asserts in test modules only, not in a library's.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from envmgr.testing.conformance.envs import Log, TallyEnv


class Harness:
    """Base of all parts. A subclass says how a manager is made.

    Attributes:
        deadline: Seconds that the suite waits for something that must happen.
        separate_processes: Whether envs live outside the caller's process. None: not looked at.
        order_asked: Whether a step returns exactly the envs that it was given, rows in that order.
        closes_on_error: Whether a manager closes when a step raises (``on_error='raise'``).
    """

    deadline: float = 20.0
    separate_processes: bool | None = None
    order_asked: bool = True
    closes_on_error: bool = True

    def make_manager(self, env_fns: list[Callable[[], Any]], **cfg: Any) -> Any:
        """A manager over these envs, not launched.

        Args:
            env_fns: One callable without arguments per env.
            cfg: Keys of the contract that a test sets: ``auto_reset``, ``episode_num``, ``max_retry``,
                ``retry_waiting_time``, ``on_error``; in ``GatheringConformance`` also ``wait_num`` and
                ``step_wait_timeout``.
        """
        raise NotImplementedError(f"{type(self).__name__}.make_manager(env_fns, **cfg) is yours to write")

    # -- pytest calls these two around each test -------------------------------------------------------

    def setup_method(self, method: Any = None) -> None:
        """Nothing is made yet."""
        self._made: list[Any] = []
        self._folders: list[Path] = []

    def teardown_method(self, method: Any = None) -> None:
        """Closes every manager of the test."""
        for manager in self._made:
            with contextlib.suppress(
                Exception
            ):  # a manager that cannot be closed has failed its test already
                manager.close()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    # -- making ----------------------------------------------------------------------------------------

    def folder(self) -> Path:
        """A folder of this test's own."""
        self._folders.append(Path(tempfile.mkdtemp(prefix="conformance-")))
        return self._folders[-1]

    def log(self) -> Log:
        """A log for envs of this test."""
        return Log(str(self.folder() / "log"))

    def made(self, env_fns: Iterable[Callable[[], Any]], **cfg: Any) -> Any:
        """A manager that is closed after the test."""
        manager = self.make_manager(list(env_fns), **cfg)
        self._made.append(manager)
        return manager

    def launched(self, env_fns: Iterable[Callable[[], Any]], reset_param: Any = None, **cfg: Any) -> Any:
        """A manager whose envs can all be stepped."""
        manager = self.made(env_fns, **cfg)
        manager.launch(reset_param) if reset_param is not None else manager.launch()
        self.ready(manager)
        return manager

    # -- driving ---------------------------------------------------------------------------------------

    def wait_for(self, look: Callable[[], Any], what: str) -> Any:
        """Asks again and again until the answer is true, and gives it."""
        end = time.monotonic() + self.deadline
        while True:
            seen = look()
            if seen:
                return seen
            if time.monotonic() > end:
                raise AssertionError(f"waited {self.deadline:g} s for {what}")
            time.sleep(0.001)

    def ready(self, manager: Any, ids: Iterable[int] | None = None) -> dict[int, Any]:
        """The ready observations, once all of ``ids`` (default: every env) are among them."""
        wanted = set(range(manager.env_num) if ids is None else ids)

        def look() -> Any:
            obs = manager.ready_obs
            return obs if wanted <= set(obs) else None

        seen: dict[int, Any] = self.wait_for(look, f"envs {sorted(wanted)} to be in ready_obs")
        return seen

    def step(self, manager: Any, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Steps, and collects until the results of all these envs are in."""
        got = dict(manager.step(actions))

        def look() -> bool:
            if not set(actions) <= set(got):
                more = manager.step({})
                expect(sorted(set(more) & set(got)), [], "envs whose result came twice")
                got.update(more)
            return set(actions) <= set(got)

        self.wait_for(look, f"the results of {sorted(actions)}")
        expect(sorted(got), sorted(actions), "the envs whose results came")
        return got

    def wait_state(self, manager: Any, env_id: int, *names: str) -> None:
        """Waits until an env is in one of the states named."""
        self.wait_for(lambda: state(manager, env_id) in names, f"env {env_id} to be {' or '.join(names)}")


def tally(n: int, **kwargs: Any) -> list[Callable[[], Any]]:
    """``n`` env_fns of counting envs."""
    return [partial(TallyEnv, i, **kwargs) for i in range(n)]


def state(manager: Any, env_id: int) -> str:
    """The name of an env's state."""
    from envmgr.engine.states import EnvState

    return EnvState(manager.env_states[env_id]).name


def lists(obs: Mapping[int, Any]) -> dict[int, list[float]]:
    """Observations of counting envs as plain lists."""
    return {int(i): np.asarray(value).tolist() for i, value in obs.items()}


def expect(got: Any, wanted: Any, what: str) -> None:
    """Fails, with both values, when they are not the same (in structure, dtype, shape and value)."""
    if not same(got, wanted):
        raise AssertionError(f"{what}: expected {wanted!r}, got {got!r}")


def same(one: Any, two: Any) -> bool:
    """Equal in structure and value; arrays in dtype and shape too, NaN being equal to itself."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return set(one) == set(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, np.ndarray | np.generic) or isinstance(two, np.ndarray | np.generic):
        a, b = np.asarray(one), np.asarray(two)
        alike = a.dtype == b.dtype and a.shape == b.shape
        return alike and bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
    return bool(one == two)


def refused(errors: Any, call: Callable[..., Any], *args: Any, says: Iterable[str] = ()) -> Any:
    """Fails unless a call raises one of these errors, with a text that has these words; gives the error."""
    try:
        got = call(*args)
    except errors as error:
        text = str(error).lower()
        missing = [word for word in says if word.lower() not in text]
        if missing or not text.strip():
            raise AssertionError(
                f"the message of {type(error).__name__} does not say {missing or 'anything'}: {error}"
            ) from error
        return error
    except Exception as error:  # whatever else a manager raises is what is found wrong with it
        raise AssertionError(f"{args!r}: expected {errors}, got {type(error).__name__}: {error}") from error
    raise AssertionError(f"{args!r} was not refused, and gave {got!r}")
