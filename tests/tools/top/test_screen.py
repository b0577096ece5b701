"""What `gateway top` draws, and what keys change."""

import os
import sys
import termios
from datetime import datetime
from io import StringIO

import pytest
from rich.console import Console

from gateway.tools.top.rows import SORTS, GatewayOverview
from gateway.tools.top.screen import END, View, after_key, drawn, keyboard
from gateway.tools.top.watching import Seen
from tests.limits import GENEROUS
from tests.tools.top.overviews import endpoint, seen, way

NOON = datetime(2026, 1, 1, 12, 0, 0)
ALL = View()


def shown(
    overview: GatewayOverview, view: View = ALL, width: int = 80, height: int = 24, trouble: str = ""
) -> list[str]:
    """The lines of a screen."""
    console = Console(file=StringIO(), width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(drawn("http://x:9", Seen(overview, NOON, trouble), view, width, height))
    return [line.rstrip() for line in capture.get().splitlines()]


def many(count: int) -> GatewayOverview:
    return seen(
        [endpoint(f"10.0.0.{at}:80", "up") for at in range(count)],
        [way(f"10.0.0.{at}:80", 2 * at) for at in range(count)],
    )


def test_a_screen_has_exactly_its_lines_and_columns() -> None:
    for width, height in ((80, 24), (200, 60), (60, 12), (40, 20)):
        lines = shown(many(50), width=width, height=height)
        assert (len(lines), max(map(len, lines)) <= width) == (height, True)


def test_the_busiest_are_shown_and_how_many_there_are() -> None:
    lines = shown(many(50))
    at = lines.index("ENDPOINTS 10 of 50")
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["10.0.0.49:80", "10.0.0.48:80", "10.0.0.47:80"]
    assert lines[-1].startswith("q quit  s sort: rate")


def test_one_kind_has_the_whole_screen() -> None:
    lines = shown(many(50), View(kind="endpoint", sort="name", is_reversed=True))
    assert lines[3] == "ENDPOINTS 19 of 50"
    assert lines[4].split()[0] == "10.0.0.9:80"
    assert "ROUTES" not in "".join(lines)


def test_names_are_shown_as_they_are_without_what_moves_the_cursor() -> None:
    found = seen([endpoint("a:1", "down", last_error="\x1b[2Jgone")], [])
    text = "\n".join(shown(found, width=120))
    assert "route-0 [bold], header team=red" in text
    assert "a:1 lab: ?[2Jgone" in text
    assert "\x1b" not in text


def test_a_gateway_that_does_not_answer_is_told() -> None:
    lines = shown(many(1), trouble="Connection refused")
    assert lines[2] == "no response, showing data from 12:00:00, trying again: Connection refused"


def test_keys_change_the_view() -> None:
    view = View()
    for key in ("s", "r", "\t", "x"):
        after = after_key(view, key)
        assert after is not None
        view = after
    assert view == View("listener", "failed", is_reversed=True)
    assert after_key(view, "q") is None


def test_keys_are_read_from_a_terminal_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    with open(slave, encoding="ascii") as stdin, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        before = termios.tcgetattr(slave)
        with keyboard() as pressed:
            assert pressed(0) == ""
            for typed, key in ((b"q", "q"), (b"\x1b[A", ""), (b"s", "s")):
                os.write(master, typed)
                assert pressed(GENEROUS) == key
        assert termios.tcgetattr(slave) == before
        with keyboard() as pressed:
            os.close(master)
            assert pressed(GENEROUS) == END


def test_without_a_terminal_no_keys_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("q"))
    with keyboard() as pressed:
        assert pressed(0) == ""


def test_each_key_comes_back_to_where_it_began() -> None:
    view = View()
    for key in "s" * len(SORTS) + "\t" * 5:
        after = after_key(view, key)
        assert after is not None
        view = after
    assert view == View()
