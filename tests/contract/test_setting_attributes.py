"""Attributes set on the envs, through whatever wraps them (A03), and methods of some envs called."""

from __future__ import annotations

import pytest

from envmgr import EnvManagerError, UnknownEnvError
from tests.helpers import envs
from tests.helpers.managers import error_of, many, step_until

pytestmark = pytest.mark.case("A03")


def test_they_are_set_on_the_env_that_has_them(make):
    """The innermost env's own attribute, not a new one on the outermost wrapper that hides it."""
    manager = make.launched(many(envs.painted, 3))
    manager.set_env_attr("colour", ["red", "green", "blue"])
    manager.set_env_attr("paint", ["dry"], [1])
    assert manager.colour == ["red", "green", "blue"]
    assert manager.paint == ["red", "dry", "red"]
    assert manager.get_env_attr("colour", [2, 0]) == ["blue", "red"]
    manager.set_env_attr("start", [100, 200], [0, 1])  # nobody but the env itself looks at it
    manager.set_env_attr("t", [41], [2])
    results = step_until(manager, {0: 0, 1: 0, 2: 0})
    assert [results[i].obs.tolist() for i in range(3)] == [[0, 0, 1], [1, 0, 1], [2, 0, 42]]
    assert manager.start == [100, 200, 0]


def test_methods_of_some_envs(make):
    manager = make.launched(many(envs.painted, 3))
    images = manager.call_env_method("render", env_id=[2, 1])
    assert [int(image.max()) for image in images] == [2, 1]


def test_what_is_refused_sets_nothing(make):
    manager = make.launched(many(envs.painted, 2))
    for values, ids in (
        (["red"], None),
        ("rd", None),
        (["a", "b", "c"], None),
        (["a", "b"], [0, 2]),
        (["a"], [-1]),
        (["a", "b"], [1, 1]),
    ):
        error_of(EnvManagerError, manager.set_env_attr, "colour", values, ids)
    assert manager.colour == ["colour-0", "colour-1"]
    error_of(EnvManagerError, manager.get_env_attr, "colour", [5])
    for call, *given in (
        (manager.get_env_attr, "colour", 1),
        (manager.set_env_attr, "colour", ["a"], 1),
        (lambda: manager.call_env_method("render", env_id=1),),
    ):
        told = str(error_of(UnknownEnvError, call, *given))
        assert "env_id is a list of env ids, each a whole number from 0 to 1, not 1" in told
    assert step_until(manager, {0: 0, 1: 0})[1].obs.tolist() == [1, 0, 1]
