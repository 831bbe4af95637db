"""Config files, Python and YAML, and what compile_config makes of them."""

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from easydict import EasyDict

from envmgr.config import compile_config, read_config, schema
from envmgr.errors import ConfigError
from envmgr.registry import ENV_MANAGER_REGISTRY

CONFIGS = sorted(p for p in (Path(__file__).parents[2] / "configs").iterdir() if p.suffix in (".py", ".yaml"))
MAIN = {"env": {"id": "X-v0", "env_num": 2, "manager": {"episode_num": 3}}, "seed": 1}
CREATE = {"env_manager": {"type": "subprocess", "import_names": []}}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def _write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return _write


def refused(call: Any, *args: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*args)
    return str(caught.value)


# ------------------------------------------------------------------ the repository's own


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_config_of_the_repository_compiles(path: Path) -> None:
    modules = set(sys.modules)
    cfg = compile_config(path)
    manager = cfg.env.manager
    assert set(schema.defaults(manager.type)) <= set(manager)
    assert (cfg.env.id, cfg.env.env_num, cfg.collect.n_episode) == ("CartPole-v1", 8, 300)
    assert cfg.collect.policy == "envmgr.cli.policies:cartpole"
    assert not {name for name in set(sys.modules) - modules if "cartpole" in name}
    assert not (path.parent / "__pycache__").exists()


def test_the_repository_has_one_for_each_manager_and_start_method() -> None:
    managers = [compile_config(path).env.manager for path in CONFIGS]
    found = {(manager.type, manager.get("context")) for manager in managers}
    methods = ("fork", "spawn", "forkserver")
    assert found >= {(name, method) for name in ("subprocess", "async_subprocess") for method in methods}
    assert ("base", None) in found
    assert len({compile_config(path).exp_name for path in CONFIGS}) == len(CONFIGS)


# ------------------------------------------------------------------ compiling


def test_compile_completes_the_manager_and_leaves_the_rest() -> None:
    before = copy.deepcopy((MAIN, CREATE))
    cfg = compile_config(MAIN, CREATE)
    assert before == (MAIN, CREATE)
    assert type(cfg) is EasyDict
    assert cfg.env.manager == schema.validate("subprocess", {"episode_num": 3, "import_names": []})
    assert cfg.env.manager.type == "subprocess"
    assert (cfg.seed, cfg.env.id, cfg.env.env_num) == (1, "X-v0", 2)


def test_compile_takes_what_read_config_gives_and_its_own_result() -> None:
    cfg = compile_config(MAIN, CREATE)
    assert compile_config(EasyDict(main_config=MAIN, create_config=CREATE)) == cfg
    assert compile_config(cfg) == cfg


def test_the_type_may_stand_in_main_config() -> None:
    assert compile_config({"env": {"manager": {"type": "base"}}}).env.manager.max_retry == 1
    assert compile_config({"env": {"manager": {"type": "base"}}}, CREATE).env.manager.type == "subprocess"
    assert compile_config({}, CREATE).env.manager.type == "subprocess"


def test_compile_says_what_is_wrong() -> None:
    assert "create_config.env_manager.type" in refused(compile_config, MAIN)
    assert "main_config.env is a dict, not int" in refused(compile_config, {"env": 3}, CREATE)
    assert "main_config.env.manager is a dict" in refused(compile_config, {"env": {"manager": "base"}})
    assert "a config is a dict" in refused(compile_config, [1], CREATE)
    assert "'wait_num'" in refused(compile_config, {"env": {"manager": {"wait_nim": 1}}}, CREATE)
    message = refused(compile_config, {}, {"env_manager": {"type": "subproces"}})
    assert "unknown env manager 'subproces'" in message


def test_a_manager_from_elsewhere_is_completed_from_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine:
        config = {"gain": 1, "wait_num": 3}  # noqa: RUF012

    monkeypatch.setitem(ENV_MANAGER_REGISTRY._entries, "mine", Mine)
    cfg = compile_config({}, {"env_manager": {"type": "mine", "gain": 2}})
    assert cfg.env.manager == {"gain": 2, "wait_num": 3, "type": "mine"}
    assert "'gain'" in refused(compile_config, {}, {"env_manager": {"type": "mine", "gian": 2}})


# ------------------------------------------------------------------ Python


PYTHON = """\
import dataclasses
import pathlib

with open(pathlib.Path(__file__).with_suffix(".count"), "a") as file:
    file.write("x")


@dataclasses.dataclass
class Size:
    n: "int" = 2


def factory():
    return Size()


main_config = dict(
    env=dict(
        env_num=Size().n,
        factory=factory,
        manager=dict(
            wait_num=1,
        ),
    ),
)
create_config = dict(env_manager=dict(type="async_subprocess"))
"""


def test_a_python_config_is_run_once_and_leaves_no_module(write: Any) -> None:
    path = write("numpy.py", PYTHON)  # a name that would hide another module
    numpy = sys.modules.get("numpy")
    modules = set(sys.modules)
    cfg = compile_config(path)
    assert (cfg.env.env_num, cfg.env.manager.wait_num, cfg.env.manager.max_retry) == (2, 1, 5)
    assert path.with_suffix(".count").read_text() == "x"
    assert sys.modules.get("numpy") is numpy
    assert not {name for name in set(sys.modules) - modules if "config" in name and "numpy" in name}
    assert not (path.parent / "__pycache__").exists()


def test_a_function_of_a_config_travels_by_value(write: Any) -> None:
    factory = compile_config(write("c.py", PYTHON)).env.factory
    assert pickle.loads(cloudpickle.dumps(factory))().n == 2


def test_read_config_gives_both_parts_unchecked(write: Any) -> None:
    config = read_config(str(write("c.py", "main_config = {'env': {'manager': {'nonsense': 1}}}")))
    assert config == {"main_config": {"env": {"manager": {"nonsense": 1}}}, "create_config": {}}
    assert config.main_config.env.manager.nonsense == 1


def test_a_module_s_name_will_do(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("some_config_module.py", PYTHON)
    monkeypatch.syspath_prepend(str(path.parent))
    try:
        assert compile_config("some_config_module").env.manager.wait_num == 1
        assert compile_config("some_config_module").env.manager.wait_num == 1
    finally:
        sys.modules.pop("some_config_module", None)
    assert path.with_suffix(".count").read_text() == "x"


def test_a_python_config_s_mistakes_have_a_line(write: Any) -> None:
    path = write("c.py", PYTHON.replace("wait_num=1", "wait_num=0"))
    assert f"{path}:22: wait_num=0 (int)" in refused(compile_config, path)
    path = write("c.py", "x = 1\nmain_config = dict(a=1 / 0)\n")
    assert refused(read_config, path).startswith(f"{path}:2: ZeroDivisionError")
    path = write("c.py", "x = 1\nmain_config = dict(a=\n")
    assert refused(read_config, path).startswith(f"{path}:2: SyntaxError")
    path = write("c.py", "raise SystemExit(3)\n")
    assert refused(read_config, path).startswith(f"{path}:1: SystemExit")
    path = write("c.py", "main_config = {'env': {3: 4}}\n")
    assert refused(read_config, path).startswith(f"{path}: config key main_config.env.3")


def test_a_python_config_without_its_variables(write: Any) -> None:
    path = write("c.py", "cartpole_config = {}\n")
    assert "no variable main_config" in refused(read_config, path)
    assert "cartpole_config" in refused(read_config, path)
    assert "main_config is a dict, not list" in refused(read_config, write("c.py", "main_config = []\n"))
    path = write("c.py", "main_config = {}\ncreate_config = 3\n")
    assert "create_config is a dict, not int" in refused(read_config, path)


# ------------------------------------------------------------------ YAML


FLAT = """\
exp_name: x
env:
  id: X-v0
  env_num: 2
  manager:
    type: async_subprocess
    step_wait_timeout: 1e-3
    episode_num: .inf
    step_timeout: null
collect:
  n_episode: 4
"""

TWO = """\
x-common: &common
  max_retry: 2
main_config:
  env:
    manager:
      <<: *common
      wait_num: 3
create_config:
  env_manager:
    type: async_subprocess
"""


def test_the_short_yaml_form(write: Any) -> None:
    cfg = compile_config(write("c.yml", FLAT))
    manager = cfg.env.manager
    assert (manager.type, manager.step_wait_timeout, manager.episode_num) == (
        "async_subprocess",
        0.001,
        float("inf"),
    )
    assert manager.step_timeout is None
    assert (cfg.exp_name, cfg.env.env_num, cfg.collect.n_episode) == ("x", 2, 4)
    assert read_config(write("c.yaml", FLAT)).main_config.env.id == "X-v0"


def test_the_long_yaml_form(write: Any) -> None:
    manager = compile_config(write("c.yaml", TWO)).env.manager
    assert (manager.type, manager.wait_num, manager.max_retry) == ("async_subprocess", 3, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FLAT.replace("1e-3", "fast"), ":7: step_wait_timeout='fast' (str)"),
        (FLAT.replace("null", "None"), ":9: step_timeout='None' (str): must be a number of seconds above 0"),
        (FLAT.replace("episode_num", "episode_nums"), ":8: unknown key 'episode_nums'"),
        (FLAT.replace("  n_episode: 4", "  n_episode: [4"), ":12: "),
        (FLAT.replace("    type: async_subprocess\n", ""), "type of the env manager is None"),
        (FLAT + "env: {}\n", ":12: key 'env' is given twice"),
        (FLAT.replace("exp_name: x", "3: x"), "config key main_config.3 is int"),
        (TWO.replace("wait_num: 3", "wait_num: 0"), ":7: wait_num=0"),
        (TWO.replace("type: async_subprocess", "typo: base"), "type of the env manager is None"),
        (TWO.replace("type: async_subprocess", "type: subprocess\n    typo: 1"), ":11: unknown key 'typo'"),
        (TWO.replace("<<: *common", "<<: 3"), ":6: "),
        (TWO.replace("create_config", "create_confg"), ":8: key 'create_confg' at the top, did you mean"),
        ("main_config: 3\n", "main_config is a dict, not int"),
        ("create_config: {}\n", "neither main_config nor env"),
        ("", "a config is a mapping"),
        ("- 1\n", "a config is a mapping"),
        ("a: !!python/object:os.system {}\n", ":1: "),
    ],
)
def test_a_yaml_config_s_mistakes_have_a_place(write: Any, text: str, said: str) -> None:
    path = write("c.yaml", text)
    message = refused(
        lambda: compile_config(read_config(path)) if "key main" in said else compile_config(path)
    )
    assert said in message
    assert str(path) in message


# ------------------------------------------------------------------ what is no file


def test_what_is_not_there_is_said(write: Any, tmp_path: Path) -> None:
    path = write("cartpole_async.py", "")
    message = refused(read_config, str(tmp_path / "cartpole_asinc.py"))
    assert "no config file" in message
    assert f"did you mean {str(path)!r}" in message
    assert "no config file" in refused(read_config, tmp_path / "none" / "x.yaml")
    assert "no file and no module of that name" in refused(read_config, "no_such_config_module")
    assert "is not a config" in refused(read_config, tmp_path)
    assert "cannot read '.json' files" in refused(read_config, str(tmp_path / "x.json"))
    (tmp_path / "dir.yaml").mkdir()
    assert "cannot be read" in refused(read_config, tmp_path / "dir.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in refused(read_config, tmp_path / "bytes.yaml")
