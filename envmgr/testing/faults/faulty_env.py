"""``FaultyEnv``: an env of any style with faults around it.

A plain object that forwards what it does not have, rather than a wrapper of one library, so that envs of
every style keep theirs. It belongs outermost: what it spoils is what the manager sees.
"""

from __future__ import annotations

import functools
import inspect
import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from envmgr.testing.faults.fault import Fault
from envmgr.testing.faults.kinds import KINDS
from envmgr.testing.faults.ledger import Ledger, Record


class FaultyEnv:
    """An env that fails when it is told to.

    As an env_fn, under every start method: ``functools.partial(FaultyEnv, make_env, [Fault("exit")])``, or
    ``with_faults`` for a list of them.

    Args:
        env: A callable that builds the env (best: faults of ``where='build'`` come before it is called), an
            env, or None for a ``CounterEnv``.
        faults: What goes wrong. In a call for which several are due, the first is done.
        env_id: What the ledger and the generator know this env by.
        seed: Of the generator that probabilities are drawn from; with a ledger each renewed instance draws
            anew, without one it draws the same again. None: by chance.
        ledger: A path, or a ``Ledger``: where every fault is written down before it happens.

    Attributes:
        env: The env inside.
        episode: Resets that succeeded, less one.
        t: Steps of this episode that were taken.
        instance: Which instance of this env this is: 0, or more after renewals if there is a ledger.

    Raises:
        ValueError: A fault counts over instances and there is no ledger.
    """

    def __init__(
        self,
        env: Any = None,
        faults: Iterable[Fault] = (),
        *,
        env_id: int = 0,
        seed: int | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
    ) -> None:
        self.faults = tuple(faults)
        self.env_id = env_id
        self.ledger = Ledger(ledger) if isinstance(ledger, str | os.PathLike) else ledger
        if self.ledger is None and any(f.times is not None or f.in_instance is not None for f in self.faults):
            raise ValueError(
                "times and in_instance are counted over processes, in a file: name one with ledger='...'"
            )
        self.episode, self.t = -1, 0
        self.instance = 0 if self.ledger is None else self.ledger.instance(env_id)
        self._rng = random.Random(None if seed is None else f"{seed}/{env_id}/{self.instance}")
        self._act("build", lambda: None)
        self.env = self._built(env)

    def _built(self, env: Any) -> Any:
        if env is None:
            from envmgr.envs.toy import CounterEnv

            return CounterEnv(self.env_id)
        builds = inspect.isclass(env) or (callable(env) and not hasattr(env, "step"))
        return env() if builds else env

    # -- what managers call ----------------------------------------------------------------------------

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Resets the env, unless a fault is due."""
        result = self._act("reset", lambda: self.env.reset(*args, **kwargs))
        self.episode, self.t = self.episode + 1, 0
        return result

    def step(self, action: Any) -> Any:
        """Steps the env, unless a fault is due."""
        result = self._act("step", lambda: self.env.step(action))
        self.t += 1
        return result

    def close(self) -> None:
        """Closes the env, unless a fault is due."""
        self._act("close", getattr(self.env, "close", lambda: None))

    # -- faults ----------------------------------------------------------------------------------------

    def due(self, where: str) -> Fault | None:
        """The fault that happens in the call that begins now, written down; None if none does.

        A subclass may say None instead, to be quiet for a while.
        """
        step = self.t + 1 if where == "step" else 0
        episode = self.episode + 1 if where == "reset" else self.episode
        for fault in self.faults:
            if not fault.matches(where, step, episode, self.instance):
                continue
            if fault.probability < 1.0 and self._rng.random() >= fault.probability:
                continue
            if self.ledger is not None:
                if fault.times is not None and not self.ledger.claim(fault.key, fault.times):
                    continue
                about = (self.env_id, self.instance, episode, step, os.getpid())
                self.ledger.add(Record("fault", fault.kind, where, *about, fault.key))
            return fault
        return None

    def _act(self, where: str, call: Callable[[], Any]) -> Any:
        fault = self.due(where)
        if fault is None:
            return call()
        kind = KINDS[fault.kind]
        if kind.strike is not None:
            amount = kind.amount if fault.amount is None else fault.amount
            kind.strike(0.0 if amount is None else amount)
        result = call()
        return result if kind.spoil is None else kind.spoil(result)

    def __getattr__(self, name: str) -> Any:
        if name == "env" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)  # not there yet, or a question of Python's own
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"<FaultyEnv {self.env_id} around {self.__dict__.get('env')!r}>"


def with_faults(
    env_fns: Sequence[Callable[[], Any] | None],
    faults: Iterable[Fault],
    *,
    seed: int | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> list[Callable[[], FaultyEnv]]:
    """The same list of env_fns, with the same faults in every env.

    Args:
        env_fns: One per env; None stands for a ``CounterEnv``.
        faults: As in ``FaultyEnv``.
        seed: As in ``FaultyEnv``; each env draws for itself.
        ledger: As in ``FaultyEnv``, one for all.
    """
    given = tuple(faults)
    return [
        functools.partial(FaultyEnv, env_fn, given, env_id=i, seed=seed, ledger=ledger)
        for i, env_fn in enumerate(env_fns)
    ]
