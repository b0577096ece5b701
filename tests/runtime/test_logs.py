"""The log of commands: text for people, JSON for programs."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest

from gateway.config.observing import LogConfig
from gateway.runtime import process


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    root, gateway = logging.getLogger(), logging.getLogger("gateway")
    before = root.level, gateway.level
    yield
    root.setLevel(before[0])
    gateway.setLevel(before[1])


def logged(monkeypatch: pytest.MonkeyPatch, config: LogConfig, stream: io.StringIO | None = None) -> io.StringIO:
    stream = stream or io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    # Without those of pytest, which would keep the lines and cannot pass on the one that is no text.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    process.log_to_stderr(config)
    return stream


def test_text_has_time_level_part_and_message(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = logged(monkeypatch, LogConfig())
    logging.getLogger("gateway.app").info("listener %r", "http")
    time, level, part, *message = stream.getvalue().split()
    assert datetime.fromisoformat(time).tzinfo is not None
    assert (level, part, message) == ("INFO", "gateway.app:", ["listener", "'http'"])


def test_json_has_the_request_and_the_traceback_of_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = logged(monkeypatch, LogConfig(format="json"))
    try:
        raise ZeroDivisionError
    except ZeroDivisionError as error:
        logging.getLogger("gateway.core").error("request %s \ud800", "r-1", exc_info=error, extra={"id": "r-1"})
    [line] = stream.getvalue().splitlines()
    found = json.loads(line)
    assert datetime.fromisoformat(found.pop("time")).tzinfo is not None
    assert "ZeroDivisionError" in found.pop("error")
    assert found == {"level": "error", "log": "gateway.core", "message": "request r-1 \\ud800", "id": "r-1"}


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["file", "terminal"])
def test_only_terminals_get_colours(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    logged(monkeypatch, LogConfig(), stream)
    logging.getLogger("gateway").warning("careful")
    assert ("\x1b[33mWARNING\x1b[0m" in stream.getvalue()) == stream.isatty()


def test_a_terminal_may_ask_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = logged(monkeypatch, LogConfig(), Terminal())
    logging.getLogger("gateway").warning("careful")
    assert "\x1b" not in stream.getvalue()


def test_a_reload_changes_level_and_format_and_writes_no_line_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = logged(monkeypatch, LogConfig(level="warning"))
    logging.getLogger("gateway").info("one")
    process.log_to_stderr(LogConfig(level="debug", format="json"))
    logging.getLogger("gateway").debug("two")
    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["message"] == "two"


def test_libraries_are_heard_from_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = logged(monkeypatch, LogConfig(level="debug"))
    logging.getLogger("asyncio").info("quiet")
    logging.getLogger("asyncio").warning("loud")
    assert "loud" in stream.getvalue()
    assert "quiet" not in stream.getvalue()
