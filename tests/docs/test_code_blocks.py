"""Every code block in README.md and the pages does what it says.

The Python blocks of a page are one script, run in a fresh interpreter; a block whose first line is a
comment with a file name (``# train.py``) is a script of its own. Blocks stay on the lines they have in
the page, so that a traceback points there. A YAML block is read and checked as a run config. Of
console blocks, the commands must exist.
"""

import code
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OWN_SCRIPT = re.compile(r"# (\w+\.py)\n")


class Block(NamedTuple):
    """One fenced block: its language, its text, and the count of lines before the text."""

    language: str
    text: str
    above: int


def blocks(page: Path, language: str) -> Iterator[Block]:
    """The blocks of a page in one language."""
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        if match[1] == language:
            yield Block(language, match[2], text.count("\n", 0, match.start(2)))


def scripts() -> Iterator[tuple[str, str]]:
    """A name and the source of each script in the pages."""
    for page in PAGES:
        shared = ""
        for block in blocks(page, "python"):
            own = OWN_SCRIPT.match(block.text)
            if own:
                yield f"{page.stem}-{own[1]}", "\n" * block.above + block.text
            else:
                shared += "\n" * (block.above - shared.count("\n")) + block.text
        if shared:
            yield f"{page.stem}.py", shared


def with_language(language: str) -> list[object]:
    """Each block in a language, as parameters of a test."""
    return [
        pytest.param(block.text, id=f"{page.name}:{block.above}")
        for page in PAGES
        for block in blocks(page, language)
    ]


SCRIPTS = dict(scripts())


@pytest.mark.parametrize("name", SCRIPTS)
def test_python_blocks_run(name: str, tmp_path: Path) -> None:
    script = tmp_path / name
    script.write_text(SCRIPTS[name], encoding="utf-8")
    result = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert not result.stderr


def test_the_quickstart_of_the_readme_can_be_pasted_into_a_prompt() -> None:
    (block,) = blocks(ROOT / "README.md", "python")
    pending: list[str] = []
    for line in block.text.splitlines():
        pending.append(line)
        if code.compile_command("\n".join(pending), symbol="single") is not None:
            pending = []
    assert not pending


@pytest.mark.parametrize("text", with_language("yaml"))
def test_yaml_blocks_are_run_configs(text: str, tmp_path: Path) -> None:
    from envmgr import compile_config

    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    assert compile_config(path).env.manager.type


@pytest.mark.parametrize("text", with_language("console"))
def test_commands_in_console_blocks_exist(text: str) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for line in text.splitlines():
        if line.startswith("$ make "):
            assert line.split()[2] in targets


def test_there_is_no_block_that_nothing_tests() -> None:
    known = {"python", "yaml", "console"}
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            # Directives of the page builder have braces, which the pattern does not take for a language.
            line = match[0].splitlines()[0]
            assert match[1] in known or line.startswith("```{"), f"{page.name}: {line}"
