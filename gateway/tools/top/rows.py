"""The overview as rows of listeners, routes, backends and endpoints, with traffic figures, calls and state. Formats the
rows as text, for tables and for the screen, and as JSON."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gateway.core.frozen import frozen
from gateway.tools.top.window import TrafficWindow, Way, WindowFigures

KINDS = ("listener", "route", "backend", "endpoint")
OK, DEGRADED, DOWN, UNKNOWN = "ok", "degraded", "down", ""
_WORST_FIRST = (DOWN, DEGRADED, UNKNOWN, OK)


@frozen
class OverviewRow:
    """A row of the overview. `about` contains details in addition to the name; `facts` contains the same details as
    JSON. `in_flight` and `waiting` are None if the gateway does not count them. `level` is OK, DEGRADED, DOWN or
    UNKNOWN. `state` describes the health in one or two words, and is empty for rows without health."""

    kind: str
    name: str
    about: str
    facts: Mapping[str, Any]
    figures: WindowFigures
    in_flight: int | None
    waiting: int | None
    level: str
    state: str


@frozen
class GatewayOverview:
    """The current activity of a gateway. `seconds` is the length of the period that rates and latencies cover; 0 before
    the second reading. `shedding` is the same as in `/api/traffic`."""

    version: str
    ready: bool
    shedding: int
    seconds: float
    all: WindowFigures
    in_flight: int
    waiting: int
    rows: tuple[OverviewRow, ...]

    def of(self, kind: str) -> list[OverviewRow]:
        """Return the rows of this kind."""
        return [each for each in self.rows if each.kind == kind]


def overview(topology: Mapping[str, Any], traffic: Mapping[str, Any], window: TrafficWindow) -> GatewayOverview:
    """Return the overview for responses from `/api/topology` and `/api/traffic`. The last reading in `window` is
    `traffic`."""
    return GatewayOverview(
        version=topology["version"],
        ready=traffic["ready"],
        shedding=traffic["shedding"],
        seconds=window.seconds,
        # calls without a listener are graph steps, which count only at their backends
        all=_by(window, topology, lambda way: "all" if way[0] else None)("all"),
        in_flight=sum(each["in_flight"] for each in traffic["listeners"].values()),
        waiting=sum(each["waiting"] for each in traffic["backends"].values()),
        rows=(
            *_listeners(topology, traffic, _by(window, topology, lambda way: way[0])),
            *_routes(topology, _by(window, topology, lambda way: way[1] if way[0] else None)),
            *_backends(topology, traffic, _by(window, topology, lambda way: way[2])),
            *_endpoints(traffic, _by(window, topology, lambda way: way[2:])),
        ),
    )


def _by(
    window: TrafficWindow, topology: Mapping[str, Any], key: Callable[[Way], Any]
) -> Callable[[Any], WindowFigures]:
    bounds = topology["latency_bounds"]
    found = window.figures(key, bounds)
    nothing = WindowFigures(window.seconds, bounds)
    return lambda name: found.get(name, nothing)


def _listeners(
    topology: Mapping[str, Any], traffic: Mapping[str, Any], of: Callable[[Any], WindowFigures]
) -> Iterator[OverviewRow]:
    for each in topology["listeners"]:
        figures, now = of(each["name"]), traffic["listeners"].get(each["name"])
        facts = {key: each[key] for key in ("address", "protocols")}
        about = f"{each['address']} {', '.join(each['protocols'])}"
        in_flight = None if now is None else now["in_flight"]
        yield OverviewRow(
            "listener", each["name"], about, facts, figures, in_flight, waiting=None, level=_level(figures), state=""
        )


def _routes(topology: Mapping[str, Any], of: Callable[[Any], WindowFigures]) -> Iterator[OverviewRow]:
    routes = [(each["place"], each["name"], {"graph": each["name"]}) for each in topology["graphs"]]
    routes += [(each["name"], _conditions(each["match"]), {"match": each["match"]}) for each in topology["routes"]]
    for name, text, facts in routes:
        figures, about = of(name), "" if text == name else text
        yield OverviewRow(
            "route", name, about, facts, figures, in_flight=None, waiting=None, level=_level(figures), state=""
        )


def _conditions(match: Mapping[str, Any]) -> str:
    """Return the conditions of a route on one line, starting with the model."""
    model = [str(match["model"])] if "model" in match else []
    others = [f"{name} {_value(value)}" for name, value in match.items() if name != "model"]
    return ", ".join([*model, *others]) or "every request"


def _value(value: Any) -> str:
    return " ".join(f"{name}={each}" for name, each in value.items()) if isinstance(value, dict) else str(value)


def _backends(
    topology: Mapping[str, Any], traffic: Mapping[str, Any], of: Callable[[Any], WindowFigures]
) -> Iterator[OverviewRow]:
    for each in topology["backends"]:
        now = traffic["backends"].get(each["name"], {"waiting": None, "endpoints": []})
        states = [endpoint["state"] for endpoint in now["endpoints"]]
        serving = sum(endpoint["state"] != DOWN and "drain" not in endpoint for endpoint in now["endpoints"])
        facts = {"protocol": each["protocol"], "serving": serving, "of": len(states)}
        yield OverviewRow(
            "backend",
            each["name"],
            each["protocol"],
            facts,
            of(each["name"]),
            in_flight=sum(endpoint["in_flight"] for endpoint in now["endpoints"]),
            waiting=now["waiting"],
            level=_level_of_backend(states, now.get("starts_servers", False)),
            state=f"{serving}/{len(states)} up",
        )


def _endpoints(traffic: Mapping[str, Any], of: Callable[[Any], WindowFigures]) -> Iterator[OverviewRow]:
    for backend, now in traffic["backends"].items():
        for each in now["endpoints"]:
            error = "" if each["state"] == "up" else each.get("last_error") or ""
            facts = {"backend": backend, "last_error": error or None}
            about = f"{backend}: {error}" if error else backend
            yield OverviewRow(
                "endpoint",
                each["address"],
                about,
                facts,
                of((backend, each["address"])),
                in_flight=each["in_flight"],
                waiting=None,
                level=_level_of_endpoint(each),
                state=each.get("drain") or each["state"],
            )


def _level(figures: WindowFigures) -> str:
    """Return the level of a listener or a route. Listeners and routes have no health checks, so the level is based on
    the errors in the window."""
    if not figures.requests:
        return UNKNOWN
    return OK if not figures.errors else DOWN if figures.errors == figures.requests else DEGRADED


def _level_of_endpoint(endpoint: Mapping[str, Any]) -> str:
    levels = {"up": OK, "unknown": UNKNOWN, "down": DOWN}
    level = levels.get(endpoint["state"], DEGRADED)
    return DEGRADED if "drain" in endpoint and level != DOWN else level


def _level_of_backend(states: Sequence[str], starts_servers: bool) -> str:
    """Return the level of a backend, based on the states of its endpoints. A backend that starts servers when calls
    need them is healthy without endpoints."""
    if not states and starts_servers:
        return UNKNOWN
    if all(each == DOWN for each in states):
        return DOWN
    if any(each in (DOWN, DEGRADED) for each in states):
        return DEGRADED
    return UNKNOWN if all(each == "unknown" for each in states) else OK


SORTS: dict[str, Callable[[OverviewRow], Any]] = {
    "rate": lambda row: -(row.figures.rate or 0.0),
    "failed": lambda row: -(row.figures.failed or 0.0),
    "rejected": lambda row: -(row.figures.rejected_share or 0.0),
    "median": lambda row: -(row.figures.quantile(0.5) or 0.0),
    "slowest": lambda row: -(row.figures.quantile(0.99) or 0.0),
    "in-flight": lambda row: -(row.in_flight or 0),
    "waiting": lambda row: -(row.waiting or 0),
    "state": lambda row: _WORST_FIRST.index(row.level),
    "name": lambda row: row.name,
}
"""The sort keys for rows. The largest or worst rows come first; equal rows stay in the order of the configuration."""


def ordered(rows: Sequence[OverviewRow], key: str, *, is_reversed: bool = False) -> list[OverviewRow]:
    """Return the rows, sorted by a key of SORTS."""
    return sorted(rows, key=SORTS[key], reverse=is_reversed)


NONE = "-"
HEAD = ("rate", "failed", "rejected", "median", "99 %", "in flight", "waiting", "state")
"""The column heads for the result of `cells`."""
SORTED = dict(
    zip(("rate", "failed", "rejected", "median", "slowest", "in-flight", "waiting", "state"), HEAD, strict=True)
)
"""For each key in `rows.SORTS`, the head of the column by which it sorts; `name` sorts by the first column."""


def cells(row: OverviewRow) -> tuple[str, ...]:
    """Return the cells of a row as text, one for each column in HEAD."""
    figures = row.figures
    return (
        rate(figures.rate), share(figures.failed), share(figures.rejected_share), seconds(figures.quantile(0.5)),
        seconds(figures.quantile(0.99)), count(row.in_flight), count(row.waiting), row.state or NONE,
    )  # fmt: skip


def sums(seen: GatewayOverview) -> dict[str, str]:
    """Return the figures of the entire gateway, by name."""
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
