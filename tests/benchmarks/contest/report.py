"""The results as text, as JSON, and as the page `docs/benchmarks/README.md` with its charts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.benchmarks.charts import Chart, comparisons, file_name, svg
from tests.benchmarks.contest.contests import CPU, Contest, Target
from tests.benchmarks.contest.dialect import Reply, is_emptied
from tests.benchmarks.contest.measure import LATENCIES, Figures

Found = Sequence[tuple[Contest, Mapping[str, Figures]]]

COLUMNS = ("CPU us", "ratio", "req/s", "waiting us", *(f"{each} us" for each in LATENCIES), "peak MiB", "stall ms")
INK = "-"
"""Of a figure that is not there."""


@dataclass(frozen=True)
class Results:
    about: Mapping[str, str]
    found: Found
    replies: Sequence[Reply]


def block(contest: Contest, figures: Mapping[str, Figures]) -> str:
    """A contest as it is printed."""
    lines = [f"{contest.name}\n{'':36}" + "".join(f"{head:>11}" for head in COLUMNS)]
    for name, each in figures.items():
        shown = f"  {each.missing}" if each.missing else "".join(f"{cell:>11}" for cell in _cells(each))
        lines.append(f"{name:36}{shown}")
    return "\n".join(lines)


def _cells(figures: Figures) -> list[str]:
    return [
        f"{figures.cpu:,.1f}",
        INK if figures.ratio is None else f"{figures.ratio:.2f}",
        f"{figures.per_second:,.0f}",
        f"{figures.waiting:,.0f}",
        *(f"{figures.latencies[name]:,.0f}" if name in figures.latencies else INK for name in LATENCIES),
        f"{figures.peak / 2**20:,.0f}",
        INK if figures.stall is None else f"{1e3 * figures.stall:,.1f}",
    ]


@dataclass(frozen=True)
class Aim:
    """A target and what was found."""

    contest: Contest
    target: Target
    ratio: float | None
    """None if the side that it is against, or the gateway, has no figures."""

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return "not measured"
        percent = 100 * (self.ratio / self.target.at_most - 1)
        return "met" if percent <= 0 else f"missed by {percent:.{0 if percent >= 10 else 1}f} %"

    def cells(self) -> list[str]:
        figure = "CPU" if self.target.figure == CPU else "median wall time"
        shown = INK if self.ratio is None else f"{self.ratio:.2f}"
        return [
            self.contest.name,
            f"{self.target.against}, {figure}",
            f"{self.target.at_most:.2f}",
            shown,
            self.verdict,
        ]


def aims(found: Found) -> Iterator[Aim]:
    for contest, figures in found:
        for target in contest.targets:
            theirs = figures[target.against]
            ratio = theirs.ratio if target.figure == CPU else theirs.waiting_ratio
            yield Aim(contest, target, None if theirs.missing else ratio)


def targets(found: Found) -> str:
    """Every target and whether it is met, as it is printed."""
    lines = [f"{'target':60}{'against':54}{'at most':>9}{'ratio':>9}  verdict"]
    for aim in aims(found):
        name, against, at_most, ratio, verdict = aim.cells()
        lines.append(f"{name:60}{against:54}{at_most:>9}{ratio:>9}  {verdict}")
    return "\n".join(lines)


def about_dialect(replies: Sequence[Reply]) -> str:
    """As it is printed."""
    lines = (f"  POST {each.path}\n    {each.request}\n    {each.status} {each.reply}" for each in replies)
    return "\n".join([_verdict(replies), *lines])


def _verdict(replies: Sequence[Reply]) -> str:
    if not replies:
        return "Envoy is missing, so that its transcoder's dialect is not shown."
    made = "it answers with success and without the numbers" if is_emptied(replies) else "it answers otherwise"
    return f"Envoy's transcoder speaks a JSON of its own. To a right V2 request {made}:"


def document(results: Results) -> str:
    """All of it as JSON."""
    rows = [
        {
            "row": contest.name,
            "pair": contest.pair,
            "size": contest.size,
            "in_flight": contest.in_flight,
            "sides": {name: asdict(each) for name, each in figures.items()},
        }
        for contest, figures in results.found
    ]
    goals = [
        {
            "row": aim.contest.name,
            "against": aim.target.against,
            "figure": aim.target.figure,
            "at_most": aim.target.at_most,
            "ratio": aim.ratio,
            "verdict": aim.verdict,
        }
        for aim in aims(results.found)
    ]
    whole = {
        "machine": dict(results.about),
        "targets": goals,
        "rows": rows,
        "transcoder": [asdict(each) for each in results.replies],
    }
    return json.dumps(whole, indent=1) + "\n"


INTRODUCTION = """\
# Benchmarks

The gateway beside other programs that do the same work, as one run measured them. `make bench` writes this page,
`results.json` and the charts; `make bench-quick` takes less than two minutes and writes nothing. A ratio is the CPU of
the first program of a table by that of the program in its line: below 1 the first takes less.

## How it is measured

- The programs take turns, round after round, so that what else the machine does meets all alike. Figures are medians of
  the rounds, ratios are medians of the rounds' ratios. Trust the ratios: the microseconds are this machine's.
  For the CPU, tables with a target have more rounds and longer turns.
- **CPU us** is the CPU per request of the program's processes with all threads and children, user and system, while
  each connection (of gRPC each stream) sends the next request as soon as it has the reply. **req/s** and
  **waiting us**, the median latency, are of the same turns. In turns of at least a second
  the load comes from `wrk` where it speaks the protocol and is installed, up to 16 requests in flight and 1,000
  numbers: at its end it leaves requests unanswered, whose CPU would count for nothing. All else comes from a generator
  in a process of its own, which waits for all replies.
- **p50, p99 and p99.9** are of turns in which requests are due at random times, at half the rate that the slowest
  program of the table can answer. They count from the time when a request was due, so that a program that stands still
  is charged for all that wait. A percentile is left out where turns had too few requests to know it.
- **peak MiB** is the most resident memory. **stall ms** is the longest that the gateway's event loop was kept from its
  turn, the shortest of the rounds.
- Payloads are random and numbers have all their digits. Before each table one reply of each program is compared with
  the numbers that were sent.
- **Traffic as it is** (`tests/benchmarks/contest/traffic.py`): 480 requests in turns, of 30 models, batches of 1 to 32,
  one to three inputs, JSON with blanks as Python writes it, an id and a traceparent in each request, heads of eight
  kinds of clients. Beside it the same gateway with one of these bodies again and again.
- Behind all proxies is one server that gives back its input (`tests/benchmarks/contest/echo.py`). `direct` is this
  server, or the model server, without a proxy. Proxies have one worker thread and no access log. The gateway has its
  default configuration.
- Envoy's transcoder gets requests in its own JSON, which is not V2's; what it makes of V2's is shown at the end.
- Charts show the CPU at 16 requests in flight (one of 1,000,000 numbers and more). Bars begin at 0, and each group has
  a scale of its own.
"""


def page(results: Results) -> str:
    """The Markdown page; without a run it tells how one is made."""
    if not results.found:
        return f"{INTRODUCTION}\n## Figures\n\nNo run is recorded here yet.\n"
    goals = [aim.cells() for aim in aims(results.found)]
    parts = [INTRODUCTION, "## Targets\n", _table(("work", "against", "at most", "ratio", ""), goals)]
    parts += ["\n## Machine and versions\n", _table(("", ""), [[*pair] for pair in results.about.items()])]
    parts += ["\n## Figures\n"]
    charts = dict(charts_of(results))
    pair = ""
    for contest, figures in results.found:
        if contest.pair != pair:
            pair = contest.pair
            name = file_name(pair)
            parts += [f"### {pair}\n", f"![{charts[name].alternative}](images/{name})\n"]
        shown = [
            [name, f"`{each.missing}`", *[""] * (len(COLUMNS) - 1)] if each.missing else [name, *_cells(each)]
            for name, each in figures.items()
        ]
        parts += [f"{contest.name}:\n", _table(("", *COLUMNS), shown), ""]
    shown = [[f"`{each.path}`", f"`{each.request}`", f"`{each.status} {each.reply}`"] for each in results.replies]
    parts += ["## The transcoder's dialect\n", f"{_verdict(results.replies)}\n"]
    parts += [_table(("path", "request", "reply"), shown)]
    return "\n".join(parts) + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def charts_of(results: Results) -> Iterator[tuple[str, Chart]]:
    """The file name and the chart of each pair of protocols."""
    return comparisons(json.loads(document(results))["rows"])


def write(folder: Path, results: Results) -> None:
    """The files of `docs/benchmarks`."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(document(results))
    (folder / "README.md").write_text(page(results))
    for name, chart in charts_of(results):
        (folder / "images" / name).write_text(svg(chart))
