"""Naming an env on the command line, and what is said of one that is not there."""

import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envmgr.cli.checking.target import TargetError, callable_of, factory_of

SOURCE = """
class Env:
    pass


def make():
    return Env()


not_callable = 3
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    (tmp_path / "target_of_a_check.py").write_text(SOURCE)
    (tmp_path / "target_that_raises.py").write_text("import nothing_of_this_name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    importlib.invalidate_caches()
    yield
    for name in set(sys.modules) - before:
        if "target" in name:
            del sys.modules[name]


@pytest.mark.parametrize(
    "target", ["target_of_a_check:make", "target_of_a_check.py:make", "./target_of_a_check.py:Env"]
)
def test_modules_and_files(target: str) -> None:
    factory = factory_of(target)
    assert "target_of_a_check" not in sys.modules  # until a worker needs it
    assert pickle.loads(pickle.dumps(factory)) == factory
    assert callable(callable_of(factory))
    env = factory()
    assert type(env).__name__ == "Env"
    assert type(pickle.loads(pickle.dumps(env))) is type(env)
    assert type(factory()) is type(env)  # the file was read once


def test_a_file_whose_name_is_taken() -> None:
    Path("json.py").write_text(SOURCE)
    assert callable_of(factory_of("json.py:make"))().__class__.__name__ == "Env"
    import json

    assert json.loads("3") == 3


def test_a_gymnasium_id() -> None:
    factory = factory_of("gymnasium:CartPole-v1")
    assert factory.id == "CartPole-v1"
    assert callable_of(factory) is factory
    assert factory_of("gymnasium:ale_py:ALE/Pong-v5").id == "ale_py:ALE/Pong-v5"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("CartPole-v1", "gymnasium:CartPole-v1"),
        ("", "expected 'module:factory'"),
        ("module:", "expected 'module:factory'"),
        ("none.py:make", "there is no file"),
        ("nomodule:make", "there is no module 'nomodule'"),
        ("target_of_a_check:nope", "it has Env, make"),
        ("target_of_a_check:not_callable", "it has Env, make"),
        ("target_of_a_check.py:nope", "it has Env, make"),
        ("gymnasium:CartPoel-v1", "CartPole"),
    ],
)
def test_what_is_not_there(target: str, words: str) -> None:
    with pytest.raises(TargetError, match=None) as caught:
        callable_of(factory_of(target))
    assert words in caught.value.message


@pytest.mark.parametrize("target", ["target_that_raises:make", "target_that_raises.py:make"])
def test_what_a_module_raises_is_its_own_fault(target: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        callable_of(factory_of(target))
