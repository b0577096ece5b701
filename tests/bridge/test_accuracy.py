"""The errors that docs/derivatives.md tells."""

import re
from pathlib import Path

from tests.bridge.accuracy import table

PAGE = Path(__file__).resolve().parents[2] / "docs/derivatives.md"
ROW = re.compile(r"\| `(\w+)` \| (\d) \| (\S+) \| (\S+) \| (\S+) \|$", re.MULTILINE)


async def test_the_table_of_errors_is_true() -> None:
    """Rounding differs among processors, so an error may be ten times another."""
    told = [
        (method, int(order), [float(each) for each in errors])
        for method, order, *errors in ROW.findall(PAGE.read_text())
        if "e-" in errors[2]
    ]
    found = await table()
    assert [row[:2] for row in told] == [row[:2] for row in found]
    for (*_, written), (method, order, measured) in zip(told, found, strict=True):
        for claim, error in zip(written, measured, strict=True):
            assert claim / 10 < error < 10 * claim, (method, order)
