"""The leak check as a pytest fixture.

A suite of one's own switches it on in its top-level ``conftest.py``::

    pytest_plugins = ["envmgr.testing.pytest_plugin"]

and then names ``leak_check`` in a test, or in an autouse fixture for all of them. A test that means
to leave something behind is marked ``@pytest.mark.leaks_allowed("threads")``, or with no argument for
every kind.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from envmgr.testing.leaks import KINDS, LeakError, Snapshot, end_new_processes, leftovers

_FAILED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line(
        "markers", "leaks_allowed(*kinds): the leak check skips these kinds; none named: all"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remembers a test that failed: its frames are kept for the report, and what they hold with them."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture
def leak_check(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves processes, threads, descriptors or files behind."""
    marker = request.node.get_closest_marker("leaks_allowed")
    ignored = () if marker is None else marker.args or KINDS
    before = Snapshot.take()
    yield
    failed = request.node.stash.get(_FAILED, False)
    found = [] if failed else leftovers(before, ignore=ignored)
    if (failed or found) and "children" not in ignored:
        end_new_processes(before)
    if found:
        raise LeakError("left behind:\n  " + "\n  ".join(found))
