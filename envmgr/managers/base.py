"""``base``: the dict face of every manager, and the manager that runs its envs in the caller.

The other managers are this one with another pool of workers and another rule of gathering; there is
one ``step`` for all of them. The face checks what it is given, talks to the engine, and turns rows
into timesteps; it holds no state of an env. Here is its life; what else it does is in mixins, see
``face``.
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

from easydict import EasyDict

from envmgr.config import schema
from envmgr.config.keys import IN_CALLER
from envmgr.config.merge import deep_merge_dicts
from envmgr.engine.engine import Engine, Settings
from envmgr.engine.machine import Policy
from envmgr.engine.seeds import SeedBook
from envmgr.engine.states import EnvState
from envmgr.errors import ConfigError, IllegalStateError, ManagerClosedError
from envmgr.log import log as _log
from envmgr.managers import checks
from envmgr.managers.arrays import ArrayFace, check_pinning
from envmgr.managers.attributes import Attributes
from envmgr.managers.reading import Reading
from envmgr.managers.seeding import Seeding
from envmgr.managers.spaces import Spaces
from envmgr.managers.stepping import Stepping
from envmgr.registry import ENV_MANAGER_REGISTRY
from envmgr.workers.failures import formatted
from envmgr.workers.outside import from_a_signal, quietly
from envmgr.workers.serial import SerialPool

_alive: weakref.WeakSet[BaseEnvManager] = weakref.WeakSet()


@ENV_MANAGER_REGISTRY.register("base")
class BaseEnvManager(Stepping, Reading, Spaces, Seeding, Attributes):
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

    @classmethod
    def default_config(cls) -> EasyDict:
        """A fresh config with every key of this manager and its default."""
        cfg = EasyDict(copy.deepcopy(cls.config))
        cfg.cfg_type = cls.__name__ + "Dict"
        return cfg

    def __init__(self, env_fn: Iterable[Callable[[], Any]], cfg: Mapping[str, Any] | None = None) -> None:
        self._engine: Engine | None = None
        self._connecting: Engine | None = None
        self._env_fns = _checked_fns(env_fn)
        self._cfg = schema.validate(self._type, deep_merge_dicts(self.config, cfg or {}), own=self.config)
        if self._cfg.get("pin_memory"):
            check_pinning(self._type, bool(self._cfg.get("as_torch")))
        self._env_num = len(self._env_fns)
        self._every = list(range(self._env_num))
        self._pid, self._forked = os.getpid(), False
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
            close_on_error=self._type not in IN_CALLER,
            abnormal_is_error=self._type not in IN_CALLER,
            max_renewals=cfg.max_renewals,
            renewal_window=cfg.renewal_window,
            renew_every=cfg.renew_every,
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
            self._connecting = engine
            try:
                engine.connect()
                self._engine = engine
            except BaseException:  # a Ctrl-C right behind it too
                engine.close()
                raise
            finally:
                self._connecting = None
            if engine.closing:  # by another thread, right after it was up
                self._drop_engine()
                raise ManagerClosedError(
                    "the manager was closed while it was launched; launch() makes it usable again"
                )
        return self._engine

    def on_state_change(self, callback: Callable[[int, EnvState, EnvState], None]) -> None:
        """Has ``callback(env_id, old, new)`` called at every change of a state.

        It may be called from a background thread, and must neither block nor call the manager. What it
        raises is logged, and changes nothing for others; a Ctrl-C while it runs is the caller's.

        Raises:
            ConfigError: It cannot be called.
        """
        if not callable(callback):
            raise ConfigError(
                f"on_state_change takes a callable, called with (env_id, old, new), not {callback!r}"
            )
        self._on_move.append(callback)

    def _check_process(self) -> None:
        if self._forked:
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
            ManagerClosedError: Another thread called ``close`` meanwhile.
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
                    self._send_replay_paths(engine, self._replay_paths)
                self._reset(engine, ids, params)
            except BaseException:  # a Ctrl-C too: a launch is whole or it is not
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
        # Bounded by the limits of each attempt, which the engine keeps.
        engine.wait_until(lambda: engine.all_run(ids), None)
        if self._arrays is not None:
            self._arrays.fresh = len(ids) == self._env_num

    def close(self) -> None:
        """Closes every env and ends every worker; bounded, from any thread, again does nothing."""
        if os.getpid() != self._pid:
            return
        engine = self._connecting or self._engine  # in this order: it goes from the one to the other
        if engine is not None:
            engine.close()
            with contextlib.suppress(Exception):  # numbers of a manager that is gone; nothing hangs on them
                self._last_stats = engine.stats()
        if self._engine is engine or self._engine is None:  # else another thread has launched it again
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

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{type(self).__name__} holds processes and cannot be pickled or copied; build another"
        )


def _tell(callbacks: list[Callable[[int, EnvState, EnvState], None]], *move: Any) -> None:
    for callback in callbacks:
        try:
            callback(*move)
        except BaseException as error:  # SystemExit too: it would end the keeper, or leave a batch half done
            if from_a_signal(error):
                raise
            # As text: a record that somebody keeps would keep alive all frames up to the program's.
            _log.error("a callback raised: %s%s\n%s", _name_of(callback), move, formatted(error))


def _name_of(callback: Any) -> str:
    return quietly(lambda: str(getattr(callback, "__qualname__", None) or repr(callback)), "a callable")


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
    """At the interpreter's end. Nobody is left to tell of anything.

    Another Ctrl-C ends the wait for one manager, whose workers then go with their bells. The others are
    closed all the same: multiprocessing waits for their nurseries next, and those for the end of a socket.
    """
    for manager in list(_alive):
        with contextlib.suppress(BaseException):
            manager.close()


def _in_a_child() -> None:
    """In a forked child: the managers are the parent's.

    Nobody is left to give back what a thread of the parent held while it forked, so locks are made anew.
    """
    for manager in list(_alive):
        manager._forked = True
        manager._calling = threading.RLock()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_child)
