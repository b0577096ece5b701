"""`python -m tests.benchmarks.charts RESULTS.json CHART.svg`: a chart of the results that `--json` prints.

It has the CPU time of the gateway beside that of the adapter, for each row that has one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

WIDTH, LABELS, BAR, GAP, TOP = 960, 440, 14, 14, 56
LONGEST = WIDTH - LABELS - 130
"""The width of the adapter's bar, which is the same in every row: the rows differ by a factor of hundreds."""
GATEWAY, ADAPTER, INK = "#1f6feb", "#b6bcc5", "#1f2328"


def chart(results: Sequence[Mapping[str, Any]]) -> str:
    """The chart as SVG. Rows without an adapter are left out."""
    rows = [each for each in results if "adapter" in each]
    height = TOP + len(rows) * (2 * BAR + GAP)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
            f'font-size="12" role="img" aria-label="CPU time per request: gateway and hand-written adapters">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            _text(16, 22, "CPU time per request, in microseconds", "bold"),
            f'<rect x="16" y="32" width="12" height="12" fill="{GATEWAY}"/>',
            _text(34, 42, "gateway"),
            f'<rect x="110" y="32" width="12" height="12" fill="{ADAPTER}"/>',
            _text(128, 42, "adapter written by hand; its bars have one length, those of the gateway are in proportion"),
            *(line for at, row in enumerate(rows) for line in _row(TOP + at * (2 * BAR + GAP), row)),
            "</svg>\n",
        ]
    )


def _row(top: int, row: Mapping[str, Any]) -> Iterator[str]:
    gateway, adapter = row["gateway"]["cpu"], row["adapter"]["cpu"]
    yield _text(16, top + BAR + 4, row["row"].replace("->", "to"))
    for at, (cpu, colour) in enumerate(((gateway, GATEWAY), (adapter, ADAPTER))):
        width, y = max(LONGEST * cpu / adapter, 1), top + at * BAR
        yield f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>'
        yield _text(round(LABELS + width + 6), y + BAR - 4, f"{cpu:,.0f}")


def _text(x: int, y: int, text: str, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" fill="{INK}" font-weight="{weight}">{escape(text)}</text>'


if __name__ == "__main__":
    results, to = map(Path, sys.argv[1:])
    to.write_text(chart(json.loads(results.read_text())))
