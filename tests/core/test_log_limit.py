"""Log lines that cannot flood."""

import logging

import pytest

from gateway.core.log_limit import MOST_KEYS, LogLimit
from tests.clock import Clock


def test_lines_beyond_the_limit_are_counted_and_told_of_later(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    here = LogLimit(logging.getLogger("lab"), lines=2, seconds=60, clock=clock)
    for at in range(5):
        here.write("a", logging.WARNING, "a went %s", at)
    here.write("b", logging.WARNING, "100%% of %s", "b")
    clock.now = 60.0
    here.write("a", logging.WARNING, "a went %s", 5)
    here.write("a", logging.WARNING, "a went %s", 6)
    told = ["a went 0", "a went 1", "100% of b", "a went 5 (3 more of these were not logged)", "a went 6"]
    assert [record.getMessage() for record in caplog.records] == told


def test_the_lines_of_a_library_are_limited_by_their_texts(caplog: pytest.LogCaptureFixture) -> None:
    clock, library = Clock(), logging.getLogger("library")
    library.addFilter(LogLimit(library, lines=2, seconds=60, clock=clock).passes)
    for at in range(5):
        library.warning("%s went wrong\n", at)
    library.warning("another")
    clock.now = 60.0
    library.warning("%s went wrong\n", "100%")
    told = ["0 went wrong\n", "1 went wrong\n", "another", "100% went wrong (3 more of these were not logged)"]
    assert [record.getMessage() for record in caplog.records] == told


def test_there_is_an_end_to_what_is_remembered(caplog: pytest.LogCaptureFixture) -> None:
    here = LogLimit(logging.getLogger("lab"), lines=1, clock=Clock())
    for at in range(MOST_KEYS + 1):
        here.write(at, logging.WARNING, "once")
    here.write(0, logging.WARNING, "forgotten")
    here.write(MOST_KEYS, logging.WARNING, "too often")
    assert caplog.records[-1].getMessage() == "forgotten"
