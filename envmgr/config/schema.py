"""Defaults, checks and documentation of env manager configs.

The keys themselves are in :mod:`envmgr.config.keys`. Two rules are kept here: a key that another
manager of the family knows is checked and kept, but has no effect, so that changing ``type`` is
enough to change managers; and a key that none knows is an error that names the nearest one. All that
is wrong with a config is said at once.

A manager from elsewhere, whose name the keys do not know, brings its defaults as a dict of its own
(``own``): its keys are valid too, and those it shares with the family are checked like any.
"""

from __future__ import annotations

import copy
import difflib
import multiprocessing
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from easydict import EasyDict
from pydantic import ValidationError

from envmgr.config.keys import KEYS, OTHER_DEFAULTS, TYPES, ManagerConfig
from envmgr.config.merge import deep_merge_dicts
from envmgr.errors import ConfigError

_ELSEWHERE = {
    "env_num": "the number of envs is the length of env_fn",
    "reset_inplace": "envs are always reset in place",
}
"""Keys of other libraries' managers, and what they are here."""


class Problem(NamedTuple):
    """One thing that is wrong with a config: under which key, and what."""

    key: str
    text: str


def defaults(type_name: str) -> dict[str, Any]:
    """The defaults of a manager: every key that has an effect on it.

    Args:
        type_name: Name of one of envmgr's own managers, such as ``'async_subprocess'``.

    Returns:
        A new plain dict.

    Raises:
        ConfigError: If envmgr has no manager of that name.
    """
    _known_type(type_name)
    other = OTHER_DEFAULTS.get(type_name, {})
    return {
        key.name: copy.deepcopy(other.get(key.name, key.default))
        for key in KEYS.values()
        if type_name in key.uses
    }


def validate(type_name: str, cfg: Mapping[str, Any] | None, own: Mapping[str, Any] | None = None) -> EasyDict:
    """Merges a config over the defaults of a manager and checks it.

    Args:
        type_name: Name of the manager in the registry.
        cfg: Some or all of the keys; it is not changed. None is an empty config.
        own: The manager class's own defaults (its ``config``) where they are not those of
            :func:`defaults`. Their keys are valid as well.

    Returns:
        A new EasyDict with all keys of the manager, those of ``cfg`` that other managers use, and ``type``.
        Numbers are plain ints and floats, whatever they were given as.

    Raises:
        ConfigError: If a key is unknown, or a value has a wrong type or range. The message names the
            key, the value, what is allowed, and for an unknown key the nearest valid one.
    """
    full, problems = check(type_name, cfg, own)
    if problems:
        raise ConfigError(summary(type_name, [problem.text for problem in problems]))
    return full


def own_defaults(cls: Any) -> Mapping[str, Any]:
    """What a manager class gives as its defaults: ``default_config()``, or else ``config``, or else none."""
    make = getattr(cls, "default_config", None)
    found = make() if callable(make) else getattr(cls, "config", None)
    own: Mapping[str, Any] = deep_merge_dicts({}, found)
    return own


def check(
    type_name: str, cfg: Mapping[str, Any] | None, own: Mapping[str, Any] | None = None
) -> tuple[EasyDict, list[Problem]]:
    """As :func:`validate`, but gives what is wrong as a list instead of raising."""
    full = deep_merge_dicts(defaults(type_name) if own is None else own, cfg)
    full.setdefault("type", type_name)
    given = {key: full[key] for key in full if key in KEYS}
    problems = [
        _unknown(key, full[key], type_name, own or ())
        for key in full
        if key not in KEYS and key not in (own or ())
    ]
    try:
        model = ManagerConfig.model_validate(given)
    except ValidationError as error:
        wrong = dict.fromkeys(str(detail["loc"][0]) for detail in error.errors(include_url=False))
        problems += [Problem(key, f"{key}={_show(given[key])}: must be {KEYS[key].allowed}") for key in wrong]
        return full, problems
    for key in given:
        full[key] = copy.copy(getattr(model, key))
    return full, problems + _conflicts(type_name, full)


def describe(type_name: str | None = None, key: str | None = None) -> str:
    """The documentation of the keys as text.

    Args:
        type_name: Only keys that have an effect on this manager, with its defaults; None for all.
        key: Only this key.

    Returns:
        Per key a line ``name = default (what is allowed)`` and its meaning, indented.

    Raises:
        ConfigError: If there is no such manager or key.
    """
    if type_name is not None:
        _known_type(type_name)
    if key is not None and key not in KEYS:
        raise ConfigError(_unknown(key, None, type_name, ()).text)
    entries = []
    for item in KEYS.values():
        if key not in (None, item.name) or (type_name is not None and type_name not in item.uses):
            continue
        default = OTHER_DEFAULTS.get(type_name or "", {}).get(item.name, item.default)
        text = item.doc
        if type_name is None and 0 < len(item.uses) < len(TYPES):
            text += f" Used by {', '.join(item.uses)}."
        body = textwrap.fill(text, 96, initial_indent="    ", subsequent_indent="    ")
        entries.append(f"{item.name} = {default!r} ({item.allowed})\n{body}")
    return "\n".join(entries)


def summary(type_name: str, problems: list[str]) -> str:
    """One message from all that is wrong."""
    if len(problems) == 1:
        return f"config of env manager {type_name!r}: {problems[0]}"
    lines = "".join(f"\n  - {problem}" for problem in problems)
    return f"config of env manager {type_name!r} has {len(problems)} mistakes:{lines}"


def _unknown(key: str, value: Any, type_name: str | None, own: Iterable[str]) -> Problem:
    valid = [
        name
        for name, item in KEYS.items()
        if type_name not in TYPES or not item.uses or type_name in item.uses
    ]
    valid += [name for name in own if name not in KEYS]
    text = f"unknown key {key!r} (value {_show(value)})"
    near = difflib.get_close_matches(key.lower(), [*KEYS, *own], n=1, cutoff=0.5)
    if key in _ELSEWHERE:
        text += f": {_ELSEWHERE[key]}, leave it out."
    elif near:
        text += f": the nearest valid key is {near[0]!r}"
        text += f" ({KEYS[near[0]].allowed})." if near[0] in KEYS else "."
    else:
        text += ": no valid key is near."
    return Problem(key, f"{text} Valid keys: {', '.join(valid)}")


def _conflicts(type_name: str, full: Mapping[str, Any]) -> list[Problem]:
    found = []
    if full.get("num_workers") is not None and full.get("envs_per_worker", 1) != 1:
        found.append(
            Problem(
                "num_workers",
                f"num_workers={full['num_workers']} and envs_per_worker={full['envs_per_worker']}: "
                "either one says how envs are spread over workers, leave the other out",
            )
        )
    methods = multiprocessing.get_all_start_methods()
    if type_name in KEYS["context"].uses and full.get("context", methods[0]) not in methods:
        found.append(
            Problem("context", f"context={full['context']!r}: this platform has only {', '.join(methods)}")
        )
    return found


def _known_type(type_name: str) -> None:
    if type_name not in TYPES:
        near = difflib.get_close_matches(str(type_name), TYPES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ConfigError(f"envmgr has no env manager {type_name!r}{hint} It has: {', '.join(TYPES)}")


def _show(value: Any) -> str:
    """A value and, where it could be mistaken, its type."""
    try:
        text = repr(value)
    except Exception:  # a user's __repr__ must not hide the message that it is for
        text = f"<{type(value).__name__}>"
    if len(text) > 120:
        text = f"{text[:117]}..."
    return text if value is None or isinstance(value, bool) else f"{text} ({type(value).__name__})"
