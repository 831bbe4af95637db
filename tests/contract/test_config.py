"""What a manager does with its config (section 4.1); the schema's own tests are elsewhere."""

from __future__ import annotations

import copy
import sys

import pytest
from easydict import EasyDict

from envmgr import BaseEnvManager, ConfigError, create_env_manager
from tests.helpers import envs
from tests.helpers.managers import in_async, many, wait_ready

FNS = many(envs.CounterEnv, 2)


def test_the_callers_cfg_is_never_changed(make):
    cfg = EasyDict(make.config(2, episode_num=2))
    before = copy.deepcopy(cfg)
    manager = create_env_manager(cfg, FNS)
    manager.launch()
    wait_ready(manager)
    manager.close()
    assert cfg == before and isinstance(cfg, EasyDict)


def test_a_plain_dict_and_an_easydict_do_alike(make):
    for cfg in (make.config(2), EasyDict(make.config(2))):
        with create_env_manager(cfg, FNS) as manager:
            manager.launch()
            assert set(wait_ready(manager)) == {0, 1}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("episode_num", 0),
        ("episode_num", -1),
        ("episode_num", "three"),
        ("max_retry", 0),
        ("step_timeout", -1),
        ("step_timeout", "soon"),
        ("reset_timeout", 0),
        ("connect_timeout", -0.5),
        ("retry_type", "again"),
        ("retry_waiting_time", -1),
        ("auto_reset", "maybe"),
        ("context", "thread"),
        ("envs_per_worker", 0),
        ("num_workers", 0),
        ("on_error", "ignore"),
        ("seed_mode", "random"),
        ("wait_num", 0),
        ("wait_num", 1.5),
        ("step_wait_timeout", -1),
    ],
)
def test_a_wrong_value_fails_at_construction_naming_key_and_value(make, key, value):
    with pytest.raises(ConfigError) as caught:
        make(FNS, **{key: value})
    assert key in str(caught.value) and str(value) in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("wrong", "right"), [("step_timout", "step_timeout"), ("epsiode_num", "episode_num")]
)
def test_an_unknown_key_names_the_nearest(make, wrong, right):
    with pytest.raises(ConfigError, match=rf"(?s){wrong}.*{right}"):
        make(FNS, **{wrong: 3})


@pytest.mark.case("A11")
def test_keys_of_another_manager_of_the_family_are_accepted(make):
    every_key = {
        "wait_num": 1,
        "step_wait_timeout": 0.01,
        "connect_timeout": 30,
        "shared_memory": True,
        "envs_per_worker": 1,
        "context": "fork",
        "retry_type": "renew",
    }
    manager = make(FNS, **every_key)
    manager.launch()
    assert wait_ready(manager)[1].tolist() == [1, 0, 0]


def test_a_partial_cfg_is_enough_and_so_is_an_empty_one():
    for cfg in ({}, {"max_retry": 2}, EasyDict(episode_num=3)):
        with BaseEnvManager(FNS, cfg) as manager:
            manager.launch()
            assert manager.step({0: 1})[0].obs.tolist() == [0, 0, 1]


def test_inf_as_episode_num(make):
    manager = make.launched(FNS, episode_num=float("inf"))
    assert not manager.done


def test_import_names_are_imported_first(make, tmp_path, monkeypatch):
    name = f"envmgr_test_import_{make.type}"
    (tmp_path / f"{name}.py").write_text("LOADED = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    make(FNS, import_names=[name])
    assert sys.modules.pop(name).LOADED


def test_import_names_that_do_not_exist_say_so(make):
    with pytest.raises((ConfigError, ImportError), match="no_such_module_here"):
        make(FNS, import_names=["no_such_module_here"])


@pytest.mark.case("F21")
@in_async
def test_wait_num_over_n_is_capped(make):
    manager = make.launched(FNS, wait_num=100)
    assert set(manager.step({0: 0, 1: 0})) == {0, 1}


def test_default_config_is_fresh_each_time(make):
    cls = type(make(FNS))
    one, two = cls.default_config(), cls.default_config()
    assert one == two and one is not two
    assert one.cfg_type == cls.__name__ + "Dict"
    one.max_retry = 99
    assert cls.default_config().max_retry != 99
