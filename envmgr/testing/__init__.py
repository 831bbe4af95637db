"""Helpers for tests of envs and managers, for users as well as for envmgr itself.

``leaks`` checks that a piece of code leaves nothing behind; ``pytest_plugin`` offers it as a fixture.
This package may import anything of envmgr; nothing of envmgr imports it.
"""

from envmgr.testing.leaks import LeakError, no_leaks

__all__ = ["LeakError", "no_leaks"]
