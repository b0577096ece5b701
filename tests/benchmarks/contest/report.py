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
        figure = "CPU time" if self.target.figure == CPU else "median wall time"
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
        return "Envoy is missing, so this page does not show how Envoy's transcoder handles V2 requests."
    response = "with status 200, but without the numbers" if is_emptied(replies) else "as follows"
    return f"Envoy's transcoder uses its own JSON format. It responds to a correct V2 request {response}:"


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

This page compares the gateway with other programs that do the same work, in one run on one machine. To run the
benchmarks and update this page, `results.json` and the charts, run `make bench`. `make bench-quick` takes less than two
minutes, and does not write any files. A ratio is the CPU time of the first program in a table, divided by the CPU time
of the program in the row. If a ratio is below 1, the first program needs less CPU time.

## How it is measured

- The programs take turns in each round, so other work on the machine affects all programs equally. Figures are medians
  of all rounds, and ratios are medians of the ratios in each round. Compare the ratios, because the microseconds apply
  only to this machine. Tests with a target for the CPU time have more rounds and longer turns.
- **CPU us** is the CPU time per request (user and system) of the program's processes, including all threads and child
  processes. Each connection (for gRPC, each stream) sends its next request as soon as it has the response. **req/s**
  and **waiting us** (the median latency) come from the same turns. In turns of at least one second with at most 16
  requests in flight and 1,000 numbers, `wrk` generates the load if it is installed and supports the protocol. At the
  end of a turn, `wrk` does not wait for all responses, and the CPU time of these requests would distort the figures of
  shorter turns. In all other turns, a generator in a separate process creates the load and waits for all responses.
- **p50, p99 and p99.9** come from turns in which requests are scheduled at random times, at half the maximum rate of
  the slowest program in the table. Latencies count from the scheduled time, so a pause of a program adds to the latency
  of every request that waits during the pause. The table omits a percentile if a turn had too few requests for it.
- **peak MiB** is the maximum resident memory. **stall ms** is the longest time for which the gateway blocked its
  event loop, in the round in which this time was shortest.
- Payloads are random numbers with all digits. Before each test, the benchmark compares one response from each program
  with the numbers that it sent.
- **Mixed traffic** (`tests/benchmarks/contest/traffic.py`) is a cycle of 480 requests for 30 models. They have batches
  of 1 to 32 rows, one to three inputs, JSON with spaces (as written by Python), an id and a `traceparent`, and headers
  of eight types of clients. For comparison, the tables also show the gateway with a single one of these bodies, which
  is sent repeatedly.
- All proxies use the same backend server, which returns its input (`tests/benchmarks/contest/echo.py`). `direct` is
  this server, or the model server, without a proxy. Proxies run with one worker thread and without an access log. The
  gateway uses its default settings.
- Envoy's transcoder gets requests in its own JSON format, which differs from the V2 format. See [Envoy's transcoder and
  V2 requests](#envoys-transcoder-and-v2-requests).
- Charts show the CPU time with 16 requests in flight, or with one request for 1,000,000 numbers or more. Bars begin at
  0, and each group of bars has its own scale.
"""


def page(results: Results) -> str:
    """The Markdown page; without a run it tells how one is made."""
    if not results.found:
        return f"{INTRODUCTION}\n## Figures\n\nNo run has been recorded yet.\n"
    goals = [aim.cells() for aim in aims(results.found)]
    parts = [INTRODUCTION, "## Targets\n", _table(("test", "compared with", "target", "ratio", "result"), goals)]
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
    parts += ["## Envoy's transcoder and V2 requests\n", f"{_verdict(results.replies)}\n"]
    parts += [_table(("path", "request", "response"), shown)]
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
