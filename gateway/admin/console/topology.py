"""`/api/topology`: listeners, routes and backends, and their connections. Only a reload changes the topology."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Literal, cast

from pydantic import BaseModel

from gateway.config.effective import effective
from gateway.config.graph_checks import graph_called, routes_of_step
from gateway.config.keys import Config
from gateway.config.routes import RouteConfig
from gateway.core.transport import ListenerCounts
from gateway.observing.counters import LATENCY_BOUNDS


class ConfiguredListener(BaseModel):
    """A listener."""

    name: str
    address: str
    protocols: list[str]
    model: str
    """The model for requests that contain no model name, or empty."""
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
    """The route's conditions, as in the configuration, without unset conditions."""
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
    """The name under which the gateway counts the graph's requests, such as `models.posterior`, instead of a route's
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
    """True if the backend has `placement`, so its servers can have different models; `/api/placement` shows them."""


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
