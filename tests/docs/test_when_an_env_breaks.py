"""The page on breakage shows what its code prints, and its picture is the table of legal moves."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "when_an_env_breaks.md"
PART = re.compile(r"^```python\n(.*?)^```$|^:::\{code-block\} text\n(.*?)^:::$", re.MULTILINE | re.DOTALL)
END = "=== end of a block ==="


def plain(text: str) -> str:
    """A text without what differs from run to run, machine to machine and Python to Python."""
    text = re.sub(r"process \d+", "process N", text)
    text = re.sub(r'File ".*?/envmgr/', 'File "envmgr/', text)
    text = re.sub(r", line \d+,", ", line N,", text)
    text = re.sub(r"^ *[\^~]+\n", "", text, flags=re.MULTILINE)
    return text.strip()


def test_the_samples_are_what_the_code_prints(tmp_path):
    code, wanted = "", []
    for match in PART.finditer(PAGE.read_text(encoding="utf-8")):
        if match[1] is not None:
            code += f"{match[1]}\nprint({END!r})\n"
            wanted.append("")
        else:
            assert not wanted[-1], "one sample to a block"
            wanted[-1] = match[2]
    (tmp_path / "page.py").write_text(code, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    printed = run.stdout.split(END + "\n")[:-1]
    assert [plain(text) for text in printed] == [plain(text) for text in wanted]
    assert sum(bool(text) for text in wanted) >= 7


def test_the_picture_is_the_table_of_legal_moves():
    tool = runpy.run_path(str(ROOT / "docs" / "state_diagram.py"))
    picture = (ROOT / "docs" / "img" / "states.svg").read_text(encoding="utf-8")
    assert tool["picture"]() == picture, "run: python docs/state_diagram.py"


def test_every_legal_move_is_in_the_picture():
    """Read back from the picture itself, so that what draws it cannot leave one out."""
    from envmgr.engine.states import LEGAL_MOVES, EnvState

    picture = (ROOT / "docs" / "img" / "states.svg").read_text(encoding="utf-8")
    drawn = set(re.findall(r'data-from="(\w+)" data-to="(\w+)"', picture))
    closes = set(re.findall(r'data-closes="(\w+)"', picture))
    moves = {(old.name, new.name) for old, all_ in LEGAL_MOVES.items() for new in all_}
    assert drawn | {(name, "VOID") for name in closes} == moves
    assert set(re.findall(r'data-state="(\w+)"', picture)) == {state.name for state in EnvState}
    assert "SAMPLE" not in PAGE.read_text(encoding="utf-8")
