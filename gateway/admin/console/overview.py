"""`/api/topology`: listeners, routes, backends, and their connections, which only a reload changes. `/api/traffic`:
counts since the gateway started, from which the page computes rates, and the numbers of calls in flight and waiting
calls."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Literal, cast

from pydantic import BaseModel

from gateway.config.effective import effective
from gateway.config.graph_checks import graph_called, routes_of_step
from gateway.config.keys import Config
from gateway.config.routes import RouteConfig
from gateway.core.transport import ListenerCounts
from gateway.observing.counters import LATENCY_BOUNDS, CountedPath
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.on_demand import StartedSlots


class ConfiguredListener(BaseModel):
    """A listener."""

    name: str
    address: str
    protocols: list[str]
    model: str
    """The model for requests without a model name, or empty."""
    tls: bool
    auth: bool
    """True if clients must authenticate."""


class RouteBackend(BaseModel):
    """A backend of a route."""

    name: str
    role: Literal["main", "fallback"]
    weight: int | None
    """The backend's weight in a `split`; null if the route has no `split`."""


class ConfiguredRoute(BaseModel):
    """A route."""

    name: str
    """The route's name, under which requests are counted."""
    match: dict[str, Any]
    """The route's conditions that are set, as in the configuration."""
    rewrite: dict[str, Any]
    listeners: list[str]
    """The listeners whose requests can take the route."""
    backends: list[RouteBackend]
    policies: list[str]
    passthrough: bool


class ConfiguredGraph(BaseModel):
    """A model graph; `/api/graphs` returns its diagram."""

    name: str
    place: str
    """The name, such as `models.posterior`, under which the gateway counts the graph's requests; it replaces a route's
    name."""
    listeners: list[str]
    """The listeners whose requests can call the graph: always all listeners."""
    backends: list[RouteBackend]
    """The backends that the graph's steps can call, including steps of nested graphs."""


class ConfiguredBackend(BaseModel):
    """A backend."""

    name: str
    protocol: str
    flavor: str
    max_in_flight: int | None
    policies: list[str]
    discovers: bool
    """True if the backend's endpoints come from discovery."""
    placed: bool
    """True if the backend has `placement`. Its servers can then have different models, which `/api/placement` shows."""


class Topology(BaseModel):
    """The topology of the configuration."""

    version: str
    loaded_at: datetime
    """The time of the last successful read and validation of the configuration, in UTC."""
    reloads: int
    listeners: list[ConfiguredListener]
    routes: list[ConfiguredRoute]
    backends: list[ConfiguredBackend]
    graphs: list[ConfiguredGraph]
    latency_bounds: list[float]
    """The upper bounds of the latency buckets in `/api/traffic`, in seconds."""


def topology(
    config: Config, listeners: Mapping[str, ListenerCounts], version: str, loaded_at: datetime, reloads: int
) -> Topology:
    """Return the topology of `config`. Secrets in conditions are masked as in `/config`."""
    shown = cast(dict[str, Any], effective(config))
    return Topology(
        version=version,
        loaded_at=loaded_at,
        reloads=reloads,
        listeners=[
            ConfiguredListener(
                name=each.name,
                address=listeners[each.name].address if each.name in listeners else str(each.bind),
                protocols=list(each.protocols),
                model=each.model,
                tls=each.tls is not None,
                auth=each.auth is not None,
            )
            for each in config.listeners
        ],
        routes=[_route(config, each, shown["routes"][at]) for at, each in enumerate(config.routes)],
        backends=[
            ConfiguredBackend(
                name=name,
                protocol=each.protocol,
                flavor=each.flavor or "",
                max_in_flight=each.max_in_flight,
                policies=[policy.name for policy in each.policies],
                discovers=each.discovery is not None,
                placed=each.placement is not None,
            )
            for name, each in config.backends.items()
        ],
        graphs=[_graph(config, each) for each in config.models],
        latency_bounds=list(LATENCY_BOUNDS),
    )


def _route(config: Config, route: RouteConfig, shown: Mapping[str, Any]) -> ConfiguredRoute:
    return ConfiguredRoute(
        name=route.name,
        match={key: value for key, value in shown["match"].items() if value not in (None, {})},
        rewrite={key: value for key, value in shown["rewrite"].items() if value is not None},
        listeners=[
            each.name
            for each in config.listeners
            if route.match.listener in (None, each.name) and route.match.protocol in (None, *each.protocols)
        ],
        backends=list(_backends(route)),
        policies=[policy.name for policy in route.policies],
        passthrough=route.passthrough,
    )


def _graph(config: Config, name: str) -> ConfiguredGraph:
    backends: dict[str, RouteBackend] = {}
    waiting = [name]
    for each in waiting:  # `waiting` grows during the loop
        for step in config.models[each].steps.values():
            for model in (step.model, *step.fallback):
                inner = graph_called(model, config.models)
                if inner is not None:
                    waiting += [inner] if inner not in waiting else []
                    continue
                for route in islice(routes_of_step(step, model, config.routes), 1):
                    backends |= {found.name: found for found in _backends(route) if found.name not in backends}
    listeners = [each.name for each in config.listeners]
    return ConfiguredGraph(name=name, place=f"models.{name}", listeners=listeners, backends=list(backends.values()))


def _backends(route: RouteConfig) -> Iterator[RouteBackend]:
    if route.split is not None:
        yield from (RouteBackend(name=each.backend, role="main", weight=each.weight) for each in route.split)
    elif route.backend is not None:
        yield RouteBackend(name=route.backend, role="main", weight=None)
    yield from (RouteBackend(name=each, role="fallback", weight=None) for each in route.fallback)


Plain = dict[str, object]
"""A JSON object as a plain dict. The page fetches this object every second or two, so building it from pydantic models
would waste time on validation."""


class ListenerTraffic(BaseModel):
    """The current traffic of a listener."""

    in_flight: int
    """Number of requests that have started to arrive and have no response yet."""
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
    """The cause of the last failed call or probe."""


class BackendTraffic(BaseModel):
    """The current traffic of a backend."""

    waiting: int
    """Number of calls that wait for a free slot."""
    slots: int
    """Maximum number of calls in flight; 0 if unlimited."""
    queue: int
    """Maximum number of waiting calls."""
    starts_servers: bool
    """True if the gateway starts the backend's servers when calls need them. The backend can then be healthy even
    without endpoints."""
    endpoints: list[EndpointTraffic]


class PathTraffic(BaseModel):
    """The requests of one path, counted since the gateway started."""

    listener: str
    """The listener's name; empty for the calls of graph steps. The request for the graph itself counts on a path
    without a backend."""
    route: str
    """The route's name; empty for requests that matched no route."""
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
    """The current traffic. The time of the data, in seconds on the gateway's own clock, is in the response header
    `gateway-time`, so the body stays the same while nothing happens."""

    started: float
    """The time at which counting started, on the gateway's own clock. If this value changes, the gateway has
    restarted."""
    topology: str
    """An identifier that changes when `/api/topology` or `/api/configuration` changes."""
    ready: bool
    errors: int
    """Number of requests that ended with an error. If the number grows, `/api/errors` returns new errors."""
    shedding: int
    """The work that the overloaded gateway rejects: 0 nothing, 1 new connections, 2 also large requests, 3 all requests
    with a body."""
    listeners: dict[str, ListenerTraffic]
    backends: dict[str, BackendTraffic]
    paths: list[PathTraffic]
    """The paths on which a request has ended since the time given by the query parameter `since`."""


def listener_traffic(running: Mapping[str, ListenerCounts]) -> Plain:
    """Return a ListenerTraffic for each listener."""
    return {
        name: {
            "in_flight": each.unanswered_requests,
            "connections": each.open_connections,
            "refused": each.refused_connections,
        }
        for name, each in running.items()
    }


def backend_traffic(running: Mapping[str, Backend]) -> Plain:
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


def path_traffic(counted: Iterable[CountedPath]) -> Iterator[Plain]:
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
