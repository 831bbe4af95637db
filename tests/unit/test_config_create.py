"""create_env_manager and get_env_manager_cls, with managers that only record what they are given."""

import copy
from pathlib import Path
from typing import Any

import pytest
from easydict import EasyDict

from envmgr.config import schema
from envmgr.errors import ConfigError, EnvManagerError
from envmgr.managers.create import create_env_manager, get_env_manager_cls
from envmgr.registry import ENV_MANAGER_REGISTRY


class Recorder:
    config = schema.defaults("subprocess")

    def __init__(self, env_fn: Any, cfg: EasyDict) -> None:
        self.env_fn, self.cfg = env_fn, cfg

    @classmethod
    def default_config(cls) -> EasyDict:
        return EasyDict(copy.deepcopy(cls.config), cfg_type=f"{cls.__name__}Dict")


class Louder(Recorder):
    config = {**Recorder.config, "max_retry": 9, "volume": 11}  # noqa: RUF012


class Bare:
    def __init__(self, env_fn: Any, cfg: EasyDict) -> None:
        self.cfg = cfg


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    ENV_MANAGER_REGISTRY.get("subprocess")  # it registers itself once: not while ours stands there
    for name, cls in {"subprocess": Recorder, "louder": Louder, "bare": Bare}.items():
        monkeypatch.setitem(ENV_MANAGER_REGISTRY._entries, name, cls)


@pytest.mark.parametrize("kind", [dict, EasyDict])
def test_it_is_built_with_the_full_config(kind: Any) -> None:
    cfg = kind(type="subprocess", episode_num=3, import_names=[])
    before = copy.deepcopy(cfg)
    fns = [object, object]
    manager: Any = create_env_manager(cfg, fns)
    assert cfg == before
    assert type(manager) is Recorder
    assert manager.env_fn is fns
    assert manager.cfg == schema.validate("subprocess", {**cfg, "cfg_type": "RecorderDict"})
    assert manager.cfg.max_retry == 5
    assert get_env_manager_cls(cfg) is Recorder


def test_the_class_s_own_defaults_and_keys_count() -> None:
    manager: Any = create_env_manager({"type": "louder", "volume": 3}, [])
    assert (manager.cfg.max_retry, manager.cfg.volume, manager.cfg.type) == (9, 3, "louder")
    with pytest.raises(ConfigError, match="nearest valid key is 'volume'"):
        create_env_manager({"type": "louder", "volum": 3}, [])
    with pytest.raises(ConfigError, match="max_retry=0"):
        create_env_manager({"type": "louder", "max_retry": 0}, [])


def test_a_class_without_config_will_do() -> None:
    manager: Any = create_env_manager({"type": "bare", "wait_num": 2}, [])
    assert manager.cfg == {"type": "bare", "wait_num": 2}


def test_modules_are_imported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "envmgr_test_plugin.py").write_text(
        "from envmgr.registry import ENV_MANAGER_REGISTRY as R\n"
        "@R.register('from_plugin', force=True)\n"
        "class P:\n"
        "    def __init__(self, env_fn, cfg):\n"
        "        pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(ENV_MANAGER_REGISTRY._entries, "from_plugin", None)  # undone afterwards
    cfg = {"type": "from_plugin", "import_names": ["envmgr_test_plugin"]}
    assert get_env_manager_cls(cfg).__name__ == "P"
    with pytest.raises(ConfigError, match="'no_such_plugin' could not be imported"):
        get_env_manager_cls({"type": "from_plugin", "import_names": "no_such_plugin"})


def test_a_config_without_a_type_or_with_a_wrong_one() -> None:
    with pytest.raises(ConfigError, match=r"no key 'type'.*'subprocess'"):
        create_env_manager({}, [])
    with pytest.raises(ConfigError, match="a dict with a type, not 'subprocess'"):
        create_env_manager("subprocess", [])  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="did you mean 'subprocess'") as caught:
        create_env_manager({"type": "subproces"}, [])
    assert isinstance(caught.value, EnvManagerError)
    with pytest.raises(KeyError, match="unknown env manager 3"):
        create_env_manager({"type": 3}, [])
