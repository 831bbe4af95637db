"""What to do about errors that envs are known to raise, told beside the error itself."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

_elsewhere = False  # whether the env_fns of this process were written in another interpreter


def in_a_fresh_interpreter() -> None:
    """Said in a worker that is no fork of the caller: what the caller's script has done is not done here."""
    global _elsewhere
    _elsewhere = True


_Rule = tuple[Callable[[str, str, str], bool], str]

# (does it apply to this class name, message and files on the way; what to do about it). The first that
# applies is told.
_RULES: tuple[_Rule, ...] = (
    (
        lambda kind, text, files: (
            "bool8" in text and kind == "AttributeError" and (not files or "passive_env_checker" in files)
        ),
        "gym 0.26's passive checker does not work with numpy 2 (it asks for np.bool8): make the env with "
        "gym.make(..., disable_env_checker=True), or use gymnasium.",
    ),
    (
        lambda kind, text, files: kind == "NamespaceNotFound" and "ALE" in text,
        "The Atari envs are registered by ale-py: pip install ale-py, and inside the env_fn "
        "`import ale_py; gymnasium.register_envs(ale_py)`.",
    ),
    (
        lambda kind, text, files: (
            "ROM" in text
            and ("ale" in text.lower() or "unable to find" in text.lower() or "atari" in text.lower())
        ),
        "The Atari ROMs ship with ale-py 0.9 and newer: pip install -U ale-py. With an older one: "
        "pip install 'autorom[accept-rom-license]' and run AutoROM.",
    ),
    (
        lambda kind, text, files: (
            _elsewhere and kind in ("NameNotFound", "NamespaceNotFound", "UnregisteredEnv", "VersionNotFound")
        ),
        "A spawned worker does not run your main script, so what is registered there is unknown to it: "
        "register the env inside its env_fn, or in a module that the env_fn imports.",
    ),
    (
        lambda kind, text, files: "Can't get attribute" in text and "__main__" in text,
        "A spawned worker has another __main__: define what the env_fn needs in a module that "
        "can be imported.",
    ),
    (
        lambda kind, text, files: (
            kind == "TypeError" and "reset()" in text and "unexpected keyword argument" in text
        ),
        "The keywords come from reset_param, and from a wrapper that passes `seed` and `options` on: "
        "the env's reset must take them (or **kwargs).",
    ),
    (
        lambda kind, text, files: (
            kind == "ValueError" and "not enough values to unpack (expected 5, got 4)" in text
        ),
        "A wrapper for (obs, reward, terminated, truncated, info) holds an env that returns "
        "(obs, reward, done, info): hand in that env without the wrapper, or convert it first (shimmy, or "
        "gym.make(..., apply_api_compatibility=True)).",
    ),
    (
        lambda kind, text, files: kind == "ValueError" and "too many values to unpack (expected 4" in text,
        "A wrapper for (obs, reward, done, info) holds an env that returns (obs, reward, terminated, "
        "truncated, info): hand in that env without the wrapper.",
    ),
    (
        lambda kind, text, files: (
            "gladLoadGL" in text or "OpenGL platform library" in text or "MUJOCO_GL" in text
        ),
        "There is no display to render on: set the environment variable MUJOCO_GL to 'egl' or 'osmesa' "
        "before mujoco is imported, for instance at the top of the env_fn.",
    ),
)


def explain(exc: BaseException) -> str | None:
    """What to do about an error, or None if nothing is known.

    Args:
        exc: The error; what it was raised from is looked at too.
    """
    for error in _causes(exc):
        kind, files = type(error).__name__, _files_of(error)
        try:
            text = str(error)
        except Exception:  # a user's __str__ may raise anything
            continue
        for applies, advice in _RULES:
            if applies(kind, text, files):
                return advice
    return None


def _causes(exc: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    at: BaseException | None = exc
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def _files_of(error: BaseException) -> str:
    """The files that the error passed through; the empty text if it was never raised here."""
    return "\n".join(frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
