"""`gateway conformance` at real servers finds what it found before: a change of theirs, or of a check, is seen here."""

import json

import pytest

from tests.interop.conformance import FILE, SERVERS, TESTED, key

KNOWN = json.loads(FILE.read_text("utf-8"))


@pytest.mark.parametrize("server", SERVERS)
def test_the_findings_are_the_known_ones(server: str) -> None:
    """`make conformance` writes the file anew."""
    tested = [each for each in TESTED if each.server == server]
    with SERVERS[server]() as addresses:
        found = {key(each): each.found(addresses[each.protocol]) for each in tested}
    verdicts = {name: {check: each[0] for check, each in found[name]["findings"].items()} for name in found}
    known = {name: {check: each[0] for check, each in KNOWN[name]["findings"].items()} for name in found}
    assert verdicts == known
    assert {name: each["counts"] for name, each in found.items()} == {name: KNOWN[name]["counts"] for name in found}
