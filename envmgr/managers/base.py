"""``base``: the dict face of every manager, and the manager that runs its envs in the caller.

The other managers are this one with another pool of workers and another rule of gathering; there is
one ``step`` for all of them. The face checks what it is given, talks to the engine, and turns rows
into timesteps; it holds no state of an env.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from easydict import EasyDict

from envmgr.config import schema
from envmgr.config.merge import deep_merge_dicts
from envmgr.engine.calls import Call, call_envs
from envmgr.engine.engine import Engine, Settings
from envmgr.engine.machine import Policy
from envmgr.engine.seeds import SeedBook
from envmgr.engine.states import EnvState
from envmgr.errors import ConfigError, EnvResetError, IllegalStateError, ManagerClosedError
from envmgr.managers import checks
from envmgr.managers.arrays import ArrayFace, StepArrays, check_pinning
from envmgr.managers.attributes import EnvAttributes
from envmgr.managers.timesteps import timesteps_of
from envmgr.registry import ENV_MANAGER_REGISTRY
from envmgr.timestep import BaseEnvTimestep
from envmgr.workers.serial import SerialPool

_alive: weakref.WeakSet[BaseEnvManager] = weakref.WeakSet()

METHODS = ["reset", "step", "seed", "close", "enable_save_replay", "render", "reward_shaping"]


@ENV_MANAGER_REGISTRY.register("base")
class BaseEnvManager:
    """Steps envs in the caller's own process, one after the other. For debugging, and for the quickest envs.

    Args:
        env_fn: One callable without arguments per env, which builds it.
        cfg: Keys that differ from ``default_config()``; it is not changed.

    Raises:
        ConfigError: A key is unknown, or a value has a wrong type or range.

    Example:
        >>> with BaseEnvManager([make_env] * 8, {}) as manager:      # doctest: +SKIP
        ...     manager.launch()
        ...     timesteps = manager.step({i: 0 for i in manager.ready_obs})
    """

    config: ClassVar[dict[str, Any]] = schema.defaults("base")
    _type: ClassVar[str] = "base"
    _waits: ClassVar[bool] = False

    @classmethod
    def default_config(cls) -> EasyDict:
        """A fresh config with every key of this manager and its default."""
        cfg = EasyDict(copy.deepcopy(cls.config))
        cfg.cfg_type = cls.__name__ + "Dict"
        return cfg

    def __init__(self, env_fn: Iterable[Callable[[], Any]], cfg: Mapping[str, Any] | None = None) -> None:
        self._engine: Engine | None = None
        self._env_fns = _checked_fns(env_fn)
        self._cfg = schema.validate(self._type, deep_merge_dicts(self.config, cfg or {}), own=self.config)
        if self._cfg.get("pin_memory"):
            check_pinning(self._type, bool(self._cfg.get("as_torch")))
        self._env_num = len(self._env_fns)
        self._every = list(range(self._env_num))
        self._pid = os.getpid()
        self._calling = threading.RLock()
        self._seeds = SeedBook(self._env_num, self._cfg.seed_mode)
        self._launched = False
        self._was_closed = False
        self._arrays: ArrayFace | None = None
        self._replay_paths: Any = None
        self._on_move: list[Callable[[int, EnvState, EnvState], None]] = []
        self._action_spaces: dict[int, Any] = {}
        self._last_stats: dict[int, dict[str, Any]] = {}
        _alive.add(self)

    # -- what subclasses change ------------------------------------------------------------------------

    def _make_pool(self) -> Any:
        cfg = self._cfg
        options = {"info_errors": cfg.info_errors, "isolate_rng": None if not cfg.isolate_rng else True}
        return SerialPool(self._env_fns, options, cfg.step_timeout, cfg.reset_timeout)

    def _policy(self) -> Policy:
        cfg = self._cfg
        return Policy(
            episode_num=cfg.episode_num,
            auto_reset=cfg.auto_reset,
            max_retry=cfg.max_retry,
            retry_wait=cfg.retry_waiting_time,
            renew=cfg.retry_type == "renew",
            reset_on_error=cfg.on_error == "reset",
            retry_step=cfg.retry_step,
            close_on_error=self._type != "base",
            abnormal_is_error=self._type != "base",
            max_renewals=cfg.max_renewals,
            renewal_window=cfg.renewal_window,
        )

    def _gather_rule(self) -> tuple[int | None, float | None]:
        """(wait_num, window): None, None for all of what was asked."""
        return None, None

    # -- life ------------------------------------------------------------------------------------------

    def _connected(self) -> Engine:
        """The engine; its workers are up, but nothing need have been reset."""
        self._check_process()
        if self._engine is None:
            cfg = self._cfg
            settings = Settings(
                connect_timeout=cfg.get("connect_timeout"),
                step_timeout=cfg.step_timeout,
                reset_timeout=cfg.reset_timeout,
                interrupt_grace=cfg.get("interrupt_grace", 1.0),
                close_grace=cfg.get("close_grace", 2.0),
                shared_memory=cfg.get("shared_memory", True),
                copy_on_get=cfg.copy_on_get,
            )
            # Nothing that the engine or its thread holds may lead back here: a manager that nobody holds any
            # more is closed by ``__del__``.
            tell = functools.partial(_tell, self._on_move)
            engine = Engine(self._make_pool(), self._policy(), settings, self._seeds, tell)
            engine.connect()
            self._engine = engine
        return self._engine

    def on_state_change(self, callback: Callable[[int, EnvState, EnvState], None]) -> None:
        """Has ``callback(env_id, old, new)`` called at every change of a state.

        It may be called from a background thread, and must neither block nor call the manager.
        """
        self._on_move.append(callback)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise IllegalStateError(
                "this manager belongs to another process (this one was forked from it); "
                "only close() is allowed here"
            )

    def _running(self) -> Engine:
        self._check_process()
        engine = self._engine
        if engine is None or not self._launched:
            if self._was_closed:
                raise ManagerClosedError("the manager is closed; launch() makes it usable again")
            raise ManagerClosedError("the manager is not launched; call launch() first")
        if engine.closed:
            engine.check_failure()
            raise ManagerClosedError("the manager is closed; launch() makes it usable again")
        return engine

    def launch(self, reset_param: Any = None) -> None:
        """Brings all workers up and resets every env.

        Args:
            reset_param: As in ``reset``.

        Raises:
            EnvInitError, EnvTimeoutError, WorkerDied: A worker did not come up.
            EnvResetError: An env could not be reset.
            SpaceMismatchError: Envs differ, or an observation does not fit its space.
        """
        with self._calling:
            self._check_process()
            if self._engine is not None and self._engine.closed:
                self._drop_engine()
            if self._launched:
                raise IllegalStateError(
                    "the manager is launched already; close() it first, or reset() for new episodes"
                )
            ids, params = checks.reset_params(reset_param, self._env_num)
            if len(ids) != self._env_num:
                ids = list(range(self._env_num))
            engine = self._connected()
            self._was_closed = False
            self._launched = True
            wait_num, window = self._gather_rule()
            as_torch, pinned = bool(self._cfg.get("as_torch")), bool(self._cfg.get("pin_memory"))
            self._arrays = ArrayFace(engine, wait_num, window, as_torch, pinned)
            try:
                if self._replay_paths is not None:
                    self._send_replay_paths(engine)
                self._reset(engine, ids, params)
            except BaseException:
                self.close()
                raise

    def reset(self, reset_param: Any = None) -> None:
        """Starts new episodes.

        Args:
            reset_param: None for all envs; ``{env_id: params}`` for some; a list with one entry per env.
                ``params`` are keyword arguments of the env's ``reset``, used now and at later automatic
                resets; None leaves those that the env has.

        Raises:
            UnknownEnvError: An env_id that does not exist.
            EnvResetError: An env could not be reset; everything is closed.
        """
        with self._calling:
            engine = self._running()
            engine.check()
            ids, params = checks.reset_params(reset_param, self._env_num)
            self._reset(engine, ids, params)

    def _reset(self, engine: Engine, ids: list[int], params: dict[int, Any]) -> None:
        engine.ask_resets(ids, params)
        states = engine.machine.states
        # Bounded by the limits of each attempt, which the engine keeps.
        running = int(EnvState.RUN)
        engine.wait_until(lambda: all(states[i] == running for i in ids), None)
        if self._arrays is not None:
            self._arrays.fresh = len(ids) == self._env_num

    def close(self) -> None:
        """Closes every env and ends every worker; bounded, from any thread, again does nothing."""
        if os.getpid() != self._pid:
            return
        engine = self._engine
        if engine is not None:
            engine.close()
            with contextlib.suppress(Exception):  # numbers of a manager that is gone; nothing hangs on them
                self._last_stats = engine.stats()
        self._drop_engine()

    def _drop_engine(self) -> None:
        self._engine = None
        self._arrays = None
        self._launched = False
        self._was_closed = True

    def __enter__(self) -> BaseEnvManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # an exception in __del__ would only be printed
            self.close()

    # -- stepping --------------------------------------------------------------------------------------

    def step(self, actions: Mapping[int, Any]) -> dict[int, BaseEnvTimestep]:
        """Sends actions and gathers results.

        Args:
            actions: ``{env_id: action}`` for envs in RUN that are not stepping; ``{}`` only gathers.

        Returns:
            ``{env_id: timestep}``: exactly the envs of ``actions`` in a sync manager; in an async one at
            least ``wait_num`` of all that are pending.

        Raises:
            IllegalStateError: An env cannot be stepped now; nothing was sent.
            UnknownEnvError: An env_id that does not exist; nothing was sent.
            SpaceMismatchError: An action does not fit its space; nothing was sent.
            EnvStepError, EnvTimeoutError, WorkerDied: A step failed, with ``on_error='raise'``.
        """
        with self._calling:
            engine = self._running()
            engine.check()
            actions = checks.actions_mapping(actions)
            if self._arrays is not None:
                self._arrays.fresh = False
            order: Any = slice(0, self._env_num)
            if list(actions) != self._every or not engine.submit_each(list(actions.values())):
                engine.collect_now()
                order = np.array(checks.env_ids(actions, self._env_num, "step"), np.int64)
                checks.steppable(engine, order)
                if len(order):
                    engine.submit(order, list(actions.values()), batched=False)
            if not engine.pending:
                return {}
            wait_num, window = self._gather_rule()
            engine.gather(wait_num, window)
            exact = wait_num is None and engine.pending == len(actions)
            return timesteps_of(engine.take(order if exact else None))

    def reset_arrays(self) -> tuple[Any, dict[int, Any]]:
        """Starts a new episode in every env; right after ``launch`` or a reset of all it hands over theirs.

        Returns:
            The observations of all envs, shape (env_num, *obs shape) or a tree of such arrays, and the
            infos of the resets where they are not empty, by env_id.
        """
        with self._calling:
            engine, arrays = self._array_face()
            if not arrays.fresh:
                self._reset(engine, list(range(self._env_num)), {})
            arrays.fresh = False
            return arrays.observations()

    def send(self, actions: Any, env_id: Any = None) -> None:
        """Sends a batch of actions and returns at once.

        Args:
            actions: Array of shape (k, *action shape), or a tree of arrays.
            env_id: The env of each row; None for all envs in order.

        Raises:
            As ``step``; nothing has been sent then.
        """
        with self._calling:
            engine, arrays = self._array_face()
            engine.check()
            arrays.send(actions, env_id)

    def recv(self) -> StepArrays:
        """Gathers results of what was sent.

        In a sync manager all of it, in the order asked; in an async one at least ``wait_num`` rows, in the
        order of finishing.

        Raises:
            IllegalStateError: Nothing is pending.
            EnvStepError, EnvTimeoutError, WorkerDied: A step failed, with ``on_error='raise'``.
        """
        with self._calling:
            _, arrays = self._array_face()
            return arrays.recv()

    def step_arrays(self, actions: Any, env_id: Any = None) -> StepArrays:
        """``send`` and ``recv`` in one."""
        with self._calling:
            engine, arrays = self._array_face()
            engine.check()
            arrays.send(actions, env_id)
            return arrays.recv()

    def _array_face(self) -> tuple[Engine, ArrayFace]:
        engine = self._running()
        if self._arrays is None:
            raise ManagerClosedError("the manager is not launched; call launch() first")
        return engine, self._arrays

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def env_num(self) -> int:
        """How many envs there are."""
        return self._env_num

    @property
    def cfg(self) -> EasyDict:
        """The full config, checked."""
        return self._cfg

    @property
    def closed(self) -> bool:
        """Whether the manager has to be launched before it is used."""
        return self._engine is None or not self._launched or self._engine.closed

    @property
    def env_states(self) -> dict[int, EnvState]:
        """The state of every env; never waits."""
        engine = self._engine
        if engine is None:
            return dict.fromkeys(range(self._env_num), EnvState.VOID)
        engine.glance()
        return {i: EnvState(s) for i, s in enumerate(engine.machine.states.tolist())}

    @property
    def done(self) -> bool:
        """Whether every env has had its ``episode_num`` episodes."""
        engine = self._engine
        return engine is not None and self._launched and engine.machine.all_done()

    def env_state_done(self, env_id: int) -> bool:
        """Whether one env has had its episodes."""
        checks.env_ids([env_id], self._env_num, "env_state_done")
        return self.env_states[env_id] == EnvState.DONE

    @property
    def active_env(self) -> list[int]:
        """The envs that are in an episode, or will be by themselves."""
        over = (EnvState.DONE, EnvState.ERROR, EnvState.VOID, EnvState.NEED_RESET)
        return [i for i, state in self.env_states.items() if state not in over]

    @property
    def ready_obs_id(self) -> list[int]:
        """The envs that can be stepped now, at least one where some reset is under way.

        While another thread is in a call of this manager it says what it sees, and waits for nothing.
        """
        if not self._calling.acquire(blocking=False):
            return self._running().ready()
        try:
            return self._wait_ready(self._running())
        finally:
            self._calling.release()

    @property
    def ready_env(self) -> list[int]:
        """The same as ``ready_obs_id``."""
        return self.ready_obs_id

    @property
    def ready_obs(self) -> dict[int, Any]:
        """The observations of the envs that can be stepped, by env_id.

        Waits until there is one, as long as the resets that are under way may take. ``{}`` when all that are
        not done are stepping, or when all are done.

        Raises:
            IllegalStateError: No env can become ready by itself; the message says which is in which state.
            EnvResetError: A reset in the background failed.
        """
        with self._calling:
            engine = self._running()
            ids = self._wait_ready(engine)
            if not ids:
                return {}
            _, row = engine.observations(np.array(ids, np.int64))
            return {i: row(k) for k, i in enumerate(ids)}

    @property
    def ready_info(self) -> dict[int, Any]:
        """The infos of the last resets of the ready envs, by env_id; ``{}`` for an empty one."""
        with self._calling:
            engine = self._running()
            infos = engine.ready_infos()
            return {i: infos.get(i, {}) for i in self._wait_ready(engine)}

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """What ``render`` of the ready envs gives, by env_id."""
        with self._calling:
            engine = self._running()
            ids = self._wait_ready(engine)
            images = call_envs(engine, [Call(i, "call", "render") for i in ids])
            return dict(zip(ids, images, strict=True))

    def _wait_ready(self, engine: Engine) -> list[int]:
        engine.check()
        engine.wait_until(lambda: bool(engine.ready()) or not engine.coming(), self._reset_bound())
        ids = engine.ready()
        if ids:
            return ids
        states = self.env_states
        if engine.pending or all(state == EnvState.DONE for state in states.values()):
            return []
        listed = ", ".join(f"env {i}: {state.name}" for i, state in list(states.items())[:16])
        if engine.coming():
            raise EnvResetError(f"no env became ready within its limits ({listed})")
        raise IllegalStateError(
            f"no env can be stepped, and none will be without reset() ({listed}). NEED_RESET and ERROR want "
            "reset(); DONE has had its episodes"
        )

    def _reset_bound(self) -> float | None:
        """How long a reset may take with all its attempts, in seconds; None for no limit."""
        cfg = self._cfg
        if cfg.reset_timeout is None:
            return None
        connect = cfg.get("connect_timeout") or 0.0
        once = cfg.reset_timeout + cfg.get("interrupt_grace", 1.0) + cfg.retry_waiting_time + connect + 1.0
        return float(once * (cfg.max_retry + 1))

    # -- spaces ----------------------------------------------------------------------------------------

    @property
    def observation_space(self) -> Any:
        """The observation space of env 0 (all have the same). Starts the workers when they are not."""
        return self._spaces()[0]

    @property
    def action_space(self) -> Any:
        """The action space of env 0. Starts the workers when they are not."""
        return self._spaces()[1]

    @property
    def reward_space(self) -> Any:
        """The reward space of env 0, None when it has none. Starts the workers when they are not."""
        return self._spaces()[2]

    def _spaces(self) -> tuple[Any, Any, Any]:
        engine = self._engine
        if engine is not None and not engine.closed:
            return engine.spaces(0)
        with self._calling:
            if self._was_closed and self._engine is None:
                raise ManagerClosedError("the manager is closed; launch() makes it usable again")
            return self._connected().spaces(0)

    def random_action(self) -> dict[int, Any]:
        """A random action for each ready env, by env_id; reproducible after ``seed``."""
        with self._calling:
            engine = self._running()
            ids = self._wait_ready(engine)
            for i in ids:
                if i not in self._action_spaces:
                    space = copy.deepcopy(engine.spaces(i)[1])
                    seed = self._seeds.base(i)
                    if space is None or not hasattr(space, "sample"):
                        raise IllegalStateError(f"env {i} has no action_space to sample from", env_id=i)
                    if seed is not None:
                        space.seed(seed)
                    self._action_spaces[i] = space
            return {i: self._action_spaces[i].sample() for i in ids}

    # -- seeds, replays, attributes --------------------------------------------------------------------

    def seed(self, seed: Any, dynamic_seed: bool | None = None) -> None:
        """Sets the seeds that the next resets use; the envs' own generators run on from there.

        Args:
            seed: An int (env i gets seed + i, or its child with ``seed_mode='spawn'``), a list with one
                seed per env, a dict ``{env_id: seed}`` that leaves the others alone, or None for chance.
            dynamic_seed: True: another seed for every episode, derived from the seed. None, False: the seed
                is used once. Envs whose own ``seed`` takes ``dynamic_seed`` are told.

        Raises:
            ConfigError: Not a whole number of at least 0, a list of another length, an unknown env_id.
        """
        with self._calling:
            self._check_process()
            if dynamic_seed is not None and not isinstance(dynamic_seed, bool):
                raise ConfigError(f"dynamic_seed is True, False or None, not {dynamic_seed!r}")
            for i in self._seeds.set(seed, dynamic_seed):
                self._action_spaces.pop(i, None)

    def enable_save_replay(self, replay_path: Any) -> None:
        """Has the envs save replays from their next reset on; kept over a relaunch.

        Args:
            replay_path: A directory for all, or a list with one per env.
        """
        with self._calling:
            if isinstance(replay_path, str | os.PathLike):
                paths = [os.fspath(replay_path)] * self._env_num
            else:
                paths = [os.fspath(p) for p in replay_path]
                if len(paths) != self._env_num:
                    raise ConfigError(
                        f"replay_path is a list of {len(paths)}; this manager has {self._env_num} envs"
                    )
            self._replay_paths = paths
            if self._engine is not None and self._launched:
                self._send_replay_paths(self._running())

    def _send_replay_paths(self, engine: Engine) -> None:
        calls = [Call(i, "call", "enable_save_replay", (path,)) for i, path in enumerate(self._replay_paths)]
        call_envs(engine, calls)

    @property
    def method_name_list(self) -> list[str]:
        """The methods of envs that a manager knows by name."""
        return list(METHODS)

    def __getattr__(self, name: str) -> Any:
        """Any other attribute: fetched from every env, as a list. An env that steps finishes first."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        engine = self.__dict__.get("_engine")
        if engine is None or engine.closed:
            state = "closed" if self.__dict__.get("_was_closed") else "not launched"
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}; the manager is {state}, and envs "
                "have attributes after launch()"
            )
        with self._calling:
            return self._fetch(engine, name)

    def _fetch(self, engine: Engine, name: str) -> EnvAttributes:
        values = call_envs(engine, [Call(i, "get", name) for i in range(self._env_num)])

        def one(i: int) -> Callable[..., Any]:
            def method(*args: Any, **kwargs: Any) -> Any:
                with self._calling:
                    return call_envs(self._running(), [Call(i, "call", name, args, kwargs)])[0]

            return method

        def every(*args: Any, **kwargs: Any) -> list[Any]:
            with self._calling:
                return call_envs(
                    self._running(), [Call(i, "call", name, args, kwargs) for i in range(self._env_num)]
                )

        return EnvAttributes(
            [one(i) if engine.is_method(v) else v for i, v in enumerate(values)], name, every
        )

    def get_env_attr(self, name: str, env_id: Any = None) -> list[Any]:
        """An attribute of some envs, also where the manager has one of the same name.

        Args:
            name: The attribute.
            env_id: The envs, None for all.
        """
        with self._calling:
            ids = range(self._env_num) if env_id is None else checks.env_ids(env_id, self._env_num, "env_id")
            return call_envs(self._running(), [Call(i, "get", name) for i in ids])

    def set_env_attr(self, name: str, values: Any, env_id: Any = None) -> None:
        """Sets an attribute on the envs themselves, through their wrappers.

        Args:
            name: The attribute.
            values: A list with one value per env named.
            env_id: The envs, None for all.
        """
        with self._calling:
            ids = (
                list(range(self._env_num))
                if env_id is None
                else checks.env_ids(env_id, self._env_num, "env_id")
            )
            if not isinstance(values, list | tuple) or len(values) != len(ids):
                raise IllegalStateError(
                    f"set_env_attr takes a list of {len(ids)} values, one per env, not {values!r}"
                )
            calls = [Call(i, "set", name, (value,)) for i, value in zip(ids, values, strict=True)]
            call_envs(self._running(), calls)

    def call_env_method(self, name: str, *args: Any, env_id: Any = None, **kwargs: Any) -> list[Any]:
        """Calls a method of some envs, side by side where they live in different workers."""
        with self._calling:
            ids = range(self._env_num) if env_id is None else checks.env_ids(env_id, self._env_num, "env_id")
            return call_envs(self._running(), [Call(i, "call", name, args, kwargs) for i in ids])

    def reward_shaping(self, env_id: int, transitions: Any) -> Any:
        """Calls one env's ``reward_shaping``."""
        return self.call_env_method("reward_shaping", transitions, env_id=[env_id])[0]

    def stats(self) -> dict[int, dict[str, Any]]:
        """Counts and seconds per env; after ``close``, those of the last launch.

        They are steps, episodes, step_time, reset_time, wait_time, retries, renewals, timeouts.
        """
        engine = self._engine
        return self._last_stats if engine is None else engine.stats()

    def __len__(self) -> int:
        return self._env_num

    def __repr__(self) -> str:
        state = "closed" if self.closed else "launched"
        return f"<{type(self).__name__} of {self._env_num} envs, {state}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{type(self).__name__} holds processes and cannot be pickled or copied; build another"
        )


def _tell(callbacks: list[Callable[[int, EnvState, EnvState], None]], *move: Any) -> None:
    for callback in callbacks:
        callback(*move)


def _checked_fns(env_fn: Any) -> list[Callable[[], Any]]:
    if callable(env_fn):
        raise ConfigError("env_fn is a list with one callable per env; for 8 alike write [make_env] * 8")
    try:
        fns = list(env_fn)
    except TypeError:
        raise ConfigError(f"env_fn is a list with one callable per env, not {env_fn!r}") from None
    if not fns:
        raise ConfigError("env_fn is empty; a manager needs one callable per env, at least one")
    for i, fn in enumerate(fns):
        if not callable(fn):
            raise ConfigError(
                f"env_fn[{i}] is {fn!r}, not a callable that builds an env; write lambda: YourEnv(...)"
            )
    return fns


def _close_all() -> None:
    for manager in list(_alive):
        with contextlib.suppress(Exception):  # the interpreter is going; nobody is left to tell
            manager.close()


atexit.register(_close_all)
