"""``base_v2`` and ``subprocess_v2``: the managers of the same name, with lists in place of dicts.

``ready_obs`` is one stacked array, ``step`` takes its actions by position and gives a list of timesteps that
say whose they are. What position k means must not change under the caller, though envs become ready in the
background at any time. So what was read is remembered until a step or a reset:

- ``ready_obs`` and ``ready_obs_id``, read one after the other in either order, are of the same envs. Reading
  the same one again looks anew.
- ``step`` goes by the ids that were read last: by the thread that steps, else by any (so a thread that only
  watches changes nothing), and by those that are ready where nobody has read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from envmgr.config import schema
from envmgr.engine.engine import Engine
from envmgr.errors import IllegalStateError
from envmgr.managers.base import BaseEnvManager
from envmgr.managers.subprocess import SyncSubprocessEnvManager
from envmgr.registry import ENV_MANAGER_REGISTRY
from envmgr.timestep import EnvIdTimestep

_SHOWN = 16  # ids in a message


class _Look(NamedTuple):
    """What a thread has read: the envs, and through which of the two names."""

    ids: list[int]
    through: frozenset[str]


class ListFace(BaseEnvManager):
    """Lists in and out; all else is as in the manager that it is mixed into."""

    def __init__(self, env_fn: Iterable[Callable[[], Any]], cfg: Mapping[str, Any] | None = None) -> None:
        self._looks: dict[int, _Look] = {}  # by thread, the latest last
        super().__init__(env_fn, cfg)

    @property
    def ready_obs_id(self) -> list[int]:
        """The envs that can be stepped, in the order that ``step`` takes their actions in.

        After ``ready_obs`` it gives the envs of its rows; read again, it looks anew. It waits as
        ``ready_obs`` does, but for a call of another thread.
        """
        return list(self._look("ids", self._running(), lambda: super(ListFace, self).ready_obs_id))

    @property
    def ready_obs(self) -> Any:
        """The observations of the envs that can be stepped, stacked.

        An array of shape (k, *obs shape), or a tree of such arrays where the space is a Dict or a Tuple; row
        j is of env ``ready_obs_id[j]``. Leaves of other spaces are object arrays of shape (k,). k is 0 when
        all envs are done.

        Raises:
            IllegalStateError: No env can become ready by itself; the message says which is in which state.
            EnvResetError: A reset in the background failed.
        """
        with self._calling:
            engine = self._running()
            engine.check()
            ids = self._look("obs", engine, lambda: self._wait_ready(engine))
            return engine.observations(np.array(ids, np.int64))[0]

    def step(self, actions: Any) -> list[EnvIdTimestep]:  # type: ignore[override]
        """Steps the ready envs.

        Args:
            actions: A list, tuple or array with one action for each env of ``ready_obs_id``, in that order,
                as it (or ``ready_obs``) was last read. Or ``{env_id: action}`` for some of them; ``{}`` only
                gathers what is pending.

        Returns:
            One timestep per action, in their order, with ``env_id`` as an attribute. What an earlier call
            left behind when it raised comes after them.

        Raises:
            IllegalStateError: The number of actions is not that of the ids, or an env cannot be stepped now;
                nothing was sent, and what was read still counts.
            As ``BaseEnvManager.step`` otherwise.
        """
        with self._calling:
            by_id = actions if isinstance(actions, Mapping) else self._named(actions)
            results = super().step(by_id)
            self._looks.clear()
            order = [i for i in by_id if i in results]
            if len(order) < len(results):
                order += [i for i in results if i not in by_id]
            return [EnvIdTimestep.of(int(i), results[i]) for i in order]

    def _named(self, actions: Any) -> dict[int, Any]:
        """Actions by position as actions by env_id."""
        if not isinstance(actions, list | tuple) and not getattr(actions, "ndim", 0):
            raise IllegalStateError(
                f"step takes a list, tuple or array with one action per env of ready_obs_id, or a dict "
                f"{{env_id: action}}, not {type(actions).__name__}"
            )
        engine = self._running()
        engine.check()
        look = self._looks.get(threading.get_ident()) or next(iter([*self._looks.values()][::-1]), None)
        ids = look.ids if look else self._wait_ready(engine)
        if len(actions) != len(ids):
            shown = ", ".join(map(str, ids[:_SHOWN])) + (", ..." if len(ids) > _SHOWN else "")
            raise IllegalStateError(
                f"step was given {len(actions)} actions for {len(ids)} envs: ready_obs_id "
                f"{'was' if look else 'is'} [{shown}]{' when it was last read' if look else ''}. Give one "
                "action for each, in that order, or a dict {env_id: action} for some; nothing was sent"
            )
        return dict(zip(ids, actions, strict=True))

    def _look(self, name: str, engine: Engine, read: Callable[[], list[int]]) -> list[int]:
        """The ids that the other name gave just now, else those that ``read`` gives."""
        me = threading.get_ident()
        last = self._looks.get(me)
        if last is not None and name not in last.through and set(last.ids) <= set(engine.ready()):
            look = _Look(last.ids, last.through | {name})
        else:
            look = _Look(read(), frozenset({name}))
        self._looks.pop(me, None)
        self._looks[me] = look
        return look.ids

    def _reset(self, engine: Engine, ids: list[int], params: dict[int, Any]) -> None:
        self._looks.clear()
        super()._reset(engine, ids, params)


@ENV_MANAGER_REGISTRY.register("base_v2")
class BaseEnvManagerV2(ListFace):
    """Steps envs in the caller's own process, with a list of actions and stacked observations.

    Config keys and behaviour are those of ``base``; see ``ListFace`` for what differs.
    """

    config: ClassVar[dict[str, Any]] = schema.defaults("base_v2")
    _type: ClassVar[str] = "base_v2"


@ENV_MANAGER_REGISTRY.register("subprocess_v2")
class SubprocessEnvManagerV2(ListFace, SyncSubprocessEnvManager):
    """Steps envs in worker processes, with a list of actions and stacked observations.

    Config keys and behaviour are those of ``subprocess``; see ``ListFace`` for what differs.
    """

    config: ClassVar[dict[str, Any]] = schema.defaults("subprocess_v2")
    _type: ClassVar[str] = "subprocess_v2"
