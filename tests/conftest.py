"""What holds for every test: a leak check, and the time limit set in pyproject.toml."""

import importlib
import re
from typing import Any

import pytest

pytest_plugins = ["envmgr.testing.pytest_plugin"]


@pytest.fixture(autouse=True)
def _nothing_left_behind(leak_check: None) -> None:
    """Switches the leak check on for every test.

    Autouse and function-scoped: it is set up before the fixtures a test asks for and looks last,
    after they were torn down. What a fixture of a wider scope holds was there before, and counts as such.
    """


def pytest_make_parametrize_id(config: Any, val: Any, argname: str) -> str | None:
    """Names of cases carry no address, so that two processes collect the same ones."""
    text = repr(val)
    return re.sub(r" at 0x[0-9a-f]+", "", text) if " at 0x" in text and not callable(val) else None


@pytest.fixture
def torch() -> Any:
    """Imported by those who use it, and not for all: see ``pytest_collection_modifyitems``."""
    return importlib.import_module("torch")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need torch come last: forks of a process that has it take half as long again."""
    items.sort(key=lambda item: "torch" in getattr(item, "fixturenames", ()))
