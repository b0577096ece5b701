"""Which paths a listener serves: those of its protocols, and those that routes match."""

from collections.abc import Iterable, Iterator, Mapping

from gateway.config.keys import BackendConfig, ListenerConfig
from gateway.config.routes import RouteConfig
from gateway.core import patterns
from gateway.core.protocol import Protocol


def rows(
    listener: ListenerConfig,
    routes: Iterable[RouteConfig],
    backends: Mapping[str, BackendConfig],
    protocols: Mapping[str, Protocol],
) -> tuple[tuple[Protocol, str], ...]:
    """What the listener's PathTable is made of. Protocols that are not in `protocols` are left out."""
    own = [(protocols[name], listener.prefix.get(name, "")) for name in listener.protocols if name in protocols]
    here = [route for route in routes if route.match.path and route.match.listener in (None, listener.name)]
    return patterns.rows(
        own, listener.model, _matched(here), _passed(here, backends), pages=listener.metrics_page
    )  # fmt: skip


def _matched(routes: Iterable[RouteConfig]) -> Iterator[tuple[str, str]]:
    """The paths, each with the protocol that the route wants."""
    for route in routes:
        if not route.passthrough:
            yield route.match.protocol or "", route.match.path or ""


def _passed(routes: Iterable[RouteConfig], backends: Mapping[str, BackendConfig]) -> Iterator[tuple[str, str]]:
    """The paths where messages pass untouched, each with the protocol of both sides."""
    for route in routes:
        if route.passthrough and route.backend in backends:
            yield backends[route.backend].protocol, route.match.path or ""
