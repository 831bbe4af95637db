"""The examination of one env, in the worker that hosts it: a few hundred random steps, resets, seeds.

Written as a generator that yields after each call of the env, so that whoever runs it can stop between any
two; it yields True where what was seen should be told at once. Nothing is judged here, and nothing here draws
from a global random generator.
"""

from __future__ import annotations

import copy
import math
import pickle
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import cloudpickle
import numpy as np

from envmgr.cli.checking.blackbox import BlackBox
from envmgr.cli.checking.facts import Facts, Seeding, Times
from envmgr.cli.checking.generators import GlobalGenerators
from envmgr.cli.checking.observations import ObservationCheck, ReuseCheck, parts_of_info
from envmgr.cli.checking.target import TargetError, callable_of
from envmgr.cli.checking.trajectories import Moment, parting
from envmgr.cli.checking.troubles import trouble_of
from envmgr.envs.adapt import Adapted, adapt
from envmgr.envs.chain import chain, find
from envmgr.envs.flags import flag
from envmgr.envs.probe import seeds_by_reset
from envmgr.errors import SpaceMismatchError
from envmgr.memory.casts import fit
from envmgr.words import brief
from envmgr.workers.hygiene import derive, seed_globals
from envmgr.workers.interrupt import Interrupted

_COMPARED = 100  # steps
_SEEDS = 11, 12


class _Failed(Exception):  # noqa: N818 - it ends a part, it is no error of ours
    """A call of the env failed, and has been written down."""


class Examination:
    """One env under examination.

    Args:
        env_fn: What builds it.
        box: Where each call is noted.
        steps: How many steps are looked at.
        budget: Seconds that a part may take.

    Attributes:
        facts: What was seen so far.
    """

    def __init__(self, env_fn: Callable[[], Any], box: BlackBox, *, steps: int, budget: float) -> None:
        self.facts = Facts()
        self._env_fn = env_fn
        self._box = box
        self._steps = steps
        self._budget = budget
        self._counts: dict[str, int] = {}
        self._globals = GlobalGenerators()
        self._env: Adapted | None = None
        self._obs: ObservationCheck
        self._reuse = ReuseCheck()

    def run(self) -> Iterator[bool]:
        """Looks at everything; yields after each call of the env."""
        facts = self.facts
        try:
            self._find()
            env = self._build()
            yield True
            acts = env.action_space is not None or callable(find(env.env, "random_action"))
            if acts:
                yield from self._walk(env)
            yield from self._resets(env)
            if acts:
                yield from self._seeds(env)
        except (_Failed, TargetError) as error:
            facts.missing = str(error) if isinstance(error, TargetError) else ""
        if self._env is not None:
            yield from self._close(self._env)
        facts.globals_used = self._globals.used
        facts.finished = True

    def abandon(self) -> None:
        """Closes the env where the examination was broken off."""
        env, self._env = self._env, None
        if env is not None and not self._counts.get("close"):
            env.close()

    # -- calls ----------------------------------------------------------------------------------------

    def _call(self, op: str, function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
        """Calls the user's code: noted before, timed, and written down when it fails."""
        count = self._counts[op] = self._counts.get(op, 0) + 1
        self._globals.mark()
        self._box.entered(op, count)
        start = time.perf_counter()
        try:
            result = function(*args)
        except (Interrupted, TargetError):
            raise
        except SpaceMismatchError as error:  # ours: the env returned, and what it returned is told
            self._value("mismatch", f"{error.message} ({op} {count})")
            raise _Failed from None
        except BaseException as error:  # an env may raise anything, SystemExit too
            self.facts.troubles.append(trouble_of(error, op, count, self._env))
            raise _Failed from None
        finally:
            elapsed = time.perf_counter() - start
        self._box.entered("", 0)
        self._globals.look(op)
        self.facts.globals_used = self._globals.used
        return result, elapsed

    def _reset(self, env: Adapted, seed: int | None) -> Any:
        """Resets; looks at what comes; gives the observation."""
        result, elapsed = self._call("reset", env.reset, seed, None)
        at = f"reset {self._counts['reset']}"
        self.facts.reset_times.append(elapsed)
        obs, info = result
        self._looked_at(obs, info, at)
        return obs

    def _step(self, env: Adapted, action: Any) -> Any:
        result, elapsed = self._call("step", env.step, action)
        self.facts.step_times.append(elapsed)
        at = f"step {self._counts['step']}"
        if not isinstance(result, tuple | list) or len(result) != 5:
            self._value("result", f"{at} returned {brief(result)}")
            raise _Failed
        obs, reward, terminated, truncated, info = result
        self._looked_at(obs, info, at)
        self._reward(env, reward, at)
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not _is_flag(value):
                self._value("flag", f"{name} is {brief(value)} in {at}")
        return obs, reward, _truth(terminated), _truth(truncated)

    def _action(self, env: Adapted) -> Any:
        return self._call("random_action", env.random_action)[0]

    # -- parts ----------------------------------------------------------------------------------------

    def _find(self) -> None:
        found, _ = self._call("import", callable_of, self._env_fn)
        try:
            self.facts.factory_bytes = len(cloudpickle.dumps(found))
        except Exception as error:  # what does not pickle can raise anything
            self.facts.pickle_error = f"{type(error).__name__}: {error}"

    def _build(self) -> Adapted:
        facts = self.facts
        env: Adapted
        env, facts.build_time = self._call("env_fn", lambda: adapt(self._env_fn()))
        self._env = env
        facts.env = " > ".join(type(obj).__name__ for obj in chain(env.env))
        facts.style = env.style
        if env.observation_space is not None:
            facts.observation_space = repr(env.observation_space)
        if env.action_space is not None:
            facts.action_space = repr(env.action_space)
        self._obs = ObservationCheck(env.observation_space)
        for leaf in self._obs.layout.leaves:
            about = "side" if leaf.kind == "side" else f"{leaf.dtype} {leaf.shape}"
            facts.leaves.append((leaf.name, about))
            if leaf.kind != "side":
                facts.obs_bytes += int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize
        return env

    def _walk(self, env: Adapted) -> Iterator[bool]:
        """Random steps, over as many episodes as come."""
        end = time.monotonic() + self._budget
        _seed_actions(env, 0)
        self._reset(env, _SEEDS[0])
        yield False
        length = 0
        for _ in range(self._steps):
            _, _, terminated, truncated = self._step(env, self._action(env))
            self.facts.style = env.style
            length += 1
            yield self.facts.steps & (self.facts.steps - 1) == 0  # 1, 2, 4, 8, ...
            if terminated or truncated:
                self.facts.episode_lengths.append(length)
                length = 0
                self._reset(env, None)
                yield False
            if time.monotonic() > end:
                break

    def _resets(self, env: Adapted) -> Iterator[bool]:
        """In the middle of an episode, and right after a reset."""
        for _ in range(2):
            self._reset(env, None)
            yield False

    # -- seeds ----------------------------------------------------------------------------------------

    def _seeds(self, env: Adapted) -> Iterator[bool]:
        takes = seeds_by_reset(env.env) or callable(find(env.env, "seed"))
        times = Times.of(self.facts.step_times)
        affordable = self._budget / 5 / max(times.mean, 1e-6) if times else 0
        steps = max(1, min(_COMPARED, self._steps, int(affordable)))
        _seed_actions(env, 1)
        actions = [self._action(env) for _ in range(steps)]
        first = yield from self._trajectory(env, actions, _SEEDS[0])
        again = yield from self._trajectory(env, actions, _SEEDS[0])
        other = yield from self._trajectory(env, actions, _SEEDS[1])
        seeding = Seeding(takes, steps, parting(first, again), seeds_differ=bool(parting(first, other)))
        if seeding.same_seed:
            runs = []
            for _ in range(2):
                run = yield from self._trajectory(env, actions, _SEEDS[0], derive(_SEEDS[0]))
                runs.append(run)
            seeding.same_seed_and_globals = parting(*runs)
        if seeding.same_seed_and_globals:
            runs = []
            for _ in range(2):
                fresh, _ = self._call("env_fn", lambda: adapt(self._env_fn()))
                run = yield from self._trajectory(fresh, actions, _SEEDS[0], derive(_SEEDS[0]))
                self._call("close", fresh.close)
                runs.append(run)
            seeding.same_seed_and_fresh = parting(*runs)
        self.facts.seeding = seeding

    def _trajectory(
        self, env: Adapted, actions: list[Any], seed: int, of_globals: int | None = None
    ) -> Generator[bool, None, list[Moment]]:
        """What comes of a seed and some actions: one moment per call."""
        if of_globals is not None:
            seed_globals(of_globals)
        moments = [Moment.of(self._obs.parts, self._reset(env, seed))]
        yield False
        for action in actions:
            # A copy: an env may write into what it is given.
            obs, reward, terminated, truncated = self._step(env, copy.deepcopy(action))
            moments.append(Moment.of(self._obs.parts, obs, reward, (terminated, truncated)))
            yield False
            if terminated or truncated:
                moments.append(Moment.of(self._obs.parts, self._reset(env, None)))
                yield False
        return moments

    def _close(self, env: Adapted) -> Iterator[bool]:
        try:
            self._call("close", env.close)
            self.facts.closed = True
        except _Failed:
            pass
        yield False

    # -- values ---------------------------------------------------------------------------------------

    def _looked_at(self, obs: Any, info: Any, at: str) -> None:
        facts = self.facts
        self._obs.look(obs, at)
        facts.misfits = self._obs.misfits
        names = [leaf.name for leaf in self._obs.layout.leaves]
        parts = self._obs.parts(obs)
        named = list(zip(names, parts, strict=True)) if parts else [("", obs)]
        self._reuse.look([*named, *parts_of_info(info)], at)
        facts.reused = self._reuse.reused
        if info is None:
            return
        if not isinstance(info, Mapping):
            self._value("info", f"the info of {at} is {brief(info)}")
        elif info:
            try:
                data = pickle.dumps(info if isinstance(info, dict) else dict(info), pickle.HIGHEST_PROTOCOL)
                facts.info_bytes = max(facts.info_bytes, len(data))
            except Exception:  # what does not pickle can raise anything
                self._unpicklable(info, "", at)

    def _unpicklable(self, info: Mapping[Any, Any], path: str, at: str) -> None:
        for key, value in info.items():
            name = f"{path}[{key!r}]"
            try:
                pickle.dumps((key, value), pickle.HIGHEST_PROTOCOL)
            except Exception as error:  # see above
                if isinstance(value, Mapping):
                    self._unpicklable(value, name, at)
                else:
                    text = f"a {type(value).__name__}, first in {at}: {error}"
                    self.facts.unpicklable.setdefault(f"info{name}", text)

    def _reward(self, env: Adapted, reward: Any, at: str) -> None:
        try:
            array = np.asarray(reward.detach().cpu().numpy() if hasattr(reward, "detach") else reward)
        except Exception as error:  # a value of the user's own may do anything
            array = np.asarray(None)
            self._value("reward", f"{brief(reward)} in {at} is no number: {error}")
        if array.dtype.kind not in "biuf":
            self._value("reward", f"it is {brief(reward)} in {at}")
        elif array.shape != env.reward_shape:
            self._value("reward shape", f"it has shape {array.shape} in {at}, expected {env.reward_shape}")
        elif array.dtype.kind == "f" and np.isnan(array).any():
            self._value("reward nan", f"it is NaN in {at}")
        if array.dtype.kind in "biuf" and array.size == math.prod(env.reward_shape):
            self._reward_fits(env, reward if array.shape == env.reward_shape else array, at)

    def _reward_fits(self, env: Adapted, reward: Any, at: str) -> None:
        """Whether a row of its dtype holds it, as a worker sees it."""
        shape, dtype = env.reward_shape, env.reward_dtype
        value = reward if np.shape(reward) == shape else np.reshape(reward, shape)
        try:
            # A name in the set of those that were warned of: no warning, we tell it ourselves.
            fit(value, dtype, shape, "reward", {"reward"})
        except SpaceMismatchError as error:
            self._value("reward dtype", f"{error.message} in {at}")
            return
        if getattr(value, "dtype", None) == np.float64 and dtype == np.float32:
            self._value("reward rounded", f"float64 goes into a reward_space of float32 in {at}")

    def _value(self, kind: str, text: str) -> None:
        self.facts.values.setdefault(kind, text)


def _is_flag(value: Any) -> bool:
    try:
        array = np.asarray(value)
    except Exception:  # a value of the user's own may do anything
        return False
    return array.shape == () and array.dtype.kind in "biuf"


def _truth(value: Any) -> bool:
    try:
        return flag(value, "")
    except SpaceMismatchError:  # written down already
        return False


def _seed_actions(env: Adapted, seed: int) -> None:
    """Makes the random actions the same in every check of this env."""
    function = getattr(env.action_space, "seed", None)
    if callable(function):
        function(seed)
