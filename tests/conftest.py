"""What holds for every test: a leak check, and the time limit set in pyproject.toml."""

import gc
import importlib
import os
import re
from typing import Any

import numpy  # noqa: F401 - before what is set below, so that this process has its threads, as a user's has
import pytest

# A fresh interpreter's BLAS starts a thread per core, and these wait busily for work that never comes: of the
# processor time of a spawned worker, a quarter.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


pytest_plugins = ["envmgr.testing.pytest_plugin"]


@pytest.fixture(autouse=True)
def _nothing_left_behind(leak_check: None) -> None:
    """Switches the leak check on for every test.

    Autouse and function-scoped: it is set up before the fixtures a test asks for and looks last,
    after they were torn down. What a fixture of a wider scope holds was there before, and counts as such.
    """


def pytest_collection_finish(session: pytest.Session) -> None:
    """What collecting has left stays to the end: no garbage collection has to look through it again."""
    gc.collect()
    gc.freeze()


def pytest_make_parametrize_id(config: Any, val: Any, argname: str) -> str | None:
    """Names of cases carry no address, so that two processes collect the same ones."""
    text = repr(val)
    return re.sub(r" at 0x[0-9a-f]+", "", text) if " at 0x" in text and not callable(val) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--cases FSO``: only tests of cases whose id begins with one of these letters (``make rounds``)."""
    parser.addoption("--cases", default="", help="letters: only tests of cases whose id begins with one")


@pytest.fixture
def torch() -> Any:
    """Imported by those who use it, and not for all: see ``pytest_collection_modifyitems``."""
    return importlib.import_module("torch")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what ``--cases`` does not name, and puts last what makes all after it slower.

    A fork of a process that has torch takes half as long again; and once multiprocessing has spawned, its
    resource tracker stays, so that the leak check has to search all processes of the machine for children.
    """

    def rank(item: pytest.Item) -> int:
        if "torch" in getattr(item, "fixturenames", ()):
            return 2
        return 1 if "spawn" in item.name or "forkserver" in item.name else 0

    letters = tuple(config.getoption("--cases"))
    if letters:
        kept = [
            i
            for i in items
            if any(str(a).startswith(letters) for m in i.iter_markers("case") for a in m.args)
        ]
        config.hook.pytest_deselected(items=[i for i in items if i not in set(kept)])
        items[:] = kept
    items.sort(key=rank)
