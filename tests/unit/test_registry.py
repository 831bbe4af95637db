"""The registry: names in three ways, and messages that help."""

import importlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from envmgr.errors import ConfigError, EnvManagerError
from envmgr.registry import ENV_MANAGER_REGISTRY, Registry, RegistryError, import_modules


class Thing:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs


class Other:
    pass


def test_registers_as_decorator_and_as_call() -> None:
    registry = Registry("thing")

    @registry.register("a")
    class A:
        pass

    @registry.register
    class B:
        pass

    @registry.register()
    class C:
        pass

    assert registry.register("d", Thing) is Thing
    assert registry.register(None, Other) is Other
    assert [registry.get(name) for name in ("a", "B", "C", "d", "Other")] == [A, B, C, Thing, Other]
    assert list(registry) == registry.keys() == ["a", "B", "C", "d", "Other"]
    assert len(registry) == 5
    assert "a" in registry
    assert "z" not in registry
    assert 3 not in registry
    assert registry["a"] is A


def test_build_calls_with_arguments() -> None:
    registry = Registry("thing")
    registry.register("thing", Thing)
    built = registry.build("thing", 1, name="x")
    assert (built.args, built.kwargs) == ((1,), {"name": "x"})


def test_an_empty_registry_is_still_true() -> None:
    assert Registry("thing")
    assert len(Registry("thing")) == 0


def test_a_taken_name_is_refused_unless_forced() -> None:
    registry = Registry("thing")
    registry.register("x", Thing)
    with pytest.raises(RegistryError, match=r"'x' is registered already .*Thing.*force=True"):
        registry.register("x", Other)
    with pytest.raises(RegistryError):
        registry.register("x", Thing)
    assert registry.get("x") is Thing
    registry.register("x", Other, force=True)
    assert registry.get("x") is Other

    @registry.register("x", force=True)
    class X:
        pass

    assert registry.get("x") is X


@pytest.mark.parametrize("name", ["", 3, ["x"]])
def test_a_name_is_a_non_empty_string(name: Any) -> None:
    with pytest.raises(TypeError, match="non-empty str"):
        Registry("thing").register(name, Thing)
    with pytest.raises(TypeError, match="non-empty str"):
        Registry("thing").register(name)


def test_what_is_registered_is_callable() -> None:
    with pytest.raises(TypeError, match="classes and callables"):
        Registry("thing").register("x", "not a class")


def test_an_unknown_name_names_near_ones_and_reads_well() -> None:
    registry = Registry("thing")
    registry.register("async_subprocess", Thing)
    registry.register("thread", Other)
    with pytest.raises(KeyError) as caught:
        registry.get("Async_subproces")
    error = caught.value
    assert isinstance(error, (EnvManagerError, ConfigError, ValueError))
    assert str(error) == (
        "unknown thing 'Async_subproces'; did you mean 'async_subprocess'? "
        "Registered: 'async_subprocess', 'thread'."
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with pytest.raises(KeyError) as caught:
        registry.get("ray")
    assert str(caught.value) == "unknown thing 'ray'; registered: 'async_subprocess', 'thread'."
    for name in (None, 3, ["thread"], ""):
        with pytest.raises(KeyError, match="unknown thing"):
            registry.get(name)  # type: ignore[arg-type]


# ------------------------------------------------------------------ built in


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package on the path whose modules can register in ``thing_registry.R``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("thing_"):
            del sys.modules[name]


def _table(package: Path, **options: Any) -> Registry:
    (package / "thing_registry.py").write_text("R = None\n")
    (package / "thing_a.py").write_text(
        "from thing_registry import R\n@R.register('a')\nclass A:\n    pass\n"
    )
    (package / "thing_broken.py").write_text("import no_such_module_at_all\n")
    registry = Registry(
        "thing", builtin={"a": "thing_a", "b": "thing_missing", "c": "thing_missing.deep"}, **options
    )
    importlib.import_module("thing_registry").R = registry  # type: ignore[attr-defined]
    return registry


def test_a_built_in_is_imported_when_asked_for(package: Path) -> None:
    registry = _table(package)
    assert "thing_a" not in sys.modules
    assert registry.get("a").__name__ == "A"
    assert list(registry) == ["a"]
    assert "b" not in registry
    assert "c" not in registry


def test_a_built_in_is_listed_before_it_was_asked_for(package: Path) -> None:
    registry = _table(package)
    registry.register("z", Thing)
    assert list(registry) == ["a", "z"]


def test_the_name_of_a_built_in_is_taken_before_it_is_imported(package: Path) -> None:
    registry = _table(package)
    with pytest.raises(RegistryError, match="built in, in thing_a"):
        registry.register("a", Thing)
    registry.register("a", Thing, force=True)
    importlib.import_module("thing_a")
    assert registry.get("a") is Thing


def test_a_built_in_module_can_be_reloaded(package: Path) -> None:
    registry = _table(package)
    first = registry.get("a")
    importlib.reload(sys.modules["thing_a"])
    assert registry.get("a") is not first


def test_a_built_in_that_breaks_while_imported_says_so(package: Path) -> None:
    _table(package)
    registry = Registry("thing", builtin={"x": "thing_broken"})
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        registry.get("x")


def test_threads_may_ask_for_a_built_in_at_once(package: Path) -> None:
    registry = _table(package)
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(registry.get("a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    assert len(set(got)) == 1


# ------------------------------------------------------------------ entry points


@pytest.fixture
def plugins(package: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = _table(package, group="things")
    (package / "thing_class.py").write_text("class P:\n    pass\n")
    (package / "thing_module.py").write_text(
        "from thing_registry import R\nfor name in ('m', 'm2'):\n    R.register(name, type(name, (), {}))\n"
    )
    (package / "thing_curious.py").write_text(
        "from thing_registry import R\nassert 'nothing' not in R\nclass Q:\n    pass\n"
    )
    points = [
        EntryPoint("p", "thing_class:P", "things"),
        EntryPoint("m", "thing_module", "things"),
        EntryPoint("q", "thing_curious:Q", "things"),
        EntryPoint("broken", "thing_broken:X", "things"),
        EntryPoint("gone", "thing_class:Gone", "things"),
        EntryPoint("a", "thing_class:P", "things"),
    ]
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [p for p in points if p.group == group]
    )
    return registry


def test_an_entry_point_is_loaded_on_first_miss(plugins: Registry) -> None:
    assert "thing_class" not in sys.modules
    assert plugins.get("p").__name__ == "P"
    assert "thing_module" not in sys.modules


def test_an_entry_point_may_be_a_module_that_registers_several_names(plugins: Registry) -> None:
    assert plugins.get("m2").__name__ == "m2"
    assert plugins.get("m").__name__ == "m"


def test_a_module_that_asks_while_it_is_loaded_does_not_go_round_in_circles(plugins: Registry) -> None:
    assert plugins.get("q").__name__ == "Q"


def test_a_broken_entry_point_breaks_no_other(plugins: Registry) -> None:
    assert list(plugins) == ["a", "m", "m2", "p", "q"]
    assert set(plugins.failures) == {"broken", "gone", "a"}
    assert plugins.get("a").__name__ == "A"
    with pytest.raises(
        RegistryError, match=r"Could not be loaded: 'a' .*'broken' .*no_such_module"
    ) as caught:
        plugins.get("nothing")
    assert "unknown thing 'nothing'" in str(caught.value)


@pytest.mark.parametrize("listed_before", [False, True])
def test_a_broken_entry_point_is_reported_when_asked_for(plugins: Registry, listed_before: bool) -> None:
    if listed_before:
        list(plugins)
    with pytest.raises(RegistryError, match=r"offered by .*could not be loaded.*no_such_module") as caught:
        plugins.get("broken")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert "broken" not in plugins


def test_a_broken_entry_point_that_was_repaired_is_found(plugins: Registry, package: Path) -> None:
    assert "broken" not in plugins
    (package / "thing_broken.py").unlink()
    (package / "thing_broken").mkdir()
    (package / "thing_broken" / "__init__.py").write_text("class X:\n    pass\n")
    importlib.invalidate_caches()
    assert plugins.get("broken").__name__ == "X"
    assert "broken" not in plugins.failures


# ------------------------------------------------------------------ managers


def test_the_manager_registry_is_light_until_asked() -> None:
    code = (
        "import sys, envmgr.registry as r\n"
        "heavy = {'pydantic', 'easydict', 'numpy', 'torch', 'gymnasium', 'yaml', 'importlib.metadata'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "import envmgr.config\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_an_unknown_manager_is_a_key_error_and_ours() -> None:
    with pytest.raises(KeyError) as caught:
        ENV_MANAGER_REGISTRY.get("asink_subproces")
    assert isinstance(caught.value, EnvManagerError)
    assert str(caught.value).startswith("unknown env manager 'asink_subproces'")


@pytest.mark.parametrize("names", [3, [3], [""], {"a": 1}])
def test_import_names_are_names(names: Any) -> None:
    with pytest.raises(ConfigError, match="import_names="):
        import_modules(names)


def test_import_names_are_imported(package: Path) -> None:
    registry = _table(package)
    import_modules(None)
    import_modules("thing_a")
    import_modules(["thing_a"])
    assert registry._entries["a"].__name__ == "A"
    with pytest.raises(ConfigError, match=r"'thing_broken' could not be imported.*no_such_module") as caught:
        import_modules(("thing_broken",))
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
