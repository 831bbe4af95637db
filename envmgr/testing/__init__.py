"""Helpers for tests of envs and managers, for users as well as for envmgr itself.

``leaks`` checks that a piece of code leaves nothing behind; ``pytest_plugin`` offers it as a fixture.
``conformance`` is the contract of a manager as a suite of tests to subclass.
``env_check`` looks whether an env keeps its word.
This package may import anything of envmgr; nothing of envmgr imports it.
"""

from typing import TYPE_CHECKING, Any

from envmgr.testing.leaks import LeakError, no_leaks

if TYPE_CHECKING:
    from envmgr.testing.env_check import check_env

__all__ = ["LeakError", "check_env", "no_leaks"]


def __getattr__(name: str) -> Any:
    """Loads what needs the managers when it is asked for: the pytest plugin imports this package, too."""
    if name == "check_env":
        from envmgr.testing.env_check import check_env

        return check_env
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
