"""From a config file and the options of the command line to everything a run needs, checked.

The manager's own keys are checked by the config layer. Here it is the rest: ``env`` and ``collect``.
Whatever is wrong is found before a worker is started.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envmgr.cli.env_factory import EnvFactory, load
from envmgr.cli.policies import BUILTIN, PolicyFactory
from envmgr.config.files import compile_config, read_config
from envmgr.errors import ConfigError

_TOP = ("exp_name", "env", "collect")
_ENV = ("id", "factory", "kwargs", "env_num", "manager")
_COLLECT = ("n_episode", "seed", "policy", "policy_kwargs", "out_dir", "save_rollouts")


@dataclasses.dataclass(frozen=True)
class Options:
    """What the command line says; None is what the config says."""

    episodes: int | None = None
    out: Path | None = None
    type: str | None = None
    env_num: int | None = None
    seed: int | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run.

    Attributes:
        name: What it is called; also the directory, within ``out``, of what it leaves behind.
        manager: The complete config of its env manager.
        factory: What builds an env.
        quotas: How many episodes each env plays.
        seed: The base seed, or None.
        policy: What makes the policy, and what it is called.
        policy_name: As the config names it.
        out: The directory of the files.
        save_rollouts: Whether observations, actions and rewards are kept and written.
        remarks: What the user should know about how the config was understood.
    """

    name: str
    manager: Mapping[str, Any]
    factory: EnvFactory
    quotas: Sequence[int]
    seed: int | None
    policy: PolicyFactory
    policy_name: str
    out: Path
    save_rollouts: bool
    remarks: Sequence[str]

    @property
    def env_num(self) -> int:
        """How many envs there are."""
        return len(self.quotas)

    @property
    def n_episode(self) -> int:
        """How many episodes all envs play together."""
        return sum(self.quotas)

    @property
    def directory(self) -> Path:
        """Where the files of the run go."""
        return self.out / self.name

    def described(self) -> dict[str, Any]:
        """The config as the report repeats it."""
        return {
            "env": self.factory.name,
            "env_kwargs": dict(self.factory.kwargs),
            "env_num": self.env_num,
            "n_episode": self.n_episode,
            "seed": self.seed,
            "policy": self.policy_name,
            "manager": dict(self.manager),
        }


def make_plan(config: str, options: Options) -> Plan:
    """Reads a config file.

    Args:
        config: A ``.py``, ``.yaml`` or ``.yml`` file, or the name of a Python module.
        options: What goes before it.

    Raises:
        ConfigError: If anything in it is wrong.
    """
    _make_importable(config)
    cfg = _compiled(config, options.type)
    env = _part(cfg, "env", _ENV)
    collect = _part(cfg, "collect", _COLLECT)
    remarks = _strangers(cfg)

    n_episode = _count(options.episodes, collect, "collect.n_episode", 100)
    env_num = _count(options.env_num, env, "env.env_num", 8)
    if n_episode < env_num:
        remarks.append(f"{n_episode} episodes need no more than {n_episode} of the {env_num} envs")
        env_num = n_episode
    manager = cfg["env"]["manager"]
    if manager["type"] in ("base_v2", "subprocess_v2"):
        raise ConfigError(
            f"env manager {manager['type']!r} takes lists; this command steps by env_id: choose "
            f"{manager['type'].removesuffix('_v2')!r}, which does the same"
        )
    quotas = _within_limit(split(n_episode, env_num), manager, remarks)
    policy_name = collect.get("policy", "random")
    return Plan(
        name=_name(cfg, config),
        # So that an env whose quota is full is DONE, and does not reset once more.
        manager={**manager, "episode_num": max(quotas)},
        factory=_factory(env),
        quotas=quotas,
        seed=_seed(options.seed, collect),
        policy=_policy(policy_name, _kwargs(collect, "collect.policy_kwargs")),
        policy_name=policy_name if isinstance(policy_name, str) else getattr(policy_name, "__name__", "?"),
        out=Path(options.out or _of_type(collect, "collect.out_dir", (str, Path), "runs", "a path")),
        save_rollouts=_of_type(collect, "collect.save_rollouts", bool, True, "True or False"),
        remarks=remarks,
    )


def split(n_episode: int, env_num: int) -> list[int]:
    """Gives each env its share of the episodes; the first ones play one more where it does not come out even.

    A quota per env, because the plain count, whoever finishes first, is biased: while one env plays a
    long episode, others play many short ones, so that short ones come in more often than they are
    played, and the returns of a run would depend on how fast the envs happen to be.
    """
    least, rest = divmod(n_episode, env_num)
    return [least + (i < rest) for i in range(env_num)]


def _compiled(config: str, type_name: str | None) -> Mapping[str, Any]:
    if type_name is None:
        cfg: Mapping[str, Any] = compile_config(config)
        return cfg
    read = read_config(config)
    create = {**read.create_config}
    create["env_manager"] = {**(create.get("env_manager") or {}), "type": type_name}
    overridden: Mapping[str, Any] = compile_config(read.main_config, create)
    return overridden


def _make_importable(config: str) -> None:
    """Lets a config name modules of the current directory, and of the one that it is in.

    The script of an installed command has neither in its path. Workers take the path over.
    """
    first, last = os.getcwd(), str(Path(config).resolve().parent)
    if first not in sys.path and "" not in sys.path:
        sys.path.insert(0, first)
    if last not in sys.path:
        sys.path.append(last)


def _part(cfg: Mapping[str, Any], name: str, allowed: Sequence[str]) -> Mapping[str, Any]:
    part = cfg.get(name)
    if part is None:
        part = {}
    if not isinstance(part, Mapping):
        raise ConfigError(f"{name} is a dict, not {type(part).__name__}: {part!r:.100}")
    for key in part:
        if key not in allowed:
            raise ConfigError(f"unknown key {name}.{key}{_near(key, allowed)} Valid: {', '.join(allowed)}")
    return part


def _strangers(cfg: Mapping[str, Any]) -> list[str]:
    """Top-level keys that mean nothing here: an error where one looks like a slip, else worth a remark.

    A config that a training program reads too may well have more.
    """
    unknown = [str(key) for key in cfg if key not in _TOP and not str(key).startswith("x-")]
    for key in unknown:
        if difflib.get_close_matches(key, _TOP, n=1, cutoff=0.75):
            raise ConfigError(f"unknown key {key!r}{_near(key, _TOP)}")
    return [f"not used by this command: {', '.join(unknown)}"] if unknown else []


def _near(key: Any, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(key), allowed, n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def _count(option: int | None, part: Mapping[str, Any], path: str, default: int) -> int:
    value = option if option is not None else part.get(path.rpartition(".")[2], default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{path}={value!r}: must be a whole number of at least 1")
    return value


def _seed(option: int | None, collect: Mapping[str, Any]) -> int | None:
    value = option if option is not None else collect.get("seed")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"collect.seed={value!r}: must be a whole number of at least 0, or None")
    return value


def _of_type(part: Mapping[str, Any], path: str, of: Any, default: Any, allowed: str) -> Any:
    value = part.get(path.rpartition(".")[2], default)
    if not isinstance(value, of):
        raise ConfigError(f"{path}={value!r}: must be {allowed}")
    return value


def _kwargs(part: Mapping[str, Any], path: str) -> dict[str, Any]:
    value = part.get(path.rpartition(".")[2])
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}={value!r:.100}: must be a dict of keyword arguments")
    return {str(key): _unwrapped(item) for key, item in value.items()}


def _unwrapped(value: Any) -> Any:
    """Plain dicts and lists: an env should not be handed the config's own kind of dict."""
    if isinstance(value, Mapping):
        return {key: _unwrapped(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_unwrapped(item) for item in value)
    return value


def _factory(env: Mapping[str, Any]) -> EnvFactory:
    env_id, factory = env.get("id"), env.get("factory")
    if (env_id is None) == (factory is None):
        raise ConfigError(
            "env needs either id, a Gymnasium id such as 'CartPole-v1', or factory='package.module:callable'"
            + (f", not both: id={env_id!r}, factory={factory!r}" if env_id is not None else "")
        )
    if env_id is not None and (not isinstance(env_id, str) or not env_id):
        raise ConfigError(f"env.id={env_id!r}: must be a Gymnasium id, such as 'CartPole-v1'")
    if factory is not None and not callable(factory) and not (isinstance(factory, str) and ":" in factory):
        raise ConfigError(f"env.factory={factory!r}: must be of the form 'package.module:callable'")
    return EnvFactory(env_id, factory, _kwargs(env, "env.kwargs"))


def _policy(named: Any, kwargs: Mapping[str, Any]) -> PolicyFactory:
    make: Callable[..., Any]
    if isinstance(named, str):
        if ":" not in named and named not in BUILTIN:
            raise ConfigError(
                f"collect.policy={named!r}: must be one of {', '.join(BUILTIN)}, or of the form "
                "'package.module:callable'"
            )
        make = load(BUILTIN.get(named, named), "collect.policy")
    elif callable(named):
        make = named
    else:
        raise ConfigError(f"collect.policy={named!r}: must be of the form 'package.module:callable'")
    try:
        inspect.signature(make).bind(None, None, None, **kwargs)
    except ValueError:  # it is written in C and does not say
        pass
    except TypeError as error:
        raise ConfigError(
            f"collect.policy={named!r}: is called with (action_space, observation_space, seed) and "
            f"collect.policy_kwargs={dict(kwargs)!r}, which it does not take: {error}"
        ) from error

    def made(action_space: Any, observation_space: Any, seed: int | None) -> Any:
        return make(action_space, observation_space, seed, **kwargs)

    return made


def _name(cfg: Mapping[str, Any], config: str) -> str:
    name = cfg.get("exp_name")
    if name is None:
        return Path(config).stem
    if not isinstance(name, str) or not name.strip() or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ConfigError(f"exp_name={name!r}: must be a name, or a path below the output directory")
    return name


def _within_limit(quotas: list[int], manager: Mapping[str, Any], remarks: list[str]) -> list[int]:
    limit = manager.get("episode_num", float("inf"))
    if limit >= max(quotas):
        return quotas
    remarks.append(
        f"episode_num={limit} in the manager's config leaves {limit} episodes per env of the "
        f"{sum(quotas)} that are asked for"
    )
    return [min(quota, int(limit)) for quota in quotas]
