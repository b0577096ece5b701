"""The line of what takes long."""

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from threading import Event

import pytest

from gateway.cli.progress import ProgressStep, line, progress
from tests.limits import GENEROUS


class Screen(StringIO):
    """A terminal that says when something was drawn on it."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = Event()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.drawn.set()


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def test_a_line_says_what_is_done_and_how_far_it_is() -> None:
    assert line("asking", ProgressStep(""), 2.4) == "asking  2 s"
    assert line("asking a:1", ProgressStep("models over v2-rest"), 2.4) == "asking a:1: models over v2-rest  2 s"
    assert (
        line("replaying", ProgressStep("3 of 4 requests", 0.75), 61)
        == f"replaying  [{'#' * 22:30}]  75%  3 of 4 requests  61 s"
    )
    assert line("x", ProgressStep("\x1b[2J\n", 1.5), 0) == f"x  [{'#' * 30}] 100%  ?[2J?  0 s"


def test_the_line_is_gone_at_the_end() -> None:
    with redirect_stderr(Screen()) as screen, progress("asking", after=0.0):
        assert screen.drawn.wait(GENEROUS)
    assert screen.getvalue().startswith("\r\x1b[Kasking  0 s")
    assert screen.getvalue().endswith("\r\x1b[K")


def test_what_is_done_is_counted() -> None:
    with redirect_stderr(Screen()) as screen, progress("replaying", after=GENEROUS) as shown:
        count = shown.counted(4, "requests")
        count()
        shown.draw()
    assert f"[{'#' * 7:30}]  25%  1 of 4 requests" in screen.getvalue()


def test_what_ends_soon_shows_nothing() -> None:
    with redirect_stderr(Screen()) as screen, progress("replaying", after=GENEROUS) as shown:
        shown.show("begins")
    assert screen.getvalue() == ""


def test_nothing_is_shown_where_lines_cannot_be_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with redirect_stderr(StringIO()) as file, progress("replaying", after=0.0) as shown:
        shown.show("begins")
    assert file.getvalue() == ""
    monkeypatch.setenv("TERM", "dumb")
    with redirect_stderr(Screen()) as screen, progress("replaying", after=0.0) as shown:
        shown.show("begins")
    assert screen.getvalue() == ""


def test_what_is_printed_stands_above_the_line() -> None:
    with redirect_stderr(Screen()) as screen, redirect_stdout(screen), progress("checking", after=GENEROUS) as shown:
        shown.draw()
        shown.print("a check")
        shown.print("another")
    assert screen.getvalue() == "\r\x1b[Kchecking  0 s\r\x1b[Ka check\nanother\n"
