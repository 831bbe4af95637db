"""What holds for every test: a leak check, and the time limit set in pyproject.toml."""

import pytest

pytest_plugins = ["envmgr.testing.pytest_plugin"]


@pytest.fixture(autouse=True)
def _nothing_left_behind(leak_check: None) -> None:
    """Switches the leak check on for every test.

    Autouse and function-scoped: it is set up before the fixtures a test asks for and looks last,
    after they were torn down. What a fixture of a wider scope holds was there before, and counts as such.
    """
