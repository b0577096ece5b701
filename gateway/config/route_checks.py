"""Routes that cannot work. They are judged by listeners and backends together, so only in a configuration whose every
part is sound: with half of one the wrong key would be blamed."""

from collections.abc import Callable, Iterator

from gateway.config.catalog import Catalog
from gateway.config.fields import VALUE
from gateway.config.models import Config, ListenerConfig
from gateway.config.problems import Finding
from gateway.config.routes import MatchConfig, RouteConfig
from gateway.core.protocol import Protocol


def route_findings(config: Config, catalog: Catalog) -> list[Finding]:
    """What is wrong with each route as a whole."""
    each = [
        finding
        for at, route in enumerate(config.routes)
        for check in _CHECKS
        for finding in check(at, route, config, catalog)
    ]
    return each + list(_hidden(config))


def _served(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    wanted = route.match.protocol
    if wanted in catalog.protocols and not any(_arrivals(route.match, config, catalog)):
        where = (
            "no listener speaks"
            if route.match.listener is None
            else f"listener {route.match.listener!r} does not speak"
        )
        if route.match.listener is None or route.match.listener in (each.name for each in config.listeners):
            yield Finding(("routes", at, "match", "protocol"), f"{where} {VALUE}, so nothing takes this route")


def _named(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    backend = _protocol_of(route, config, catalog)
    if backend is None or not backend.traits.named_models or route.match.model or route.rewrite.model:
        return
    for listener, protocol in _arrivals(route.match, config, catalog):
        if not _names_models(protocol, route.match) and not listener.model:
            yield Finding(
                ("routes", at, "backend"),
                f"{VALUE} needs a model name, which requests over {protocol.name} at listener {listener.name!r} "
                "have not; add rewrite: {model: NAME} here, or model: NAME to the listener",
            )
            return


def _names_models(protocol: Protocol, match: MatchConfig) -> bool:
    """Whether the requests that `match` takes name a model: in the message, or in the protocol's own paths."""
    if protocol.traits.named_models:
        return True
    own = (pattern.partition(" ")[2].partition("{model}") for pattern in protocol.patterns)
    return any(found and (match.path is None or match.path.startswith(above)) for above, found, _ in own)


def _version(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    backend = _protocol_of(route, config, catalog)
    if backend is None or not route.rewrite.version:
        return
    location = ("routes", at, "rewrite", "version")
    if backend.traits.versions is None:
        yield Finding(location, f'{backend.name} has no versions; expected "", which drops the client\'s, got {VALUE}')
    elif not backend.traits.versions(route.rewrite.version):
        yield Finding(location, f"{VALUE} cannot be a version of a model behind {backend.name}")


_CHECKS: tuple[Callable[[int, RouteConfig, Config, Catalog], Iterator[Finding]], ...] = (_served, _named, _version)


def _hidden(config: Config) -> Iterator[Finding]:
    """Routes that come after one with the same match."""
    first: dict[str, int] = {}
    for at, route in enumerate(config.routes):
        same = first.setdefault(route.match.model_dump_json(), at)
        if same != at:
            text = f"routes[{same}] has the same match and comes first, so nothing takes this route"
            yield Finding(("routes", at, "match"), text)


def _arrivals(match: MatchConfig, config: Config, catalog: Catalog) -> Iterator[tuple[ListenerConfig, Protocol]]:
    """The listeners and protocols whose requests `match` can take."""
    for listener in config.listeners:
        for name in listener.protocols:
            if match.listener in (None, listener.name) and match.protocol in (None, name) and name in catalog.protocols:
                yield listener, catalog.protocols[name]


def _protocol_of(route: RouteConfig, config: Config, catalog: Catalog) -> Protocol | None:
    backend = config.backends.get(route.backend)
    return catalog.protocols.get(backend.protocol) if backend else None
