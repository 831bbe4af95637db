"""The keys of the managers: defaults, types, ranges, and what is said of a wrong one."""

import copy
import enum
import math
import sys
from typing import Any

import numpy as np
import pytest
from easydict import EasyDict

from envmgr.config import schema
from envmgr.config.keys import KEYS, TYPES
from envmgr.errors import ConfigError, EnvManagerError

INF = float("inf")


class RetryType(enum.Enum):
    RENEW = "renew"


def refused(cfg: Any, type_name: str = "async_subprocess") -> str:
    with pytest.raises(ConfigError) as caught:
        schema.validate(type_name, cfg)
    assert isinstance(caught.value, EnvManagerError)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def test_defaults_of_async_subprocess() -> None:
    expected = {
        "episode_num": INF,
        "max_retry": 5,
        "step_timeout": 60,
        "auto_reset": True,
        "reset_timeout": 60,
        "retry_waiting_time": 0.1,
        "retry_type": "reset",
        "shared_memory": True,
        "context": "fork" if sys.platform == "linux" else "spawn",
        "wait_num": 2,
        "step_wait_timeout": 0.01,
        "connect_timeout": 60,
        "copy_on_get": True,
        "envs_per_worker": 1,
        "num_workers": None,
        "on_error": "raise",
        "retry_step": False,
        "seed_mode": "offset",
    }
    found = schema.defaults("async_subprocess")
    assert type(found) is dict
    assert {key: found[key] for key in expected} == expected


def test_defaults_of_the_others() -> None:
    both = {"wait_num", "step_wait_timeout"}
    asynchronous, sync = schema.defaults("async_subprocess"), schema.defaults("subprocess")
    assert sync == {key: value for key, value in asynchronous.items() if key not in both}
    base = schema.defaults("base")
    assert (base["max_retry"], base["step_timeout"], base["reset_timeout"]) == (1, None, None)
    assert not {"wait_num", "context", "shared_memory", "connect_timeout"} & set(base)


def test_defaults_are_fresh() -> None:
    schema.defaults("base")["max_retry"] = 9
    assert schema.defaults("base")["max_retry"] == 1
    first = schema.validate("base", {"import_names": []})
    first.import_names.append("x")
    assert schema.validate("base", {"import_names": []}).import_names == []


@pytest.mark.parametrize("type_name", TYPES)
def test_each_type_s_defaults_are_valid(type_name: str) -> None:
    defaults = schema.defaults(type_name)
    full = schema.validate(type_name, {})
    assert full == {**defaults, "type": type_name}
    assert type(full) is EasyDict
    assert schema.validate(type_name, full) == full
    assert schema.validate(type_name, None) == full


def test_validate_changes_nothing_it_is_given() -> None:
    cfg = EasyDict(wait_num=np.int64(3), import_names="x", resources={"num_cpus": 1})
    before = copy.deepcopy(cfg)
    full = schema.validate("async_subprocess", cfg)
    assert cfg == before
    assert type(cfg.wait_num) is np.int64
    full.resources.num_cpus = 7
    assert cfg.resources.num_cpus == 1


@pytest.mark.parametrize(
    ("key", "given", "kept"),
    [
        ("episode_num", 1, 1),
        ("episode_num", INF, INF),
        ("episode_num", np.int32(7), 7),
        ("episode_num", np.float64(INF), INF),
        ("step_timeout", 3, 3.0),
        ("step_timeout", np.float32(0.5), 0.5),
        ("step_timeout", None, None),
        ("step_timeout", INF, None),
        ("step_wait_timeout", 0, 0.0),
        ("step_wait_timeout", None, None),
        ("retry_waiting_time", 0, 0.0),
        ("retry_type", "RENEW", "renew"),
        ("retry_type", RetryType.RENEW, "renew"),
        ("auto_reset", np.bool_(False), False),
        ("num_workers", None, None),
        ("num_workers", 4, 4),
        ("max_renewals", 0, 0),
        ("spin", "auto", "auto"),
        ("spin", True, True),
        ("spin", 0, 0.0),
        ("spin", 5e-5, 5e-5),
        ("cpu_affinity", "spread", "spread"),
        ("cpu_affinity", (0, np.int64(2)), [0, 2]),
        ("cpu_affinity", range(2), [0, 1]),
        ("import_names", "pkg.mod", ["pkg.mod"]),
        ("import_names", ("a", "b"), ["a", "b"]),
        ("resources", {"num_cpus": 2, "GPU": np.float32(0.5)}, {"num_cpus": 2.0, "GPU": 0.5}),
        ("cfg_type", "AnythingDict", "AnythingDict"),
        ("max_try", 3, 3),
    ],
)
@pytest.mark.parametrize("type_name", ["base", "async_subprocess"])
def test_what_is_accepted(type_name: str, key: str, given: Any, kept: Any) -> None:
    value = schema.validate(type_name, {key: given})[key]
    assert value == kept
    assert type(value) is type(kept) or isinstance(value, type(kept))


NUMBERS = ["3", True, math.nan, -INF, -1, [1], 1j]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("episode_num", value) for value in [*NUMBERS, 0, 2.0, None, "inf", np.array([1])]),
        *(("wait_num", value) for value in [*NUMBERS, 0, 1.5, 2.0, None, INF]),
        *(("max_retry", value) for value in [*NUMBERS, 0, None]),
        *(("envs_per_worker", value) for value in [*NUMBERS, 0, None]),
        *(("num_workers", value) for value in [*NUMBERS, 0]),
        *(("max_renewals", value) for value in [*NUMBERS, 0.5, None]),
        *(("step_timeout", value) for value in [*NUMBERS, 0, 10**400]),
        *(("reset_timeout", value) for value in [*NUMBERS, 0]),
        *(("connect_timeout", value) for value in [*NUMBERS, 0]),
        *(("step_wait_timeout", value) for value in NUMBERS),
        *(("retry_waiting_time", value) for value in [*NUMBERS, None, INF]),
        *(("renewal_window", value) for value in [*NUMBERS, None, 0]),
        *(("auto_reset", value) for value in [0, 1, "true", None]),
        *(("shared_memory", value) for value in [1, None]),
        *(("retry_type", value) for value in ["again", None, 1]),
        *(("context", value) for value in ["Fork", "threads", None]),
        *(("on_error", value) for value in ["ignore", None]),
        *(("seed_mode", value) for value in ["other", 0]),
        *(("info_errors", value) for value in ["keep", False]),
        *(("spin", value) for value in [1, -1e-6, "yes", None]),
        *(("cpu_affinity", value) for value in ["all", [], [True], [-1], 3, ["0"]]),
        *(("resources", value) for value in [{"CPU": "1"}, {"CPU": -1}, {"CPU": math.nan}, [1]]),
        *(("import_names", value) for value in [3, [3], None, [""]]),
        ("type", ""),
        ("type", 3),
    ],
)
@pytest.mark.parametrize("type_name", ["base", "async_subprocess"])
def test_what_is_refused(type_name: str, key: str, value: Any) -> None:
    message = refused({key: value}, type_name)
    assert f"{key}=" in message
    assert KEYS[key].allowed in message
    assert "\n" not in message


def test_the_value_is_shown_with_its_type() -> None:
    assert refused({"step_timeout": "3"}) == (
        "config of env manager 'async_subprocess': step_timeout='3' (str): must be a number of seconds "
        "above 0, or None for no limit (null in YAML)"
    )


def test_a_value_that_cannot_be_shown_is_no_obstacle() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "<Bad>" in refused({"wait_num": Bad()})
    assert len(refused({"wait_num": "x" * 10_000})) < 400


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("step_timeuot", "step_timeout"),
        ("Wait_Num", "wait_num"),
        ("waitnum", "wait_num"),
        ("contex", "context"),
    ],
)
@pytest.mark.parametrize("type_name", ["base", "subprocess", "async_subprocess"])
def test_an_unknown_key_names_the_nearest(type_name: str, key: str, near: str) -> None:
    message = refused({key: 17}, type_name)
    assert f"unknown key {key!r} (value 17 (int)): the nearest valid key is {near!r}" in message
    assert KEYS[near].allowed in message
    assert "episode_num" in message


def test_an_unknown_key_that_is_near_nothing_lists_what_there_is() -> None:
    message = refused({"xyzzy": None})
    assert "no valid key is near" in message
    assert "wait_num" in message


def test_keys_of_other_libraries_are_explained() -> None:
    assert "the length of env_fn" in refused({"env_num": 8})


def test_everything_wrong_is_said_at_once() -> None:
    message = refused({"wait_nums": 1, "max_retry": 0, "context": "x"})
    assert "3 mistakes" in message
    assert all(
        f"\n  - {part}" in message for part in ("unknown key 'wait_nums'", "max_retry=0", "context='x'")
    )


def test_a_key_of_another_manager_is_kept_and_checked() -> None:
    assert schema.validate("subprocess", {"wait_num": 4}).wait_num == 4
    assert "wait_num=0" in refused({"wait_num": 0}, "base")


def test_two_ways_to_spread_envs_are_one_too_many() -> None:
    assert "either one" in refused({"num_workers": 2, "envs_per_worker": 4})
    assert schema.validate("subprocess", {"num_workers": 2, "envs_per_worker": 1}).num_workers == 2


def test_a_start_method_that_the_platform_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    assert "this platform has only spawn" in refused({"context": "fork"})
    assert schema.validate("base", {"context": "fork"}).context == "fork"


@pytest.mark.parametrize("cfg", [3, "base", [("wait_num", 1)]])
def test_a_config_is_a_dict(cfg: Any) -> None:
    assert "a config is a dict" in refused(cfg)


def test_keys_are_strings() -> None:
    assert "keys of a config are strings" in refused({3: 4})


def test_an_unknown_type_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'async_subprocess'"):
        schema.defaults("asyncsubprocess")
    with pytest.raises(ConfigError, match="no env manager"):
        schema.validate("mine", {})


def test_a_manager_from_elsewhere_brings_its_own_keys() -> None:
    own = {"gain": 0.5, "wait_num": 4, "nested": {"a": 1}}
    full = schema.validate("mine", {"gain": "loud", "nested": {"b": 2}}, own)
    assert full == {"gain": "loud", "wait_num": 4, "nested": {"a": 1, "b": 2}, "type": "mine"}
    assert own["nested"] == {"a": 1}
    with pytest.raises(ConfigError, match=r"'gian'.*nearest valid key is 'gain'\. .*gain"):
        schema.validate("mine", {"gian": 1}, own)
    with pytest.raises(ConfigError, match="wait_num=0"):
        schema.validate("mine", {"wait_num": 0}, own)


def test_own_defaults_of_a_class() -> None:
    class Plain:
        config = {"a": 1}  # noqa: RUF012

    class Method(Plain):
        @classmethod
        def default_config(cls) -> EasyDict:
            return EasyDict(cls.config, cfg_type="MethodDict")

    assert schema.own_defaults(Plain) == {"a": 1}
    assert schema.own_defaults(Method) == {"a": 1, "cfg_type": "MethodDict"}
    assert schema.own_defaults(object) == {}


def test_every_key_is_documented() -> None:
    text = schema.describe()
    for key in KEYS.values():
        assert key.doc.endswith(".")
        assert f"{key.name} = " in text
    assert "Used by async_subprocess, ray." in text


def test_describe_goes_by_type_and_key() -> None:
    assert "wait_num" not in schema.describe("subprocess")
    assert "max_retry = 1 " in schema.describe("base")
    assert schema.describe(key="wait_num").startswith(
        "wait_num = 2 (a whole number of at least 1)\n    Results"
    )
    with pytest.raises(ConfigError, match="'wait_num'"):
        schema.describe(key="wait_nums")
    with pytest.raises(ConfigError, match="no env manager"):
        schema.describe("mine")
