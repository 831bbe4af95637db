"""The program's own code that managers call: log handlers and callbacks. What it raises ends no manager."""

from __future__ import annotations

import logging
import os
import signal
import threading
from functools import partial

import pytest

from envmgr import EnvManagerError, EnvResetError, EnvState, WorkerDied
from tests.helpers import envs
from tests.helpers.managers import in_base_and_sync, in_processes, in_sync, many, step_until, wait_ready
from tests.helpers.sync import wait_until, within


class Unhandled(logging.Handler):
    """Cannot handle a record."""

    def emit(self, record):
        raise ConnectionError("the log server is gone")


@pytest.fixture
def bad_handler():
    """A handler that raises, for what managers log."""
    handler, logger = Unhandled(), logging.getLogger("envmgr")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


@in_processes
def test_a_log_handler_that_raises_does_not_keep_the_end_of_a_worker_from_the_caller(make, bad_handler):
    fns = [partial(envs.FaultyEnv, 0, step_fault="exit"), partial(envs.CounterEnv, 1)]
    manager = make.launched(fns, on_error="reset")
    result = within(20, step_until, manager, {0: 0, 1: 0})
    assert isinstance(result[0].info["err"], WorkerDied)
    assert 0 in within(20, wait_ready, manager)


def test_nor_does_a_program_without_stderr(script):
    """Python's last resort for records that nobody handles writes there."""
    body = """
    sys.stderr.close()
    manager = make(many(envs.CounterEnv, 2), on_error="reset")
    manager.launch()
    os.kill(manager.where_pid[0], signal.SIGKILL)
    result = manager.step({0: 0, 1: 0})
    print(type(result[0].info["err"]).__name__)
    manager.close()
    """
    one = script(body)
    assert one.wait(20) == 0
    assert one.out == "WorkerDied\n"


class Untold(SystemExit):
    """Ends a thread without a word, and cannot be told of."""

    def __repr__(self):
        raise ValueError("no repr")


@in_sync
@pytest.mark.parametrize("kind", [SystemExit, ValueError, Untold])
def test_whatever_ends_the_keeper_reaches_the_caller(make, kind, monkeypatch, bad_handler):
    manager = make.launched(many(envs.CounterEnv, 2))

    def raises(*_):
        raise kind

    monkeypatch.setattr(manager._engine._troubles, "look_after", raises)
    os.kill(manager.where_pid[0], signal.SIGKILL)
    with pytest.raises(EnvManagerError, match=f"(?s)background thread.*{kind.__name__}"):
        within(20, lambda: [manager.step({0: 0, 1: 0}) for _ in range(1000)])
    assert manager.closed


class Callback:
    """Raises at changes to one state, and knows all that it was told of."""

    def __init__(self, kind, wanted):
        self.kind, self.wanted, self.moves, self.threads = kind, wanted, [], []

    def __call__(self, *move):
        self.moves.append(move)
        if move[2] == self.wanted:
            self.threads.append(threading.current_thread())
            raise self.kind("mine")


class Listener:
    """Is told after it."""

    def __init__(self):
        self.moves = []

    def hears(self, *move):
        self.moves.append(move)


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
class TestCallbacks:
    @in_base_and_sync
    def test_what_one_raises_in_the_callers_thread_is_logged(self, make, kind, caplog):
        first, last = Callback(kind, EnvState.RESET), Listener()
        manager = make(many(envs.CounterEnv, 2, length=1))
        manager.on_state_change(first)
        manager.on_state_change(last.hears)
        manager.launch()
        for _ in range(3):
            assert sorted(within(20, manager.step, {0: 0, 1: 0})) == [0, 1]
            wait_ready(manager)
        assert last.moves == first.moves and first.threads
        texts = [r.getMessage() for r in caplog.records if "callback" in r.getMessage()]
        assert len(texts) == len(first.threads) and repr(first) in texts[0]
        assert all(
            'raise self.kind("mine")' in text and text.endswith(f"{kind.__name__}: mine\n") for text in texts
        )

    @in_processes
    def test_nor_does_it_end_the_background_thread(self, make, kind, caplog):
        """Which hears of a failed reset first, and is to tell the caller of it."""
        fns = many(envs.FaultyEnv, 2, reset_fault="raise", at_reset=2, length=1)
        manager = make.launched(fns, max_retry=1)
        callback = Callback(kind, EnvState.ERROR)
        manager.on_state_change(callback.__call__)
        within(20, manager.step, {0: 0, 1: 0})
        wait_until(lambda: callback.threads, "the reset to fail")
        assert callback.threads[0] is not threading.main_thread()
        with pytest.raises(EnvResetError, match="boom in user code"):
            within(20, wait_ready, manager)
        assert (
            "a callback raised: Callback.__call__(" in caplog.text and f"{kind.__name__}: mine" in caplog.text
        )
        assert "bug in envmgr" not in caplog.text


@in_base_and_sync
def test_a_ctrl_c_in_a_callback_is_the_callers(make):
    def callback(_i, _old, new):
        if new == EnvState.RESET:
            signal.raise_signal(signal.SIGINT)

    manager = make.launched(many(envs.CounterEnv, 2, length=1))
    manager.on_state_change(callback)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            manager.step({0: 0, 1: 0})
        manager.close()
    finally:
        signal.signal(signal.SIGINT, before)
