"""The tables of docs/conformance.md are those of the findings that a test compares with a run."""

import json

from tests.interop.conformance import BEGIN, END, FILE, PAGE, rendered


def test_the_page_has_the_known_findings() -> None:
    table = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].strip("\n")
    assert table == rendered(json.loads(FILE.read_text("utf-8"))).strip("\n"), "run `make conformance`"
