"""Reading one config file, Python or YAML, into plain dicts that remember where they came from.

A Python file is compiled and run once, from its text: no ``.pyc`` is left beside it, and nothing stays
in ``sys.modules``. So a function that a config defines has no module that a spawned worker could
fail to import: cloudpickle carries it by value.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import os
import re
import sys
import tokenize
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import yaml

from envmgr.errors import ConfigError

PYTHON = (".py",)
YAML = (".yaml", ".yml")


class Loaded(NamedTuple):
    """The two configs of a file.

    Attributes:
        main: Its ``main_config``.
        create: Its ``create_config``, empty where it has none.
        where: From the path of a key, such as ``('env', 'manager', 'wait_num')``, to the file and, where it
            is known, the line: ``'runs/a.yaml:12'``.
    """

    main: Mapping[str, Any]
    create: Mapping[str, Any]
    where: Callable[[tuple[str, ...]], str]


def load(source: str | os.PathLike[str]) -> Loaded:
    """Reads a file by its path, or a Python module by its name.

    Raises:
        ConfigError: If there is no such thing, it cannot be read, or does not hold what it should.
    """
    text = os.fspath(source)
    path = Path(text)
    if path.suffix in YAML:
        return _load_yaml(path)
    if path.suffix in PYTHON or path.is_file():
        return _load_python(path)
    if isinstance(source, str) and all(part.isidentifier() for part in text.split(".")):
        return _load_module(text)
    if path.exists() or not path.suffix:
        raise ConfigError(f"{text!r} is not a config: give a .py, .yaml or .yml file, or a module's name")
    raise ConfigError(f"config file {text!r}: cannot read {path.suffix!r} files, only .py, .yaml and .yml")


def _load_python(path: Path) -> Loaded:
    source = _read(path)
    module = ModuleType(f"_envmgr_config_{re.sub(r'[^0-9a-zA-Z_]', '_', path.stem)}_{id(source)}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses, for one, look there while the file runs
    try:
        exec(compile(source, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{_line_of(error, str(path))}: {type(error).__name__}: {error}") from error
    finally:
        sys.modules.pop(module.__name__, None)
    return _from_variables(module, str(path), source)


def _load_module(name: str) -> Loaded:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"config module {name!r}: {type(error).__name__}: {error}") from error
        raise ConfigError(f"no config {name!r}: there is no file and no module of that name") from None
    except Exception as error:  # a user's module may raise anything while it is imported
        raise ConfigError(f"config module {name!r}: {type(error).__name__}: {error}") from error
    path = getattr(module, "__file__", None)
    return _from_variables(module, path or name, _read(Path(path)) if path else "")


def _from_variables(module: ModuleType, path: str, source: str) -> Loaded:
    found = {key: value for key, value in vars(module).items() if isinstance(value, Mapping)}
    main = _section(found.pop("main_config", getattr(module, "main_config", None)), "main_config", path)
    if main is None:
        hint = ", ".join(sorted(key for key in found if not key.startswith("_"))) or "none"
        raise ConfigError(
            f"{path}: no variable main_config (a dict with env, manager and so on); dicts there are: {hint}"
        )
    create = _section(getattr(module, "create_config", None), "create_config", path)

    def where(keys: tuple[str, ...]) -> str:
        line = _python_line(source, keys[-1]) if keys else None
        return f"{path}:{line}" if line else path

    return Loaded(main, create or {}, where)


def _python_line(source: str, key: str) -> int | None:
    """The line that gives a key, if there is just one: as ``dict(key=...)`` or ``{'key': ...}``."""
    lines = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == key:
            lines.add(node.lineno)
        elif isinstance(node, ast.Dict):
            lines.update(k.lineno for k in node.keys if isinstance(k, ast.Constant) and k.value == key)
    return lines.pop() if len(lines) == 1 else None


class _YamlLoader(yaml.SafeLoader):
    """YAML as people mean it: ``1e-3`` is a number, and a key given twice is a mistake."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge" or not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key_node.value!r} is given twice", problem_mark=key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


_YamlLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _load_yaml(path: Path) -> Loaded:
    loader = _YamlLoader(_read(path))
    try:
        root = loader.get_single_node()
        data = None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise ConfigError(f"{place}: {getattr(error, 'problem', None) or error}") from error
    finally:
        loader.dispose()
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path}: a config is a mapping with env: (or main_config:) at its top")

    flat = "main_config" not in data and "env" in data

    def where(keys: tuple[str, ...]) -> str:
        line, whole = _yaml_line(root, keys if flat else ("main_config", *keys))
        if not whole and not flat and keys[:2] == ("env", "manager"):
            other, whole = _yaml_line(root, ("create_config", "env_manager", *keys[2:]))
            line = other if whole else line
        return f"{path}:{line}" if keys else str(path)

    if flat:
        return Loaded(data, {}, where)
    for key in data:
        if key not in ("main_config", "create_config") and not str(key).startswith("x-"):
            near = difflib.get_close_matches(str(key), ["main_config", "create_config", "env"], n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise ConfigError(
                f"{path}:{_yaml_line(root, (key,))[0]}: key {key!r} at the top{hint or '.'} A YAML config "
                "has main_config and create_config there, or env (with the manager's type in env.manager)"
            )
    main = _section(data.get("main_config"), "main_config", str(path))
    if main is None:
        raise ConfigError(f"{path}: neither main_config nor env at its top")
    return Loaded(main, _section(data.get("create_config"), "create_config", str(path)) or {}, where)


def _yaml_line(node: Any, keys: tuple[str, ...]) -> tuple[int, bool]:
    """The line of a key, or of the nearest one above it that is there; and whether it is there itself."""
    line: int = node.start_mark.line + 1
    for key in keys:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        match = next(((k, v) for k, v in pairs if k.value == key), None)
        if match is None:
            return line, False
        line, node = match[0].start_mark.line + 1, match[1]
    return line, True


def _section(value: Any, name: str, path: str) -> Mapping[str, Any] | None:
    if value is None or isinstance(value, Mapping):
        return value
    raise ConfigError(f"{path}: {name} is a dict, not {type(value).__name__}")


def _read(path: Path) -> str:
    try:
        with tokenize.open(path) if path.suffix not in YAML else path.open(encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        folder = path.parent
        names = [item.name for item in folder.iterdir()] if folder.is_dir() else []
        near = difflib.get_close_matches(path.name, names, n=1)
        hint = f"; did you mean {str(folder / near[0])!r}?" if near else ""
        raise ConfigError(f"no config file {str(path)!r}{hint}") from None
    except (OSError, UnicodeError, SyntaxError) as error:
        raise ConfigError(f"config file {str(path)!r} cannot be read: {error}") from error


def _line_of(error: BaseException, path: str) -> str:
    """The place in the config file where it failed."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"{path}:{lines[-1]}" if lines else path
