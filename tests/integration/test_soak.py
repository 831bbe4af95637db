"""The soak itself, short: no step is lost, duplicated or mixed up while everything fails."""

from __future__ import annotations

import re

import pytest

from envmgr.testing.soak.__main__ import main


def test_a_short_soak(capsys):
    code = main(["--seconds", "8", "--envs", "6", "--rate", "0.01", "--only", "async_subprocess-fork"])
    text = capsys.readouterr().out
    assert code == 0, text
    numbers = dict(re.findall(r"^(\w[\w ]*?) +([\d,]+)$", text, re.MULTILINE))
    assert [numbers[name] for name in ("steps lost", "steps duplicated", "steps mixed up")] == ["0"] * 3
    assert int(numbers["abnormal steps"].replace(",", "")) >= 5, "faults were made"
    assert "all is well" in text


def test_a_phase_that_does_not_exist(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--only", "subprocess-thread"])
    assert caught.value.code == 2
    assert "subprocess-spawn" in capsys.readouterr().err
