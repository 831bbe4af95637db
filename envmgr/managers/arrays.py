"""The array face: the same manager, with one row per env in and out.

    obs, info = manager.reset_arrays()
    while training:
        obs, reward, terminated, truncated, info, env_id, final_obs = manager.step_arrays(policy(obs))

This is the fastest public way: one copy per leaf, no object per env. ``send`` and ``recv`` are the two
halves of ``step_arrays``, for callers that compute while the envs step.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envmgr.engine.engine import Engine
from envmgr.engine.results import StepBatch
from envmgr.errors import ConfigError, EnvManagerWarning, IllegalStateError
from envmgr.infos import as_dict
from envmgr.managers import checks

_ALL = slice(None)


class StepArrays(NamedTuple):
    """Results of steps; row k belongs to env ``env_id[k]``.

    Attributes:
        obs: Array of shape (k, *obs shape), or a tree of arrays with the structure of the space. For an
            env that has finished: the first observation of its new episode.
        reward: Array of shape (k, *reward shape). For an env whose reward has another size: NaN (0 where
            the dtype has none), and what it gave is in its info under ``'reward'``, or under
            ``'own_reward'`` where the env has a ``'reward'`` of its own there.
        terminated: Bool array of shape (k,).
        truncated: Bool array of shape (k,).
        info: env_id -> info of the step, where it is not empty; the info of an automatic reset is in it
            under ``'reset_info'``, where that is not empty.
        env_id: Int array of shape (k,).
        final_obs: env_id -> last observation of the episode, for envs that have finished.
    """

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: dict[int, Any]
    env_id: NDArray[np.int64]
    final_obs: dict[int, Any]


class ArrayFace:
    """The array face over an engine.

    Args:
        engine: A launched engine.
        wait_num: How many results ``recv`` waits for, None for all.
        window: Seconds that it goes on for more; None for as long as it takes.
        as_torch: Whether arrays come as torch tensors (over the same memory, without a copy).
        pinned: Whether those lie in pinned memory (one more copy; see ``check_pinning``).
    """

    def __init__(
        self,
        engine: Engine,
        wait_num: int | None,
        window: float | None,
        as_torch: bool = False,
        pinned: bool = False,
    ) -> None:
        self._engine = engine
        self._wait_num = wait_num
        self._window = window
        self._as_torch = as_torch
        self._pinned = pinned
        self._asked: Any = None
        self._misshapen: set[int] = set()
        self.fresh = True

    def send(self, actions: Any, env_id: Any = None) -> None:
        """Sends steps and returns at once. See ``BaseEnvManager.send``."""
        engine = self._engine
        if self._as_torch:
            actions = _from_torch(actions)
        autoreset = engine.policy.auto_reset
        ids: Any = _ALL
        if env_id is not None or not engine.submit_all(actions, autoreset):
            ids = np.arange(engine.env_num) if env_id is None else checks.action_ids(env_id, engine.env_num)
            checks.steppable(engine, ids)
            engine.submit(ids, actions, batched=True, autoreset=autoreset)
        self.fresh = False
        if self._wait_num is None:
            if self._asked is None:
                self._asked = ids
            else:
                self._asked = np.concatenate([_listed(self._asked, engine), _listed(ids, engine)])

    def recv(self) -> StepArrays:
        """Gathers results of what was sent. See ``BaseEnvManager.recv``."""
        engine = self._engine
        if not engine.pending:
            raise IllegalStateError(
                "nothing is pending: no env is stepping; send(actions) comes before recv()"
            )
        engine.gather(self._wait_num, self._window)
        order, self._asked = self._asked, None
        if order is not None:  # what was asked has been reset meanwhile, or more was asked in between
            asked = engine.env_num if order is _ALL else len(order)
            order = order if asked == engine.pending else None
        return self._arrays(engine.take(order))

    def _arrays(self, batch: StepBatch) -> StepArrays:
        if batch.ended or batch.abnormal or batch.own_rewards:
            self._complete(batch)
        out = StepArrays(
            batch.obs,
            batch.reward,
            batch.terminated,
            batch.truncated,
            batch.infos,
            batch.ids,
            batch.final_obs,
        )
        if self._as_torch:
            return out._replace(
                obs=to_torch(out.obs, self._pinned),
                reward=to_torch(out.reward, self._pinned),
                terminated=to_torch(out.terminated, self._pinned),
                truncated=to_torch(out.truncated, self._pinned),
            )
        return out

    def _complete(self, batch: StepBatch) -> None:
        """What only some rows have: last observations, errors, rewards of another shape."""
        final, infos = batch.final_obs, batch.infos
        for k in np.flatnonzero(batch.terminated | batch.truncated).tolist():
            i = int(batch.ids[k])
            if i not in final:  # an env that has had its episodes, or that waits for reset()
                final[i] = batch.row(batch.obs)(k)
        for i, error in batch.abnormal.items():
            infos[i] = {**as_dict(infos.get(i)), "abnormal": True, "err": error}
        for i, reward in batch.own_rewards.items():
            if np.size(reward) != batch.reward[0].size:  # else it is in its row as well
                said, key = as_dict(infos.get(i)), "reward"
                while key in said:
                    key = f"own_{key}"
                infos[i] = {**said, key: reward}
                self._told(i, key, np.shape(reward), batch.reward)

    def _told(self, i: int, key: str, shape: tuple[int, ...], rows: Any) -> None:
        """Warns once of an env whose rewards have no place among the others."""
        if i in self._misshapen:
            return
        self._misshapen.add(i)
        stands = "NaN" if rows.dtype.kind == "f" else "0"
        warnings.warn(
            f"env {i}: a reward of shape {shape} has no place among rewards of shape {rows.shape[1:]}: "
            f"its row is {stands}, and what the env gave is info[{key!r}]. Give the env a reward_space of "
            "that shape",
            EnvManagerWarning,
            stacklevel=5,
        )

    def observations(self) -> tuple[Any, dict[int, Any]]:
        """The observations of all envs, in order, and the infos of their resets."""
        obs, _ = self._engine.observations(np.arange(self._engine.env_num))
        return (to_torch(obs, self._pinned) if self._as_torch else obs), self._engine.ready_infos()


def _listed(ids: Any, engine: Engine) -> NDArray[np.int64]:
    return np.arange(engine.env_num) if isinstance(ids, slice) else ids


def check_pinning(type_name: str, as_torch: bool) -> None:
    """Says early that there can be no pinned memory.

    Args:
        type_name: The manager's name, for the message.
        as_torch: Whether tensors are asked for at all.

    Raises:
        ConfigError: Without ``as_torch``, or where torch sees no GPU.
    """
    if not as_torch:
        raise ConfigError(
            f"config of env manager {type_name!r}: pin_memory=True is for tensors; set as_torch=True too"
        )
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(
            f"config of env manager {type_name!r}: pin_memory=True needs CUDA, and torch {torch.__version__} "
            "sees no GPU on this machine. Leave it out: there is nothing to copy to"
        )


def to_torch(tree: Any, pinned: bool = False) -> Any:
    """A tree of arrays as tensors over the same memory; ``pinned``: copied into pinned memory.

    Read-only views become tensors all the same: torch knows no such thing, so it is on the caller not to
    write.
    """
    import torch

    if isinstance(tree, dict):
        return {key: to_torch(value, pinned) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(to_torch(value, pinned) for value in tree)
    if not isinstance(tree, np.ndarray) or tree.dtype == object:
        return tree
    if not tree.flags.writeable:  # torch would warn of it
        tree = tree.view()
        tree.flags.writeable = True
    tensor = torch.from_numpy(tree)
    return tensor.pin_memory() if pinned else tensor


def _from_torch(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _from_torch(value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_from_torch(value) for value in tree)
    return tree.detach().cpu().numpy() if hasattr(tree, "detach") else tree
