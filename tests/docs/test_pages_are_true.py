"""What the pages say of the tree holds: the files table, the table of config keys, links between pages."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]
LINK = re.compile(r"\]\((?!\w+:|#)([^)#]+)")


def listed_files() -> list[str]:
    """The paths in the first column of the files table of ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    return [path for row in rows for path in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("path", listed_files())
def test_a_listed_file_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_module_is_listed_or_in_a_listed_folder() -> None:
    listed = [ROOT / path for path in listed_files()]
    folders = [path for path in listed if path.is_dir()]
    modules = {path for path in (ROOT / "envmgr").rglob("*.py") if path not in listed}
    assert not {m for m in modules if not any(m.is_relative_to(folder) for folder in folders)}


def test_the_table_of_keys_is_the_schema_s() -> None:
    tool = runpy.run_path(str(ROOT / "docs" / "config_table.py"))
    page = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    assert tool["page_with_table"](page) == page, "run: python docs/config_table.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
