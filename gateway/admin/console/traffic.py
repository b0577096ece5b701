"""The current traffic: counts that only grow, from which the page computes rates, and the numbers of calls in flight
and waiting."""

from collections.abc import Iterable, Iterator, Mapping

from pydantic import BaseModel

from gateway.core.transport import ListenerCounts
from gateway.observing.counters import CountedPath
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.on_demand import StartedSlots

Plain = dict[str, object]
"""A JSON object. The page fetches it every second or two, so it is not built from models and validated again."""


class ListenerTraffic(BaseModel):
    """A listener now."""

    in_flight: int
    """Requests that have begun to arrive and have no response yet."""
    connections: int
    refused: int
    """Connections refused since the start."""


class EndpointTraffic(BaseModel):
    """An endpoint now."""

    address: str
    in_flight: int
    state: str
    """Same as in `/status`."""
    drain: str | None = None
    """`draining` or `drained`, while it does not serve."""
    last_error: str | None = None
    """The cause of the last failure of a call or a probe."""


class BackendTraffic(BaseModel):
    """A backend now."""

    waiting: int
    """Calls that wait for a free slot."""
    slots: int
    """Maximum number of calls in flight; 0 for no limit."""
    queue: int
    """Maximum number of waiting calls."""
    starts_servers: bool
    """The gateway starts its servers when calls need them, so it can be healthy without endpoints."""
    endpoints: list[EndpointTraffic]


class PathTraffic(BaseModel):
    """The requests of one path, counted since the start."""

    listener: str
    """Empty for the calls of a graph's steps. The request for the graph is counted on a path without a backend."""
    route: str
    """Empty for requests that did not reach a route."""
    backend: str
    endpoint: str
    """The last called endpoint."""
    ok: int
    failed: dict[str, int]
    """Errors of servers, by status."""
    rejected: dict[str, int]
    """Errors of callers, by status."""
    latencies: dict[int, int]
    """The number of requests in each non-empty bucket, by the index of `latency_bounds` in `/api/topology`; requests
    above the last bound have the index after the last one."""


class Traffic(BaseModel):
    """The current traffic. The header `gateway-time` of the response has its time, in seconds on the gateway's own
    clock, so the body stays the same while nothing happens."""

    started: float
    """The start of the counts, on that clock. Another value means that the gateway has restarted."""
    topology: str
    """Changes when `/api/topology` or `/api/configuration` does."""
    ready: bool
    errors: int
    """Requests that ended with an error: when the number grows, `/api/errors` has new ones."""
    shedding: int
    """The requests that the gateway refuses because it is overloaded: 0 nothing, 1 new connections, 2 also large
    requests, 3 all."""
    listeners: dict[str, ListenerTraffic]
    backends: dict[str, BackendTraffic]
    paths: list[PathTraffic]
    """The paths on which a request has ended since the time in `since`."""


def listeners(running: Mapping[str, ListenerCounts]) -> Plain:
    """Return a ListenerTraffic for each listener."""
    return {
        name: {
            "in_flight": each.unanswered_requests,
            "connections": each.open_connections,
            "refused": each.refused_connections,
        }
        for name, each in running.items()
    }


def backends(running: Mapping[str, Backend]) -> Plain:
    """Return a BackendTraffic for each backend."""
    return {
        name: {
            "waiting": len(each.queue),
            "slots": each.capacity,
            "queue": each.local.queue_settings.length if each.max_in_flight else 0,
            "starts_servers": isinstance(each.slots, StartedSlots),
            "endpoints": list(map(_endpoint, each.endpoints)),
        }
        for name, each in running.items()
    }


def _endpoint(endpoint: Endpoint) -> Plain:
    found: Plain = {
        "address": endpoint.address,
        "in_flight": endpoint.in_flight,
        "state": endpoint.health.state.value,
    }
    if endpoint.health.last is not None:
        found["last_error"] = endpoint.health.last.text
    if endpoint.drain is not None:
        found["drain"] = endpoint.drain.state.value
    return found


def paths(counted: Iterable[CountedPath]) -> Iterator[Plain]:
    """Yield a PathTraffic for each path."""
    for each in counted:
        listener, route, backend, endpoint = each.place
        yield {
            "listener": listener,
            "route": route,
            "backend": backend,
            "endpoint": endpoint,
            "ok": each.succeeded,
            "failed": dict(each.failed),
            "rejected": dict(each.rejected),
            "latencies": {str(at): count for at, count in enumerate(each.latencies) if count},
        }
