"""The report of a run, as text and as JSON."""

from collections.abc import Iterator, Sequence
from math import log
from typing import Any

from gateway.core.frozen import frozen
from gateway.tools.bench.load import Plan
from gateway.tools.bench.measured import RELATIVE_ERROR, LatencyHistogram, Measured

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}
ROWS = 16
"""Number of rows of a printed histogram."""
WIDTH = 40
"""Width of the longest bar of a histogram, in characters."""
LATE = 0.1
"""The fraction of the latencies that the generator can cause before the report contains a warning."""
BUSY = 0.9
"""The CPU utilization above which the generator is the likely limit."""


@frozen
class Result:
    """A run against one server."""

    address: str
    model: str
    plan: Plan
    measured: Measured


def warnings(result: Result) -> Iterator[str]:
    """Yield the reasons, if any, why the figures might be misleading."""
    plan, measured = result.plan, result.measured
    latency, lag = measured.latency, measured.lag
    if plan.rate and latency.count and lag.mean > LATE * latency.mean:
        yield (
            f"the generator is the bottleneck: it was {_ms(lag.mean)} ms late on average, which is in the latencies "
            f"(mean {_ms(latency.mean)} ms); lower --rate, or raise --processes if there are free cores"
        )
    if measured.seconds and measured.cpu > BUSY * measured.seconds * measured.processes:
        used = 100 * measured.cpu / measured.seconds / measured.processes
        yield (
            f"the generator is the bottleneck: it used {used:.0f}% of {_number(measured.processes, 'core')}; "
            "raise --processes if there are free cores"
        )
    if measured.waited:
        yield (
            f"{_number(measured.waited, 'request')} had to wait because {plan.in_flight} requests were in flight; "
            "the wait is part of the latencies, but not of the latencies from sending"
        )
    if measured.unsent:
        yield (
            f"{_number(measured.unsent, 'request')} waited until the end, and are not in the figures: the server "
            f"does not keep up with {plan.rate:g}/s, so the latencies grow with the length of the run"
        )
    if measured.cut:
        yield f"interrupted with {_number(measured.cut, 'request')} in flight, which are not in the figures"


# --- text ---


def text(results: Sequence[Result], bar: str = "█") -> str:
    """Return tables for one or two results, with the ratios of the second to the first."""
    blocks = [_table(each, bar) for each in results]
    if len(results) == 2:
        blocks.append(_comparison(*results))
    return "\n\n".join(blocks)


def _table(result: Result, bar: str) -> str:
    plan, measured = result.plan, result.measured
    kind = f"open loop, {plan.arrivals} arrivals, at most" if plan.rate else "closed loop,"
    wanted = f" ({plan.rate:.1f}/s wanted)" if plan.rate else ""
    lines = [
        f"{result.model} at {result.address}: {kind} {plan.in_flight} in flight",
        "",
        f"requests  {measured.requests} in {measured.seconds:.1f} s",
        f"errors    {measured.failures}",
        *(f"          {number} {status}: {measured.examples[status]}" for status, number in _sorted(measured)),
        f"rate      {measured.rate:.1f}/s{wanted}",
        f"bytes     {measured.sent_bytes} sent, {measured.received_bytes} received",
        "",
        *_percentiles(result),
    ]
    if measured.latency.count:
        lines += ["", *_drawn(measured.latency, bar)]
    lines += [f"warning: {each}" for each in warnings(result)]
    return "\n".join(lines)


def _percentiles(result: Result) -> Iterator[str]:
    measured = result.measured
    rows = {"latency (ms)": measured.latency}
    if result.plan.rate:
        rows |= {"from sending": measured.service}
    if measured.failures:
        rows |= {"of errors": measured.failed}
    if result.plan.rate:
        rows |= {"generator's lag": measured.lag}
    yield f"{'':15}" + "".join(f"{name:>10}" for name in ("mean", *PERCENTILES, "max"))
    for name, histogram in rows.items():
        yield f"{name:15}" + "".join(f"{_ms(each):>10}" for each in _figures(histogram).values())


def _figures(histogram: LatencyHistogram) -> dict[str, float]:
    """Return mean, percentiles and maximum, in seconds."""
    percentiles = {name: histogram.percentile(each) for name, each in PERCENTILES.items()}
    figures = {"mean": histogram.mean, **percentiles, "max": histogram.most}
    return {name: round(seconds, 9) for name, seconds in figures.items()}


def _drawn(histogram: LatencyHistogram, bar: str) -> Iterator[str]:
    """Yield the rows of a histogram, with bars for the counts. Between the minimum and the maximum, successive limits
    have the same ratio."""
    low, high = max(histogram.least, 1e-6), max(histogram.most, 1e-6)
    rows = ROWS if high > low * (1 + ROWS * RELATIVE_ERROR) else 1
    bounds = [low * (high / low) ** (row / rows) for row in range(rows)]
    counts = [histogram.between(*each) for each in zip(bounds, [*bounds[1:], high * 1.01], strict=True)]
    counts[0] += histogram.between(0.0, low)
    most = max(counts)
    for bound, number in zip(bounds, counts, strict=True):
        length = max(round(WIDTH * number / most), number > 0)
        yield f"{'from ' + _ms(bound):>15} ms {bar * length:{WIDTH}} {number}".rstrip()


def _comparison(first: Result, second: Result) -> str:
    lines = [f"{'':15}{'first':>12}{'second':>12}{'ratio':>10}"]
    for name, (one, other) in _compared(first, second).items():
        ratio = f"{other / one:.3f}" if one else "-"
        lines.append(f"{name:15}{one:>12.5g}{other:>12.5g}{ratio:>10}")
    return "\n".join(lines)


def _compared(first: Result, second: Result) -> dict[str, tuple[float, float]]:
    one, other = first.measured, second.measured
    figures = {"rate (1/s)": (one.rate, other.rate), "errors": (float(one.failures), float(other.failures))}
    ours, theirs = _figures(one.latency), _figures(other.latency)
    return figures | {f"{name} (ms)": (ours[name] * 1e3, theirs[name] * 1e3) for name in ours}


def _sorted(measured: Measured) -> list[tuple[str, int]]:
    return sorted(measured.errors.items(), key=lambda each: -each[1])


def _ms(seconds: float) -> str:
    """Format seconds as milliseconds with three or four significant digits."""
    ms = seconds * 1e3
    decimals = 0 if ms >= 1000 else max(0, min(3, 3 - int(log(ms, 10)))) if ms >= 1 else 3
    return f"{ms:.{decimals}f}"


def _number(number: int, of: str) -> str:
    return f"{number} {of}{'s' if number != 1 else ''}"


# --- JSON ---


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """Return one result, or two results as `targets` with the `ratios` of the second to the first. Durations are in
    seconds."""
    if len(results) == 1:
        return _document(results[0])
    ratios = {
        name.partition(" ")[0]: other / one if one else None
        for name, (one, other) in _compared(*results).items()
    }  # fmt: skip
    return {"targets": [_document(each) for each in results], "ratios": ratios}


def _document(result: Result) -> dict[str, Any]:
    plan, measured = result.plan, result.measured
    return {
        "address": result.address,
        "model": result.model,
        "loop": "open" if plan.rate else "closed",
        "arrivals": plan.arrivals if plan.rate else None,
        "in_flight": plan.in_flight,
        "processes": measured.processes,
        "seconds": measured.seconds,
        "rate": {"wanted": plan.rate or None, "achieved": measured.rate},
        "requests": measured.requests,
        "errors": {
            status: {"requests": number, "example": measured.examples[status]}
            for status, number in _sorted(measured)
        },
        "waited": measured.waited,
        "unsent": measured.unsent,
        "interrupted": measured.cut,
        "bytes": {"sent": measured.sent_bytes, "received": measured.received_bytes},
        "latency": _histogram(measured.latency),
        "service": _histogram(measured.service),
        "failed": _histogram(measured.failed),
        "generator": {"lag": _histogram(measured.lag), "cpu_seconds": measured.cpu},
        "warnings": list(warnings(result)),
    }  # fmt: skip


def _histogram(histogram: LatencyHistogram) -> dict[str, Any]:
    """Return the histogram's figures, and the minimum duration, maximum duration and count of each bucket."""
    return {
        "count": histogram.count,
        **_figures(histogram),
        "relative_error": RELATIVE_ERROR,
        "buckets": [list(each) for each in histogram.buckets()],
    }
