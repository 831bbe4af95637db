"""Envs of the main script: registered there (A04), or defined in one that cannot be imported (A12)."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

DEFINED = """
import numpy as np
from gymnasium import spaces

FACTOR = 3  # a global that the class below looks at


class Walk:
    observation_space = spaces.Box(-99, 99, (1,), np.float64)
    action_space = spaces.Discrete(5)

    def reset(self, seed=None, options=None):
        self.x = 0
        return np.zeros(1), {}

    def step(self, action):
        self.x += FACTOR * int(action)
        return np.array([float(self.x)]), 1.0, False, False, {}

    def close(self):
        pass
"""

USED = """
def main(context, *env_fns):
    from envmgr import create_env_manager

    with create_env_manager({"type": "subprocess", "context": context}, env_fns) as manager:
        manager.launch()
        print([ts.obs.tolist() for ts in manager.step({0: 1, 1: 2}).values()])
"""

REGISTERED = """
import gymnasium
gymnasium.register("Walk-v0", entry_point=Walk, order_enforce=False)
"""


def run(*command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs Python."""
    return subprocess.run(
        [sys.executable, *command],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.case("A12")
def test_a_class_of_a_main_that_is_no_file():
    """Of ``python -c``, as of a notebook's cell: there is nothing to import it from."""
    calls = [f"main({context!r}, Walk, lambda: Walk())\n" for context in ("fork", "spawn", "forkserver")]
    done = run("-c", DEFINED + USED + "".join(calls))
    assert (done.returncode, done.stdout, done.stderr) == (0, "[[3.0], [6.0]]\n" * 3, "")


@pytest.mark.case("A12")
def test_a_class_of_cells_that_are_executed_in_a_main_of_their_own():
    """As a notebook's kernel does: one cell after another in one namespace, beside a thread of its own."""
    cells = [DEFINED, USED, "main('fork', Walk, lambda: Walk())"]
    kernel = f"""
    import sys, threading, types
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    for k, cell in enumerate({cells!r}):
        exec(compile(cell, f"<ipython-input-{{k}}>", "exec"), main.__dict__)
    """
    done = run("-", stdin=textwrap.dedent(kernel))
    assert (done.returncode, done.stdout, done.stderr) == (0, "[[3.0], [6.0]]\n", "")


@pytest.mark.case("A04")
@pytest.mark.parametrize("guarded", [False, True])
def test_an_env_registered_in_main_under_spawn(guarded, tmp_path):
    """Found where a worker comes by; where it does not, behind the guard, the error says how it would be."""
    define = "import gymnasium\n" + DEFINED.replace("class Walk:", "class Walk(gymnasium.Env):")
    call = "main('spawn', *[partial(gymnasium.make, 'Walk-v0', disable_env_checker=True)] * 2)\n"
    parts = [REGISTERED, "if __name__ == '__main__':\n", textwrap.indent(call, "    ")]
    if guarded:
        parts = [parts[1], textwrap.indent(REGISTERED, "    "), parts[2]]
    script = tmp_path / "script.py"
    script.write_text(define + USED + "\nfrom functools import partial\n" + "".join(parts))
    done = run(str(script))
    if guarded:
        assert done.returncode == 1 and "EnvInitError" in done.stderr and "Walk" in done.stderr
        assert "register the env inside its env_fn" in done.stderr
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, "[[3.0], [6.0]]\n", "")
