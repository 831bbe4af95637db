"""Has an env examined in a worker, and says how that ended, whatever the env does to its process.

The caller builds no env and imports nothing of the user's. A worker that dies without a word is started a
second time, with every line noted, to learn where it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle

from envmgr.cli.checking.blackbox import BlackBox
from envmgr.cli.checking.facts import Facts, Trouble
from envmgr.cli.checking.probe import FACTS, OVER, ProbeFactory
from envmgr.cli.checking.troubles import place_in
from envmgr.errors import EnvManagerError, EnvTimeoutError, WorkerDied
from envmgr.managers.subprocess import SyncSubprocessEnvManager

_TURN = 1.0  # seconds
_WORDS = {"import": "importing the module", "env_fn": "building the env", "": "the check itself"}


def collect(
    env_fn: Callable[[], Any],
    *,
    steps: int = 300,
    timeout: float = 20.0,
    name: str = "",
    context: str | None = None,
) -> Facts:
    """Looks at one env in a worker process.

    Args:
        env_fn: What builds it; called once, in the worker (twice if that dies).
        steps: How many random steps are looked at.
        timeout: Seconds that one call of the env may take; a part of the examination takes no longer either.
        name: What to call it.
        context: Start method of the worker; None for the default.
    """
    with tempfile.TemporaryDirectory(prefix=f"envmgr-{os.getpid()}-check-") as folder:
        plan = ProbeFactory(env_fn, steps, timeout, min(_TURN, timeout / 4), os.path.join(folder, "box"))
        with _without_log():
            facts = _run(plan, timeout, context)
            for trouble in facts.troubles:
                if trouble.kind != "raised" and not trouble.place:
                    traced = dataclasses.replace(plan, box=os.path.join(folder, "traced"), trace=True)
                    trouble.place = _place(trouble, _run(traced, timeout, context))
    facts.name = name
    return facts


def _place(trouble: Trouble, again: Facts) -> str:
    """Where a call failed, if it failed in the same way in a second run."""
    for other in again.troubles:
        if (other.kind, other.op, other.count) == (trouble.kind, trouble.op, trouble.count):
            return other.place
    return ""


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """What the log would say of a worker that dies is what the report says."""
    log = logging.getLogger("envmgr")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _run(plan: ProbeFactory, timeout: float, context: str | None) -> Facts:
    facts = Facts()
    with contextlib.closing(BlackBox(plan.box)) as box:
        try:
            for seen in _turns(plan, timeout, context):
                facts = seen
        except EnvTimeoutError as error:
            stack = error.child_traceback or ""
            op, count = box.call
            text = f"{_what(op, count)} did not come back within {timeout:g} s"
            # The stack of a killed process has its innermost line on top; a traceback has it below.
            place = place_in(stack, innermost_first="Traceback" not in stack) or box.place
            facts.troubles.append(Trouble("hung", op, count, text, place, stack))
        except WorkerDied as error:
            op, count = box.call
            text = f"the process {_ending(error)} in {_what(op, count)}"
            facts.troubles.append(Trouble("died", op, count, text, box.place))
        except EnvManagerError:
            # Where a worker is no fork, an env_fn that does not pickle does not get there.
            facts.pickle_error = _pickle_error(plan.env_fn)
            if not facts.pickle_error:
                raise
    return facts


def _pickle_error(env_fn: Callable[[], Any]) -> str:
    try:
        cloudpickle.dumps(env_fn)
    except Exception as error:  # what does not pickle can raise anything
        return f"{type(error).__name__}: {error}"
    return ""


def _turns(plan: ProbeFactory, timeout: float, context: str | None) -> Iterator[Facts]:
    """What was seen after each turn of the probe."""
    cfg = {
        "step_timeout": timeout,
        "reset_timeout": timeout,
        "interrupt_grace": min(1.0, timeout / 4),
        "max_retry": 1,
        "on_error": "raise",
        "auto_reset": False,
        **({} if context is None else {"context": context}),
    }
    manager = SyncSubprocessEnvManager([plan], cfg)
    try:
        manager.launch()
        over = False
        while not over:
            info = manager.step({0: 0})[0].info
            over = info[OVER]
            yield info[FACTS]
    finally:
        with warnings.catch_warnings():
            # An env that hangs in its close is known by then.
            warnings.simplefilter("ignore")
            with contextlib.suppress(EnvManagerError):
                manager.close()


def _what(op: str, count: int) -> str:
    return _WORDS.get(op) or f"{op} {count}"


def _ending(error: WorkerDied) -> str:
    if error.signal_name:
        return f"was killed by {error.signal_name}"
    return "ended" if error.exitcode is None else f"ended with exit code {error.exitcode}"
