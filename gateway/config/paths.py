"""Find the paths that a listener serves, from its protocols and from routes, and check that each path belongs to at
most one protocol. `name_checks` runs the checks; the runtime creates its PathTable from the rows."""

from collections.abc import Iterable, Iterator, Mapping

from gateway.config.backends import BackendConfig
from gateway.config.catalog import Catalog
from gateway.config.fields import VALUE
from gateway.config.listeners import ListenerConfig
from gateway.config.partial import Parts
from gateway.config.problems import Finding, listed
from gateway.config.routes import MatchConfig, RouteConfig
from gateway.core import patterns
from gateway.core.patterns import PathTable, Tie
from gateway.core.protocol import HttpBinding, Protocol, SettingError


def rows(
    listener: ListenerConfig,
    routes: Iterable[RouteConfig],
    backends: Mapping[str, BackendConfig],
    protocols: Mapping[str, Protocol],
) -> tuple[tuple[Protocol, str], ...]:
    """Return the listener's rows: the rows for its PathTable (`over_http`), then rows for its other protocols. Omit
    protocols that are not in `protocols`."""
    own = [
        (_facing(protocols[name], listener), listener.prefix.get(name, ""))
        for name in listener.protocols
        if name in protocols
    ]
    here = [route for route in routes if route.match.path and route.match.listener in (None, listener.name)]
    table = over_http(own)
    others = tuple(row for row in own if row not in table)
    paths = patterns.rows(table, listener.model, _matched(here), _passed(here, backends), pages=listener.metrics_page)
    return (*paths, *others)


def over_http(rows: Iterable[tuple[Protocol, str]]) -> tuple[tuple[Protocol, str], ...]:
    """Return the rows of HTTP protocols, for a PathTable."""
    return tuple(row for row in rows if isinstance(row[0].binding, HttpBinding))


def _facing(protocol: Protocol, listener: ListenerConfig) -> Protocol:
    """Return the protocol with the server type and the settings that the listener uses for its clients."""
    face = protocol.emulated_servers.get(listener.flavor.get(protocol.name, ""), protocol)
    try:
        return face.with_settings(listener.settings.get(protocol.name, {}))
    except SettingError:
        return face  # another check reports it


def _matched(routes: Iterable[RouteConfig]) -> Iterator[tuple[str, str]]:
    """Yield the protocol and the path of each route without `passthrough`."""
    for route in routes:
        if not route.passthrough:
            yield route.match.protocol or "", route.match.path or ""


def _passed(routes: Iterable[RouteConfig], backends: Mapping[str, BackendConfig]) -> Iterator[tuple[str, str]]:
    """Yield the protocol and the path of each route with `passthrough`."""
    for route in routes:
        for name in route.own_backends if route.passthrough else ():
            if name in backends:
                yield backends[name].protocol, route.match.path or ""


def path_ties(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find paths that two protocols of a listener serve."""
    for at, listener in parts.listeners.items():
        table = over_http(rows(listener, parts.routes.values(), parts.backends, catalog.protocols))
        if table:
            for tie in PathTable(table).ties:
                routed = list(_tie_of_routes(parts, listener, tie))
                text = f"{tie.first} and {tie.second} both serve {tie.pattern}; give one of them a prefix"
                yield from routed or [Finding(("listeners", at, "protocols"), text)]


def _tie_of_routes(parts: Parts, listener: ListenerConfig, tie: Tie) -> Iterator[Finding]:
    """Yield the findings for a path in routes, which a `prefix` cannot resolve."""
    here = [each for each in _matches(parts, listener) if each[1].path == tie.pattern.partition(" ")[2]]
    both = f"{tie.first} and {tie.second} both take {VALUE} at listener {listener.name!r}"
    for at, match in here:
        if match.protocol is None:
            yield Finding(("routes", at, "match", "path"), f"{both}; add protocol: {tie.first} or {tie.second}")
        elif match.protocol == tie.second and all(other.protocol for _, other in here):
            yield Finding(("routes", at, "match", "path"), f"{both}; use another path for one of them")


def open_paths(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find paths with `*` that belong to no protocol of a listener, on listeners with several protocols."""
    for listener in parts.listeners.values():
        spoken = [each for each in _spoken(listener, catalog) if isinstance(each.binding, HttpBinding)]
        takers = [protocol.name for protocol in spoken if protocol.http.any_path]
        for at, match in _matches(parts, listener):
            beginning = (match.path or "").removesuffix("*")
            if match.path == beginning or match.protocol or len(spoken) == 1 or not takers:
                continue
            if not any(_has_path(protocol, listener.prefix.get(protocol.name, ""), beginning) for protocol in spoken):
                text = f"no protocol of listener {listener.name!r} has paths such as {VALUE}"
                location = ("routes", at, "match", "path")
                yield Finding(location, f"{text}; {listed(takers)} would take them; add protocol: {takers[0]}")


def _has_path(protocol: Protocol, prefix: str, beginning: str) -> bool:
    """Return True if one of the protocol's own paths can start with this text, according to the literal part of its
    pattern."""
    literals = (f"{prefix}{each.partition(' ')[2].partition('{')[0]}" for each in protocol.patterns)
    return any(each.startswith(beginning) or beginning.startswith(each) for each in literals)


def _spoken(listener: ListenerConfig, catalog: Catalog) -> list[Protocol]:
    return [catalog.protocols[name] for name in listener.protocols if name in catalog.protocols]


def _matches(parts: Parts, listener: ListenerConfig) -> Iterator[tuple[int, MatchConfig]]:
    """Yield the index and `match` of each of the listener's routes with a path."""
    for at, route in parts.routes.items():
        if route.match.path and not route.passthrough and route.match.listener in (None, listener.name):
            yield at, route.match
