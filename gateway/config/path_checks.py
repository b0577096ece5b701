"""Paths that several protocols of one listener would have, or none."""

from collections.abc import Iterator

from gateway.config.catalog import Catalog
from gateway.config.fields import VALUE
from gateway.config.keys import ListenerConfig
from gateway.config.partial import Parts
from gateway.config.paths import rows
from gateway.config.problems import Finding, listed
from gateway.config.routes import MatchConfig
from gateway.core.patterns import PathTable, Tie
from gateway.core.protocol import Protocol


def path_ties(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Paths that two protocols of a listener would have."""
    for at, listener in parts.listeners.items():
        if {protocol.transport for protocol in _spoken(listener, catalog)} == {"http"}:
            for tie in PathTable(rows(listener, parts.routes.values(), parts.backends, catalog.protocols)).ties:
                routed = list(_routed(parts, listener, tie))
                text = f"{tie.first} and {tie.second} both serve {tie.pattern}; give one of them a prefix"
                yield from routed or [Finding(("listeners", at, "protocols"), text)]


def _routed(parts: Parts, listener: ListenerConfig, tie: Tie) -> Iterator[Finding]:
    """That the path is no protocol's own, but one that routes match: a prefix does not part those."""
    here = [each for each in _matches(parts, listener) if each[1].path == tie.pattern.partition(" ")[2]]
    both = f"{tie.first} and {tie.second} both take {VALUE} at listener {listener.name!r}"
    for at, match in here:
        if match.protocol is None:
            yield Finding(("routes", at, "match", "path"), f"{both}; add protocol: {tie.first} or {tie.second}")
        elif match.protocol == tie.second and all(other.protocol for _, other in here):
            yield Finding(("routes", at, "match", "path"), f"{both}; one of the two needs another path")


def open_paths(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Beginnings of paths that no protocol has, and that are given to none because more than one is there."""
    for listener in parts.listeners.values():
        spoken = _spoken(listener, catalog)
        takers = [protocol.name for protocol in spoken if protocol.http.any_path]
        for at, match in _matches(parts, listener):
            beginning = (match.path or "").removesuffix("*")
            if match.path == beginning or match.protocol or len(spoken) == 1 or not takers:
                continue
            if not any(_reaches(protocol, listener.prefix.get(protocol.name, ""), beginning) for protocol in spoken):
                text = f"no protocol of listener {listener.name!r} has paths such as {VALUE}"
                location = ("routes", at, "match", "path")
                yield Finding(location, f"{text}; {listed(takers)} would take them, add protocol: {takers[0]}")


def _reaches(protocol: Protocol, prefix: str, beginning: str) -> bool:
    """Whether a path of the protocol's own may begin so, as far as its literal part tells."""
    literals = (f"{prefix}{each.partition(' ')[2].partition('{')[0]}" for each in protocol.patterns)
    return any(each.startswith(beginning) or beginning.startswith(each) for each in literals)


def _spoken(listener: ListenerConfig, catalog: Catalog) -> list[Protocol]:
    return [catalog.protocols[name] for name in listener.protocols if name in catalog.protocols]


def _matches(parts: Parts, listener: ListenerConfig) -> Iterator[tuple[int, MatchConfig]]:
    """The `match` of each route that gives the listener a path."""
    for at, route in parts.routes.items():
        if route.match.path and not route.passthrough and route.match.listener in (None, listener.name):
            yield at, route.match
