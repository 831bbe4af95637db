"""The package's log: what handlers raise stays there, and a record names the line that wrote it."""

from __future__ import annotations

import logging
import signal

import pytest

from envmgr.log import log
from tests.helpers.sync import Background


class Raising(logging.Handler):
    """Raises what it is told to, or does it."""

    def __init__(self, what):
        super().__init__()
        self.what, self.calls = what, 0

    def emit(self, record):
        self.calls += 1
        raise self.what if isinstance(self.what, BaseException) else self.what()


@pytest.fixture
def handled_by():
    """Has a handler take what is logged, until the test is over."""
    logger, added = logging.getLogger("envmgr"), []

    def add(handler):
        logger.addHandler(handler)
        added.append(handler)
        return handler

    yield add
    for handler in added:
        logger.removeHandler(handler)


@pytest.mark.parametrize("say", [log.debug, log.info, log.warning, log.error, log.exception])
def test_what_a_handler_raises_is_not_the_callers(handled_by, say, caplog):
    caplog.set_level(logging.DEBUG, "envmgr")
    handler = handled_by(Raising(ConnectionError("the log server is gone")))
    say("a word of %s", "ours")
    assert handler.calls == 1


def test_nor_does_it_end_a_thread(handled_by):
    handler = handled_by(Raising(SystemExit(3)))
    Background(log.warning, "a word").result()
    assert handler.calls == 1


def test_a_ctrl_c_while_a_handler_is_at_work_is_the_callers(handled_by):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        handled_by(Raising(lambda: signal.raise_signal(signal.SIGINT)))
        with pytest.raises(KeyboardInterrupt):
            log.warning("a word")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_record_names_the_line_that_wrote_it(caplog):
    def here():
        log.warning("a word")
        log.log(logging.WARNING, "a word")
        log.warning("a word", stacklevel=2)

    here()
    assert [record.funcName for record in caplog.records] == [
        "here",
        "here",
        "test_a_record_names_the_line_that_wrote_it",
    ]
    first = here.__code__.co_firstlineno
    assert [record.lineno for record in caplog.records[:2]] == [first + 1, first + 2]
    assert {record.filename for record in caplog.records} == {"test_log.py"}
