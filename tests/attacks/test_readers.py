"""What the bodies cost that make the most objects for a byte, for every reader: docs/bounds.md has the table."""

from __future__ import annotations

from itertools import product

import pytest

from gateway.core.protocol import Limits
from tests.attacks.attacked import MIB
from tests.attacks.readers import readers as known
from tests.attacks.readers.document import rows_of_the_page, shown
from tests.attacks.readers.measuring import cost
from tests.attacks.readers.readers import Reader, readers
from tests.attacks.readers.tracing import traced, worst
from tests.attacks.stalls import STALL, Figure
from tests.every_case import failures

FACTOR, ALLOWANCE = 160, 64 * 2**10
"""Bytes of memory for each byte of a small body, and for any: blocks, and what `limits.json_values` bounds, are larger
than a small body."""
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
    assert rows
    assert rows.keys() <= {each.name for each in shown()}
    for name, memory in rows.items():
        assert memory < (MOST + FOR_A_BYTE * 20 * MIB) / MIB, name


@pytest.mark.attack
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [each.name for each in shown()])
def test_large_bodies_keep_to_the_bounds(name: str, figure: Figure) -> None:
    reader: Reader = readers()[name]
    for what, size in product(worst(reader), (MIB, 20 * MIB)):
        body = reader.bodies[what](size)
        for unread in (False, True) if reader.protocol.relay else (False,):
            found = cost(reader, body, Limits(), unread=unread)
            figure(
                f"{size // MIB} MiB of {what}{', unread' * unread}: {found.memory / MIB:.0f} MiB, stall "
                f"{1e3 * found.stall:.0f} ms, CPU {found.seconds:.2f} s; {found.said[:60]}"
            )
            assert found.memory < MOST + FOR_A_BYTE * len(body), what
            assert found.stall < STALL, what
