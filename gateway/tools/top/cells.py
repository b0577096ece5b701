"""Formats the rows as text, for tables and for the screen, and as JSON."""

from typing import Any

from gateway.tools.top.rows import KINDS, GatewayOverview, OverviewRow
from gateway.tools.top.window import WindowFigures

NONE = "-"
HEAD = ("rate", "failed", "rejected", "median", "99 %", "in flight", "waiting", "state")
"""The column heads for the result of `cells`."""
SORTED = dict(
    zip(("rate", "failed", "rejected", "median", "slowest", "in-flight", "waiting", "state"), HEAD, strict=True)
)
"""The head of the column that each key in `rows.SORTS` sorts by; `name` sorts by the first column."""


def cells(row: OverviewRow) -> tuple[str, ...]:
    """Return the cells of a row as text, one for each column in HEAD."""
    figures = row.figures
    return (
        rate(figures.rate), share(figures.failed), share(figures.rejected_share), seconds(figures.quantile(0.5)),
        seconds(figures.quantile(0.99)), count(row.in_flight), count(row.waiting), row.state or NONE,
    )  # fmt: skip


def sums(seen: GatewayOverview) -> dict[str, str]:
    """Return the figures of the whole gateway, by name."""
    return {
        "rate": rate(seen.all.rate),
        "errors": rate(seen.all.error_rate),
        "rejected": rate(seen.all.rejected_rate),
        "median": seconds(seen.all.quantile(0.5)),
        "99 %": seconds(seen.all.quantile(0.99)),
        "in flight": count(seen.in_flight),
        "waiting": count(seen.waiting),
    }


def condition(seen: GatewayOverview) -> str:
    """Return whether the gateway accepts requests."""
    if not seen.ready:
        return "not ready"
    return "overloaded" if seen.shedding else "ready"


def as_json(seen: GatewayOverview) -> dict[str, Any]:
    """Return the overview as JSON. Rates are per second, and times are in seconds. Unknown values are null."""
    whole = {
        "version": seen.version,
        "state": condition(seen),
        "seconds": seen.seconds,
        **_figures(seen.all),
        "in_flight": seen.in_flight,
        "waiting": seen.waiting,
    }
    return whole | {f"{kind}s": [_row(each) for each in seen.of(kind)] for kind in KINDS}


def _row(row: OverviewRow) -> dict[str, Any]:
    calls = {"in_flight": row.in_flight, "waiting": row.waiting}
    return {"name": row.name, **row.facts, "state": row.state or None, **_figures(row.figures), **calls}


def _figures(figures: WindowFigures) -> dict[str, Any]:
    return {
        "requests_per_second": figures.rate,
        "errors_per_second": figures.error_rate,
        "rejected_per_second": figures.rejected_rate,
        "median": figures.quantile(0.5),
        "percentile_99": figures.quantile(0.99),
        "requests_since_start": figures.total_requests,
        "errors_since_start": figures.total_errors,
        "rejected_since_start": figures.total_rejected,
    }


def rate(per_second: float | None) -> str:
    """Format a rate, such as `12.3/s`."""
    if per_second is None:
        return NONE
    if per_second == 0:
        return "0/s"
    if per_second < 0.1:
        return "<0.1/s"
    if per_second < 1000:
        return f"{per_second:.{1 if per_second < 9.95 else 0}f}/s"
    return f"{per_second / 1000:.1f}k/s"


def share(part: float | None) -> str:
    """Format a fraction between 0 and 1 as a percentage, such as `2.5%`."""
    if part is None:
        return NONE
    percent = 100 * part
    if 0 < percent < 0.1:
        return "<0.1%"
    return f"{percent:.{1 if 0 < percent < 9.95 else 0}f}%"


def seconds(value: float | None) -> str:
    """Format a time, such as `1.2 ms`."""
    if value is None:
        return NONE
    if value < 1:
        return f"{1000 * value:.{2 if value < 0.001 else 1 if value < 0.1 else 0}f} ms"
    return f"{value:.{2 if value < 10 else 0}f} s"


def count(value: int | None) -> str:
    """Format a number, such as `12,345`."""
    return NONE if value is None else f"{value:,}"
