"""Measures the cost of the bodies that create the most objects per byte, for every reader. docs/bounds.md contains the
results."""

from __future__ import annotations

from tests.attacks.attacked import MIB
from tests.attacks.readers import readers as known
from tests.attacks.readers.document import rows_of_the_page, shown
from tests.attacks.readers.tracing import traced
from tests.every_case import failures

FACTOR, ALLOWANCE = 240, 64 * 2**10
"""Bytes of memory for each byte of a small body, and for any: blocks, and what `limits.json_values` bounds, are larger
than a small body. The most are those of names in the `meta` of Seldon's replies, 222."""
MOST, FOR_A_BYTE = 40 * MIB, 6
"""Bytes of memory beside a body of any size, and for each byte of it."""


def test_every_reader_has_bodies() -> None:
    assert not known.forgotten_paths(), "tests/attacks/readers makes no bodies for these paths"
    assert not known.kinds_of_bodies() - known.kinds_with_bodies(), "tests/attacks/readers has no form with these"


def test_no_small_body_of_a_call_takes_more_memory_than_its_bytes_are_worth() -> None:
    with failures() as failed:
        for reader in shown():
            for what in reader.bodies:
                with failed.of(f"{reader.name}: {what}"):
                    found = traced(reader, what)
                    assert found is None or found.peak < FACTOR * found.size + ALLOWANCE, found


def test_the_page_keeps_to_the_bounds() -> None:
    rows = rows_of_the_page()
    known = {each.name for each in shown()}
    assert rows.keys() == known, "run: python -m tests.attacks.readers.document --missing"
    for name, memory in rows.items():
        for size, taken in zip((1, 20), memory, strict=True):
            assert taken < MOST / MIB + FOR_A_BYTE * size, name
