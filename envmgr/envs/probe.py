"""Questions about an env that can be answered without stepping or resetting it.

A step or a reset would change its trajectory. So signatures, method names and the *names* of the
modules its classes come from must do until the first real reset and step decide; nothing is
imported to ask.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from envmgr.envs.chain import chain, find, lookup, method


def parameters(function: Any) -> dict[str, inspect.Parameter] | None:
    """The parameters of a callable by name, or None where Python cannot tell (compiled code)."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def names_it(function: Any, name: str) -> bool | None:
    """Whether a callable takes a keyword of that name: True, False, or None when it may (``**kwargs``)."""
    found = parameters(function)
    if found is None:
        return None
    if name in found and found[name].kind is not inspect.Parameter.POSITIONAL_ONLY:
        return True
    return None if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found.values()) else False


def reset_takes(env: Any, keyword: str) -> bool | None:
    """Whether ``reset`` takes a keyword, asked through wrappers that only pass keywords on.

    Returns:
        True or False where a signature says so. None where every signature down to the innermost
        env's is open (``**kwargs``).
    """
    innermost = env
    for obj in chain(env):
        innermost = obj
        answer = names_it(lookup(obj, "reset"), keyword)
        if answer is not None:
            return answer
    if keyword == "seed" and method(innermost, "seed") is not None:
        return None  # its own seed method says more than what it inherits
    for cls in type(innermost).__mro__[1:]:  # def reset(self, **kwargs): super().reset(**kwargs)
        if "reset" in vars(cls):
            answer = names_it(vars(cls)["reset"], keyword)
            if answer is not None:
                return answer
    return None


def seeds_by_reset(env: Any) -> bool:
    """Whether the env wants its seed as ``reset(seed=...)``.

    A ``reset`` that names ``seed`` decides; one that is open to any keyword gets it only if there is
    no ``seed`` method.
    """
    answer = reset_takes(env, "seed")
    if answer is None:
        return not callable(find(env, "seed"))
    return answer


def roots(env: Any) -> set[str]:
    """The top-level module names of every class the env and its wrapped envs come from."""
    return {cls.__module__.partition(".")[0] for obj in chain(env) for cls in type(obj).__mro__}


def is_new_api(env: Any) -> bool:
    """Whether ``reset`` looks like the newer one, which returns ``(obs, info)``."""
    if reset_takes(env, "seed") or reset_takes(env, "options"):
        return True
    return bool(roots(env) & {"gymnasium"}) and not is_timestep_like(env)


def is_timestep_like(env: Any) -> bool:
    """Whether the env looks like one that returns timesteps: its annotation or its ``seed`` say so."""
    step = parameters_of_return(lookup(env, "step"))
    if "imestep" in step or "imeStep" in step:
        return True
    seed = find(env, "seed")
    if callable(seed) and names_it(seed, "dynamic_seed"):
        return True
    return callable(lookup(env, "info")) and lookup(env, "observation_space") is None


def parameters_of_return(function: Any) -> str:
    """The return annotation of a callable as text, or an empty text."""
    try:
        annotation = inspect.signature(function).return_annotation
    except (TypeError, ValueError):
        return ""
    if annotation is inspect.Signature.empty:
        return ""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def guess_style(env: Any) -> str:
    """The style an env most likely has; its first step says for certain."""
    if is_timestep_like(env):
        return "timestep"
    origin = roots(env)
    if "gym" in origin and "gymnasium" not in origin:
        return "gym26" if reset_takes(env, "seed") and _gym_is_new() else "gym_old"
    return "gymnasium" if is_new_api(env) else "gym_old"


def _gym_is_new() -> bool:
    version = str(getattr(sys.modules.get("gym"), "__version__", "0.26"))
    numbers = [int(part) if part.isdigit() else 0 for part in version.split(".")[:2]]
    return numbers >= [0, 26]
