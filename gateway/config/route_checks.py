"""Checks of routes against their listeners and backends, and of other parts that depend on each other. `loading` runs
them only if all parts of the configuration are valid, because otherwise they could report the wrong key."""

from collections.abc import Callable, Iterator, Sequence

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.config.problems import Finding, listed, suggestion, unknown
from gateway.config.routes import MatchConfig, RouteConfig
from gateway.config.unreachable import path_takes_all
from gateway.core.operations import CALLS
from gateway.core.protocol import Protocol


def route_findings(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Yield all findings of these checks."""
    for at, route in enumerate(config.routes):
        yield from route.whole_findings(("routes", at))
        for check in _CHECKS:
            yield from check(at, route, config, catalog)
    yield from _repeated(config)
    yield from _beside_passthrough(config, catalog)
    for name, backend in config.backends.items():
        yield from backend.whole_findings(("backends", name))
    yield from _registering(config)
    yield from _logged(config)


def _registering(config: Config) -> Iterator[Finding]:
    for name, backend in config.backends.items():
        if backend.discovery is not None and backend.discovery.registration is not None and config.admin is None:
            text = "servers register at the port of the status API, which is off; add admin: {bind: 127.0.0.1:PORT}"
            yield Finding(("backends", name, "discovery", "register"), text, at_key=True)


def _logged(config: Config) -> Iterator[Finding]:
    """Find routes in `log.payloads` that do not exist, or whose messages are not decoded."""
    known: dict[str, bool] = dict.fromkeys(config.models, True)
    for route in config.routes:
        known[route.name] = known.get(route.name, False) or not route.passthrough
    log = config.log.payloads
    for at, name in enumerate((log and log.routes) or ()):
        location: Location = ("log", "payloads", "routes", at)
        yield from unknown(location, "route or graph", name, known)
        if not known.get(name, True):
            yield Finding(location, f"{VALUE} has passthrough, so the gateway does not decode its messages; remove it")


def _served_protocol(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    wanted = route.match.protocol
    if wanted in catalog.protocols and not any(_arrivals(route.match, config, catalog)):
        where = (
            "no listener serves"
            if route.match.listener is None
            else f"listener {route.match.listener!r} does not serve"
        )
        if route.match.listener is None or route.match.listener in (each.name for each in config.listeners):
            yield Finding(
                ("routes", at, "match", "protocol"),
                f"{where} {VALUE}, so no request takes this route; add it to a listener's protocols",
            )


def _model_name(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    if route.match.model or route.rewrite.model or route.passthrough:
        return
    needing = [place for place, backend in _backends(route, config, catalog) if backend.traits.models.named]
    wanted = route.match.operation
    for listener, protocol in _arrivals(route.match, config, catalog):
        if wanted is not None and not protocol.may_ask(wanted):
            continue  # none of its requests use the route
        if needing and not _names_models(protocol, route.match) and not listener.model:
            have = "may not have" if protocol.traits.models.may_be_named else "do not have"
            yield Finding(
                ("routes", at, *needing[0]),
                f"{VALUE} needs a model name, which {protocol.name} requests at listener {listener.name!r} "
                f"{have}; add rewrite: {{model: NAME}} to the route or model: NAME to the listener",
            )
            return


def _names_models(protocol: Protocol, match: MatchConfig) -> bool:
    """Return whether the requests that `match` accepts contain a model name, in the message or in the path."""
    if protocol.traits.models.named:
        return True
    own = (pattern.partition(" ")[2].partition("{model}") for pattern in protocol.patterns)
    return any(found and (match.path is None or match.path.startswith(above)) for above, found, _ in own)


def _version(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    location = ("routes", at, "rewrite", "version")
    for backend in _protocols(route, config, catalog) if route.rewrite.version else ():
        versions = backend.traits.models.versions
        if versions is None:
            text = f'{backend.name} has no versions; expected "", which drops the client\'s, got {VALUE}'
            yield Finding(location, text)
            return
        if not versions(route.rewrite.version or ""):
            yield Finding(location, f"{VALUE} is not a possible version in {backend.name}")
            return


def _payload(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    backends, payload = _protocols(route, config, catalog), route.translate.payload
    if not backends or not payload or any(payload in each.payloads for each in backends):
        return
    location = ("routes", at, "translate", "payload")
    backend = next((each for each in backends if each.payloads), backends[0])
    if backend.payloads:
        yield Finding(location, f"{backend.name} has no payload {VALUE}{suggestion(payload, backend.payloads)}")
    else:
        text = f"{backend.name}, the backend's protocol, has only one tensor format; remove the key"
        yield Finding(location, text, at_key=True)


def _config(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    backends = _protocols(route, config, catalog)
    if not route.translate.carry_config or not backends:
        return
    sides = [*backends, *(protocol for _, protocol in _arrivals(route.match, config, catalog))]
    if all(protocol.traits.wire.parameters for protocol in sides):
        names = listed(dict.fromkeys(each.name for each in backends)).replace(" or ", " and ")
        text = f"both sides have the config as a parameter (the backend's protocol is {names}); remove the key"
        yield Finding(("routes", at, "translate", "carry_config"), text, at_key=True)


def _passthrough(at: int, route: RouteConfig, config: Config, catalog: Catalog) -> Iterator[Finding]:
    above: Location = ("routes", at)
    if not route.passthrough:
        return
    for key in ("split", "fallback"):
        if key in route.model_fields_set:
            text = f"a route with passthrough has one backend; remove {key}"
            yield Finding((*above, key), text, at_key=True)
            return
    backend = next(iter(_protocols(route, config, catalog)), None)
    if backend is None:
        return
    if backend.http.passthrough is None:
        having = [name for name, protocol in catalog.protocols.items() if protocol.http.passthrough]
        text = f"{backend.name}, the backend's protocol, has no passthrough"
        yield Finding((*above, "passthrough"), f"{text}; expected {listed(having)}" if having else text, at_key=True)
        return
    if route.match.path is None:
        text = "a route with passthrough needs a path, such as match: {path: /v1/chat/completions}"
        yield Finding((*above, "passthrough"), text, at_key=True)
    if route.match.protocol not in (None, backend.name):
        text = f"with passthrough both sides have the same protocol; expected {backend.name!r}, got {VALUE}"
        yield Finding((*above, "match", "protocol"), text)
    elif not any(each.name == backend.name for _, each in _arrivals(route.match, config, catalog)):
        text = (
            f"the protocol of {VALUE} is {backend.name}, but no listener of this route serves it; add it to a listener"
        )
        yield Finding((*above, "backend"), text)
    yield from _without_effect(above, route)


_ABOUT_TENSORS = ("rewrite", "signature", "translate")


def _without_effect(above: Location, route: RouteConfig) -> Iterator[Finding]:
    """Find keys that have no effect with `passthrough`."""
    places: list[tuple[str, ...]] = [(key,) for key in _ABOUT_TENSORS if key in route.model_fields_set]
    places += [("match", key) for key in ("operation", "input") if getattr(route.match, key) is not None]
    for place in places:
        text = f"{place[-1]} has no effect on a route with passthrough; remove the key"
        yield Finding((*above, *place), text, at_key=True)


def _beside_passthrough(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Find routes whose requests arrive at a path of a route with passthrough. The gateway does not decode these
    requests, and tries no other route for them."""
    passing = [
        (at, route.match, config.backends[name].protocol)
        for at, route in enumerate(config.routes)
        if route.passthrough and route.match.path is not None
        for name in route.own_backends
        if name in config.backends
    ]
    for at, route in enumerate(config.routes) if passing else ():
        found = () if route.passthrough else _losing(route.match, passing, config, catalog)
        for i, protocol, is_whole in found:
            text = f"routes[{i}] forwards {protocol} requests to {config.routes[i].match.path} without decoding"
            text += ", so this route never gets them; use another path or listener for one of the two routes"
            if not is_whole:
                text += f", or remove all conditions of routes[{i}] except path"
            yield Finding(("routes", at, "match"), text, at_key=True)
            break


def _losing(
    match: MatchConfig, passing: Sequence[tuple[int, MatchConfig, str]], config: Config, catalog: Catalog
) -> Iterator[tuple[int, str, bool]]:
    """Yield the passthrough routes that prevent requests from reaching a route with `match`, and the protocol of these
    requests. The last value is True if no request reaches the route with `match`; False if only requests that the
    passthrough route does not accept are lost."""
    for listener, protocol in _arrivals(match, config, catalog):
        here = [
            (at, each) for at, each, name in passing if name == protocol.name and each.listener in (None, listener.name)
        ]
        for at, each in here:
            is_whole = match.path is not None and path_takes_all(each.path, match.path)
            if is_whole or (
                _come_to(match, each.path or "", protocol, listener)
                and not any(_takes_rest(other, each) for _, other in here)
            ):
                yield at, protocol.name, is_whole


def _come_to(match: MatchConfig, path: str, protocol: Protocol, listener: ListenerConfig) -> bool:
    """Return whether requests for a route with `match` arrive at the `path` of a passthrough route."""
    if match.path is not None:
        return path_takes_all(match.path, path)
    own = any(pattern.partition(" ")[2] == path for pattern in protocol.patterns)
    is_call = match.operation is None or match.operation in CALLS
    return own and is_call and not listener.prefix.get(protocol.name)


def _takes_rest(match: MatchConfig, conditional: MatchConfig) -> bool:
    """Return whether a route with `match` accepts every request to the path of a `conditional` route."""
    is_open = match.model is None and match.version is None and not match.header
    return is_open and path_takes_all(match.path, conditional.path)


_CHECKS: tuple[Callable[[int, RouteConfig, Config, Catalog], Iterator[Finding]], ...] = (
    _served_protocol,
    _model_name,
    _version,
    _payload,
    _config,
    _passthrough,
)


def _repeated(config: Config) -> Iterator[Finding]:
    """Find routes whose `match` is the same as in an earlier route."""
    first: dict[str, int] = {}
    for at, route in enumerate(config.routes):
        same = first.setdefault(route.match.model_dump_json(), at)
        if same != at:
            text = (
                f"routes[{same}] has the same match and comes first, so this route gets no requests; remove one of them"
            )
            yield Finding(("routes", at, "match"), text)


def _arrivals(match: MatchConfig, config: Config, catalog: Catalog) -> Iterator[tuple[ListenerConfig, Protocol]]:
    """Yield the listeners and protocols of the requests that `match` can accept, for any operation."""
    for listener in config.listeners:
        for name in listener.protocols:
            if match.listener in (None, listener.name) and match.protocol in (None, name) and name in catalog.protocols:
                yield listener, catalog.protocols[name]


def _protocols(route: RouteConfig, config: Config, catalog: Catalog) -> list[Protocol]:
    """Return the protocols of the route's backends."""
    return [protocol for _, protocol in _backends(route, config, catalog)]


def _backends(route: RouteConfig, config: Config, catalog: Catalog) -> list[tuple[Location, Protocol]]:
    """Return the location of each backend name in the route, and the backend's protocol."""
    return [
        (place, catalog.protocols[config.backends[name].protocol])
        for place, name in zip(route.backend_places, route.backends, strict=True)
        if name in config.backends and config.backends[name].protocol in catalog.protocols
    ]
