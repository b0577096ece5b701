"""`/api/traffic`: counts since the gateway started, from which the page computes rates, and the numbers of calls in
flight and of waiting calls."""

from collections.abc import Iterable, Iterator, Mapping

from pydantic import BaseModel

from gateway.core.transport import ListenerCounts
from gateway.observing.counters import CountedPath
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.on_demand import StartedSlots

Plain = dict[str, object]
"""A JSON object as a plain dict. The page fetches it every second or two, so building it from pydantic models would
waste time on validation."""


class ListenerTraffic(BaseModel):
    """The current traffic of a listener."""

    in_flight: int
    """Requests that have begun to arrive and have no response yet."""
    connections: int
    refused: int
    """Number of connections refused since the gateway started."""


class EndpointTraffic(BaseModel):
    """The current traffic of an endpoint."""

    address: str
    in_flight: int
    state: str
    """The endpoint's state, as in `/status`."""
    drain: str | None = None
    """`draining` or `drained`; null if the endpoint is not being drained."""
    last_error: str | None = None
    """The cause of the last failure of a call or a probe."""


class BackendTraffic(BaseModel):
    """The current traffic of a backend."""

    waiting: int
    """Number of calls that wait for a free slot."""
    slots: int
    """Maximum number of calls in flight; 0 if unlimited."""
    queue: int
    """Maximum number of waiting calls."""
    starts_servers: bool
    """True if the gateway starts the backend's servers when calls need them. The backend can then be healthy without
    endpoints."""
    endpoints: list[EndpointTraffic]


class PathTraffic(BaseModel):
    """The requests of one path, counted since the gateway started."""

    listener: str
    """Empty for the calls of graph steps. The request for the graph itself is counted on a path without a backend."""
    route: str
    """Empty for requests that matched no route."""
    backend: str
    endpoint: str
    """The endpoint that was called last."""
    ok: int
    failed: dict[str, int]
    """Number of server errors, by status."""
    rejected: dict[str, int]
    """Number of caller errors, by status."""
    latencies: dict[int, int]
    """The number of requests in each non-empty bucket, by the bucket's index in `latency_bounds` of `/api/topology`.
    Requests above the last bound are counted under the next index."""


class Traffic(BaseModel):
    """The current traffic. The response header `gateway-time` contains the time of the data, in seconds on the
    gateway's own clock, so the body stays the same while nothing happens."""

    started: float
    """The time at which counting started, on the same clock. If the value changes, the gateway has restarted."""
    topology: str
    """An identifier that changes when `/api/topology` or `/api/configuration` changes."""
    ready: bool
    errors: int
    """Number of requests that ended with an error. If the number grows, `/api/errors` returns new errors."""
    shedding: int
    """What the gateway refuses because it is overloaded: 0 nothing, 1 new connections, 2 also large requests, 3 all
    requests with a body."""
    listeners: dict[str, ListenerTraffic]
    backends: dict[str, BackendTraffic]
    paths: list[PathTraffic]
    """The paths on which a request has ended since the time given by the query parameter `since`."""


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
