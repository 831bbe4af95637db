"""Every public name resolves, and importing envmgr stays light."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import envmgr

NAMES = sorted(envmgr._MODULE_OF)
HEAVY = {"torch", "gym", "gymnasium", "ray", "matplotlib", "numpy", "pydantic", "typer", "rich", "easydict"}


@pytest.mark.parametrize("name", NAMES)
def test_each_name_resolves_to_its_module_s_own(name: str) -> None:
    value = getattr(envmgr, name)
    assert value is getattr(importlib.import_module(envmgr._MODULE_OF[name]), name)


def test_names_are_listed() -> None:
    assert set(NAMES) <= set(dir(envmgr))
    assert set(envmgr.__all__) == {"__version__", *NAMES}


def test_every_error_is_public() -> None:
    errors = importlib.import_module("envmgr.errors")
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert defined == {name for name, module in envmgr._MODULE_OF.items() if module == "envmgr.errors"}


def test_the_table_says_what_type_checkers_are_told() -> None:
    tree = ast.parse(Path(envmgr.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert told == envmgr._MODULE_OF


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'envmgr' has no attribute 'EnvManger'"):
        envmgr.EnvManger  # noqa: B018
    assert not hasattr(envmgr, "no_such_name")


def test_import_loads_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import envmgr; print(*set(sys.modules) - before)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = result.stdout.split()
    assert "envmgr" in loaded
    assert HEAVY.isdisjoint(loaded)
