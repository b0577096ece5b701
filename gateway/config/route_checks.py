"""Routes that cannot work. They are judged by listeners and backends together, so only in a configuration whose every
part is sound: with half of one the wrong key would be blamed."""

from collections.abc import Callable, Iterator

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.keys import Config, ListenerConfig
from gateway.config.problems import Finding, listed, suggestion
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
    if backend is None or not backend.traits.models.named or route.match.model or route.rewrite.model:
        return
    if route.passthrough:
        return
    for listener, protocol in _arrivals(route.match, config, catalog):
        if not _names_models(protocol, route.match) and not listener.model:
            have = "may come without" if protocol.traits.models.may_be_named else "have not"
            yield Finding(
                ("routes", at, "backend"),
                f"{VALUE} needs a model name, which requests over {protocol.name} at listener {listener.name!r} "
                f"{have}; add rewrite: {{model: NAME}} here, or model: NAME to the listener",
            )
            return


def _names_models(protocol: Protocol, match: MatchConfig) -> bool:
    """Whether the requests that `match` takes name a model: in the message, or in the protocol's own paths."""
    if protocol.traits.models.named:
        return True
    own = (pattern.partition(" ")[2].partition("{model}") for pattern in protocol.patterns)
    return any(found and (match.path is None or match.path.startswith(above)) for above, found, _ in own)


def _version(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    backend = _protocol_of(route, config, catalog)
    if backend is None or not route.rewrite.version:
        return
    location = ("routes", at, "rewrite", "version")
    if backend.traits.models.versions is None:
        yield Finding(location, f'{backend.name} has no versions; expected "", which drops the client\'s, got {VALUE}')
    elif not backend.traits.models.versions(route.rewrite.version):
        yield Finding(location, f"{VALUE} cannot be a version of a model behind {backend.name}")


def _payload(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    backend, payload = _protocol_of(route, config, catalog), route.translate.payload
    if backend is None or not payload or payload in backend.payloads:
        return
    location = ("routes", at, "translate", "payload")
    if backend.payloads:
        yield Finding(
            location, f"no payload of {backend.name} is called {VALUE}{suggestion(payload, backend.payloads)}"
        )
    else:
        text = f"tensors travel in one form only over {backend.name}, which the backend speaks; leave payload out"
        yield Finding(location, text, at_key=True)


def _config(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    backend = _protocol_of(route, config, catalog)
    if not route.translate.carry_config or backend is None:
        return
    sides = [backend, *(protocol for _, protocol in _arrivals(route.match, config, catalog))]
    if all(protocol.traits.wire.parameters for protocol in sides):
        text = f"requests carry a config as a parameter on both sides ({backend.name} behind); leave carry_config out"
        yield Finding(("routes", at, "translate", "carry_config"), text, at_key=True)


def _passthrough(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    backend = _protocol_of(route, config, catalog)
    if not route.passthrough or backend is None:
        return
    above: Location = ("routes", at)
    if backend.http.passthrough is None:
        having = [name for name, protocol in catalog.protocols.items() if protocol.http.passthrough]
        text = f"nothing passes untouched over {backend.name}, which the backend speaks"
        yield Finding((*above, "passthrough"), f"{text}; expected {listed(having)}" if having else text, at_key=True)
        return
    if route.match.path is None:
        text = "needs the path at which messages pass, such as match: {path: /v1/chat/completions}"
        yield Finding((*above, "passthrough"), text, at_key=True)
    if route.match.protocol not in (None, backend.name):
        text = f"messages pass untouched between both sides of one protocol; expected {backend.name!r}, got {VALUE}"
        yield Finding((*above, "match", "protocol"), text)
    elif not any(each.name == backend.name for _, each in _arrivals(route.match, config, catalog)):
        text = f"{VALUE} speaks {backend.name}, which no listener of this route does, so nothing passes"
        yield Finding((*above, "backend"), text)
    yield from _unread(above, route)


_OF_TENSORS = ("rewrite", "signature", "translate")


def _unread(above: Location, route: RouteConfig) -> Iterator[Finding]:
    """Keys about what nobody looks at where messages pass untouched."""
    places: list[tuple[str, ...]] = [(key,) for key in _OF_TENSORS if key in route.model_fields_set]
    if route.match.operation is not None:
        places.append(("match", "operation"))
    for place in places:
        text = f"messages of this route pass untouched (passthrough), so there is no {place[-1]}; leave it out"
        yield Finding((*above, *place), text, at_key=True)


_CHECKS: tuple[Callable[[int, RouteConfig, Config, Catalog], Iterator[Finding]], ...] = (
    _served,
    _named,
    _version,
    _payload,
    _config,
    _passthrough,
)


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
