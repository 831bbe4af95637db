"""deep_merge_dicts: a new EasyDict, and inputs that stay as they were."""

import copy
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from easydict import EasyDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envmgr.config import deep_merge_dicts
from envmgr.errors import ConfigError

keys = st.sampled_from(["a", "b", "c", "ab", "items", "keys", "get", "update", "pop"])
leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)
configs = st.dictionaries(keys, values, max_size=4)
calm = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)  # a busy machine


def _expected(base: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in new.items():
        old = out.get(key)
        out[key] = _expected(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def _containers(value: Any) -> list[int]:
    """The ids of everything in it that can be changed."""
    if isinstance(value, dict):
        return [id(value), *(i for key in value for i in _containers(value[key]))]
    if isinstance(value, list):
        return [id(value), *(i for item in value for i in _containers(item))]
    return []


def _all_easy(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is EasyDict and all(_all_easy(value[key]) for key in value)
    return all(map(_all_easy, value)) if isinstance(value, list) else True


@calm
@given(configs, configs, st.booleans(), st.booleans())
def test_merges_as_said_and_touches_nothing(
    base: dict[str, Any], new: dict[str, Any], base_easy: bool, new_easy: bool
) -> None:
    first = EasyDict(base) if base_easy else base
    second = EasyDict(new) if new_easy else new
    kept = copy.deepcopy(base), copy.deepcopy(new)
    shared = {*_containers(first), *_containers(second)}
    merged = deep_merge_dicts(first, second)
    assert (first, second) == kept
    assert merged == _expected(base, new)
    assert _all_easy(merged)
    assert not shared & set(_containers(merged))


@calm
@given(configs)
def test_an_empty_config_changes_nothing(cfg: dict[str, Any]) -> None:
    assert deep_merge_dicts(cfg, {}) == deep_merge_dicts({}, cfg) == deep_merge_dicts(cfg, cfg) == cfg
    assert deep_merge_dicts(cfg, None) == deep_merge_dicts(None, cfg) == cfg


@calm
@given(configs, configs, configs)
def test_the_last_value_wins(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    one = deep_merge_dicts(deep_merge_dicts(a, b), c)
    assert set(one) == {*a, *b, *c}
    for key in c:
        if not isinstance(c[key], dict):
            assert one[key] == c[key]


def test_attributes_reach_all_the_way_down() -> None:
    merged = deep_merge_dicts({"env": {"manager": {"wait_num": 2}}}, {"env": {"manager": {"type": "base"}}})
    assert merged.env.manager.wait_num == 2
    assert merged.env.manager.type == "base"


def test_none_and_empty_values_override() -> None:
    assert deep_merge_dicts({"a": 1, "b": [1], "c": {"d": 1}}, {"a": None, "b": [], "c": None}) == {
        "a": None,
        "b": [],
        "c": None,
    }


def test_values_are_copied_where_they_can_change() -> None:
    array, numbers, names = np.zeros(2), {1, 2}, OrderedDict(a=[1])
    base = {"array": array, "set": numbers, "names": names, "nested": ({"a": [1]},)}
    merged = deep_merge_dicts(base, {})
    merged.array[0] = 1
    merged.set.add(3)
    merged.names.a.append(2)
    merged.nested[0].a.append(2)
    assert array[0] == 0
    assert numbers == {1, 2}
    assert names == {"a": [1]}
    assert base["nested"] == ({"a": [1]},)


def test_functions_and_classes_are_taken_as_they_are() -> None:
    merged = deep_merge_dicts({"fn": len}, {"cls": EasyDict, "module": np})
    assert merged.fn is len
    assert merged.cls is EasyDict
    assert merged.module is np


@pytest.mark.parametrize("bad", [3, "x", [("a", 1)]])
def test_what_is_no_mapping_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="a config is a dict"):
        deep_merge_dicts({}, bad)
    with pytest.raises(ConfigError, match="a config is a dict"):
        deep_merge_dicts(bad, {})


def test_a_key_that_is_no_string_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"config key env\.kwargs\.3 is int"):
        deep_merge_dicts({}, {"env": {"kwargs": {3: "x"}}})
    with pytest.raises(ConfigError, match="__class__"):
        deep_merge_dicts({"__class__": 1}, {})
