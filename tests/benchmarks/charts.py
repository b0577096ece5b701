"""The charts of docs/performance.md and docs/benchmarks, drawn from the figures on these pages.

`python -m tests.benchmarks.charts`, which `make charts` runs, draws them; nothing is measured. A chart has groups of
bars. Each group has a scale of its own, linear and from 0, because CPU times of small and of large tensors differ by a
factor of thousands. Colours follow the reader's theme.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
RESULTS, IMAGES = DOCS / "benchmarks/results.json", DOCS / "benchmarks/images"
TABLE, CHART = DOCS / "performance.md", DOCS / "images/performance.svg"

WIDTH, NAMES, LONGEST, BAR, GAP, TOP = 760, 290, 370, 20, 34, 64
"""In pixels: the chart's width, that of the names, that of the longest bar of a group, and heights."""
STYLE = """
.ground { fill: #ffffff } text { fill: #1c2733; dominant-baseline: central } .more { fill: #56616d }
.own { fill: #0b5cad } .other { fill: #aab4bf } .base { fill: #d7dde3 } .axis { stroke: #8a97a6 }
@media (prefers-color-scheme: dark) {
  .ground { fill: #12181f } text { fill: #e6edf3 } .more { fill: #a5b1bd }
  .own { fill: #4a9ff5 } .other { fill: #6b7886 } .base { fill: #3d4753 } .axis { stroke: #8a97a6 }
}
"""
OWN, OTHER, BASE = "own", "other", "base"
"""The kinds of bars: the gateway's, another program's, and that of the server without a program before it."""


SERVER = "the server itself (direct)"
"""What pictures call `direct`."""


@dataclass(frozen=True)
class Bar:
    name: str
    value: float | None
    """CPU per request in microseconds; None where the program was not measured."""
    kind: str

    @property
    def shown(self) -> str:
        return "not measured" if self.value is None else f"{self.value:,.0f} µs"


@dataclass(frozen=True)
class Chart:
    title: str
    message: str
    """One sentence about the bars."""
    groups: Sequence[tuple[str, Sequence[Bar]]]

    @property
    def alternative(self) -> str:
        """All of it as text, for readers who do not see the picture."""
        groups = (f"{name}: {', '.join(f'{each.name} {each.shown}' for each in bars)}" for name, bars in self.groups)
        return f"{self.title}. {self.message}. {'. '.join(groups)}."


def svg(chart: Chart) -> str:
    """The chart as SVG, with its alternative text."""
    height = TOP + sum(GAP + BAR * len(bars) for _, bars in chart.groups) + 8
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" aria-labelledby="title desc" font-family="system-ui, sans-serif" font-size="13">',
            f'<title id="title">{escape(chart.title)}</title>',
            f'<desc id="desc">{escape(chart.alternative)}</desc>',
            f"<style>{STYLE}</style>",
            f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>',
            _text(16, 22, chart.title, 'font-size="15" font-weight="600"'),
            _text(16, 44, chart.message, 'class="more"'),
            *_groups(chart.groups),
            "</svg>\n",
        ]
    )


def _groups(groups: Sequence[tuple[str, Sequence[Bar]]]) -> Iterator[str]:
    top = TOP
    for name, bars in groups:
        yield _text(16, top + GAP - 14, name, 'font-weight="600"')
        top += GAP
        most = max((each.value for each in bars if each.value), default=1.0)
        for at, bar in enumerate(bars):
            yield from _bar(top + at * BAR, bar, most)
        yield f'<path class="axis" d="M{NAMES} {top - 2} V{top + BAR * len(bars)}"/>'
        top += BAR * len(bars)


def _bar(y: int, bar: Bar, most: float) -> Iterator[str]:
    """One bar: its length is to LONGEST as its value to that of the group's longest."""
    width = LONGEST * (bar.value or 0) / most
    yield _text(NAMES - 8, y + BAR // 2 - 1, bar.name, f'text-anchor="end"{_strong(bar)}')
    if bar.value is not None:
        yield f'<rect class="{bar.kind}" x="{NAMES}" y="{y}" width="{width:.1f}" height="{BAR - 4}"/>'
    yield _text(round(NAMES + width + 6), y + BAR // 2 - 1, bar.shown, f'class="more"{_strong(bar)}')


def _strong(bar: Bar) -> str:
    return ' font-weight="600"' if bar.kind == OWN else ""


def _text(x: int, y: int, text: str, more: str) -> str:
    return f'<text x="{x}" y="{y}" {more}>{escape(text)}</text>'


# --- beside other programs ---

Row = Mapping[str, Any]
"""A row of `results.json`."""


def comparisons(rows: Sequence[Row]) -> Iterator[tuple[str, Chart]]:
    """The file name and the chart of each pair of protocols."""
    for pair, found in groupby(rows, lambda row: str(row["pair"])):
        yield file_name(pair), comparison(pair, list(found))


def file_name(pair: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in pair.lower()).replace("--", "-") + ".svg"


def comparison(pair: str, rows: Sequence[Row]) -> Chart:
    """One row for each size: that with 16 requests in flight, or with one where the tensors are largest."""
    shown = [min(of_size, key=_distance) for _, of_size in groupby(rows, lambda row: row["size"])]
    groups = [(_load(row), [_side(name, each, row) for name, each in row["sides"].items()]) for row in shown]
    return Chart(f"CPU time per request, {pair}", _message(shown), groups)


def _distance(row: Row) -> int:
    return abs(int(row["in_flight"]) - (1 if row["size"] >= 1_000_000 else 16))


def _load(row: Row) -> str:
    size = f"{row['size']:,} numbers, " if row["size"] else ""
    requests = "request" if row["in_flight"] == 1 else "requests"
    return f"{size}{row['in_flight']} {requests} in flight"


def _side(name: str, figures: Mapping[str, Any], row: Row) -> Bar:
    kind = OWN if name == next(iter(row["sides"])) else BASE if name == "direct" else OTHER
    return Bar(SERVER if kind == BASE else name, None if figures["missing"] else figures["cpu"], kind)


def _message(rows: Sequence[Row]) -> str:
    """The first program's CPU time, as a percentage or a multiple of the CPU time of each other program."""
    own, *others = rows[0]["sides"]
    compared = [name for name in others if name != "direct" and not name.startswith(own)] or others
    ratios = [
        f"{_range([row['sides'][name]['ratio'] for row in rows])} the {'' if at else 'CPU '}time of "
        f"{SERVER if name == 'direct' else name.split(' as ')[0]}"
        for at, name in enumerate(compared)
    ]
    return f"{'The gateway' if own.startswith('gateway') else own} uses {' and '.join(ratios)}"


def _range(ratios: Sequence[float | None]) -> str:
    """The ratios, as the words before "the CPU time of": "3% to 8% of", or "0.89 to 1.62 times"."""
    known = [each for each in ratios if each is not None]
    if not known:
        return "an unknown part of"
    is_part = max(known) < 1
    least, most = (f"{each:.0%}" if is_part else f"{each:.2f}" for each in (min(known), max(known)))
    return f"{least if least == most else f'{least} to {most}'} {'of' if is_part else 'times'}"


# --- beside adapters ---

ADAPTERS = {
    "UM-Bridge to V2 REST, 1 in flight": "UM-Bridge to V2 REST, 10 doubles, 16 in flight",
    "UM-Bridge to V2 REST, a new": "UM-Bridge to V2 REST, 10 doubles, 16 in flight, a new connection for each call",
    "UM-Bridge to V2 REST, 1,000": "UM-Bridge to V2 REST, 100,000 doubles, 1 in flight",
    "V2 REST to UM-Bridge": "V2 REST to UM-Bridge, 10 doubles, 16 in flight",
    "UM-Bridge to V2 gRPC": "UM-Bridge to V2 gRPC, 10 doubles, 16 in flight",
}
"""By the beginning of a row of the table, what the second of its figures is of."""


def adapters(page: str) -> Chart:
    """The second figure of each row of docs/performance.md's first table that has an adapter."""
    lines = re.findall(
        r"^\| (.+?) \| [\d,]+ / ([\d,]+) \| [\d,]+ / ([\d,]+) \| [\d.]+ / ([\d.]+) \|$", page, re.MULTILINE
    )
    groups = []
    for name, gateway, adapter, _ in lines:
        [title] = [title for start, title in ADAPTERS.items() if name.startswith(start)]
        bars = [Bar("gateway", _number(gateway), OWN), Bar("handwritten adapter", _number(adapter), OTHER)]
        groups.append((title, bars))
    ratios = _range([float(ratio) for *_, ratio in lines])
    message = f"The gateway uses {ratios} the CPU time of a handwritten adapter"
    return Chart("CPU time per request, gateway and handwritten adapters", message, groups)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def drawn() -> Iterator[tuple[Path, str]]:
    """Each file with what it should be."""
    yield CHART, svg(adapters(TABLE.read_text("utf-8")))
    for name, chart in comparisons(json.loads(RESULTS.read_text("utf-8"))["rows"]):
        yield IMAGES / name, svg(chart)


if __name__ == "__main__":
    for path, text in drawn():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
