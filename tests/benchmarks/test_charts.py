"""Charts show the figures of their pages, in proportion, and are current."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.benchmarks.charts import (
    LONGEST,
    OTHER,
    OWN,
    RESULTS,
    TABLE,
    Bar,
    Chart,
    adapters,
    comparison,
    comparisons,
    drawn,
    svg,
)
from tests.benchmarks.contest.report import INTRODUCTION

PAGE = (RESULTS.parent / "README.md").read_text("utf-8")
DRAWN = dict(drawn())


def elements(text: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text).iter(f"{{http://www.w3.org/2000/svg}}{kind}"))


def row(size: int, in_flight: int, **cpu: float | None) -> dict[str, Any]:
    first = next(iter(cpu.values())) or 1
    sides = {
        name: {"cpu": value or 0, "ratio": value and first / value, "missing": "" if value else "apt-get install it"}
        for name, value in cpu.items()
    }
    return {"pair": "A to B", "size": size, "in_flight": in_flight, "sides": sides}


def test_bars_are_in_proportion_within_their_group() -> None:
    groups = [("small", [Bar("a", 100, OWN), Bar("b", 400, OTHER)]), ("B & C", [Bar("a", 30_000, OWN)])]
    text = svg(Chart("title", "message", groups))
    bars = [(each.get("class"), float(each.attrib["width"])) for each in elements(text, "rect")][1:]
    assert bars == [(OWN, LONGEST / 4), (OTHER, LONGEST), (OWN, LONGEST)]
    shown = {each.text for each in elements(text, "text")}
    assert {"small", "B & C", "100 µs", "30,000 µs"} <= shown


def test_a_chart_has_one_group_for_each_size_and_says_what_it_shows() -> None:
    rows = [
        row(10, 1, us=9, they=9),
        row(10, 16, us=10, they=40),
        row(10, 256, us=1, they=1),
        row(1_000_000, 1, us=5, they=10),
    ]
    chart = comparison("A to B", rows)
    assert [name for name, _ in chart.groups] == [
        "10 numbers, 16 requests in flight",
        "1,000,000 numbers, 1 request in flight",
    ]
    assert chart.message == "us uses 25% to 50% of the CPU time of they"
    assert "10 numbers, 16 requests in flight: us 10 µs, they 40 µs" in chart.alternative


def test_a_program_that_was_not_measured_is_said_to_be_so() -> None:
    text = svg(comparison("A to B", [row(10, 16, us=10, they=None)]))
    assert "not measured" in {each.text for each in elements(text, "text")}
    assert len(elements(text, "rect")) == 2


def test_the_chart_of_adapters_has_the_figures_of_the_table() -> None:
    chart = adapters(TABLE.read_text("utf-8"))
    assert len(chart.groups) == 5
    [[gateway, adapter], *_] = [[each.value for each in bars] for _, bars in chart.groups]
    assert f"/ {gateway:.0f} | " in TABLE.read_text("utf-8")
    assert f"/ {adapter:.0f} | " in TABLE.read_text("utf-8")


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.name)
def test_a_chart_is_current(path: Path) -> None:
    assert path.read_text("utf-8") == DRAWN[path], "`make charts` draws it anew"


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.name)
def test_texts_stay_within_the_picture(path: Path) -> None:
    """A letter is at most about 7.4 pixels wide in the mean at 13 pixels, in bold 8."""
    for each in elements(DRAWN[path], "text"):
        width = len(each.text or "") * (8 if each.get("font-weight") else 7.4)
        x = float(each.attrib["x"])
        assert x - (width if each.get("text-anchor") else 0) > 0, each.text
        assert x + (0 if each.get("text-anchor") else width) < 760, each.text


def test_the_page_begins_as_a_run_would_write_it() -> None:
    assert PAGE.startswith(INTRODUCTION)


def test_the_page_shows_each_chart_with_its_figures_as_text() -> None:
    for name, chart in comparisons(json.loads(RESULTS.read_text("utf-8"))["rows"]):
        assert f"![{chart.alternative}](images/{name})" in PAGE
    assert len(list(RESULTS.parent.glob("images/*"))) == len(DRAWN) - 1
