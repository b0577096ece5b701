"""Checks that `loading` also runs on the valid parts of an invalid configuration: the rules of single sections, which
are methods of the sections' classes, and rules about names and addresses in several sections."""

from collections.abc import Callable, Iterator
from itertools import combinations

from gateway.config.catalog import Catalog, EndpointAddress
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.form_checks import protocol_names
from gateway.config.partial import Parts
from gateway.config.paths import open_paths, path_ties
from gateway.config.problems import Finding, unknown
from gateway.core.address import Address


def name_findings(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Yield all findings of these checks."""
    for check in _NAME_CHECKS:
        yield from check(parts, catalog)


def _within_sections(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for at, listener in parts.listeners.items():
        yield from listener.findings(("listeners", at), catalog)
    if parts.admin is not None:
        yield from parts.admin.findings(("admin",))
    if parts.scaler is not None:
        yield from parts.scaler.findings(("scaler",))
    for at, reference in parts.reference.items():
        yield from reference.findings(("reference", at), catalog)
    for name, backend in parts.backends.items():
        yield from backend.findings(("backends", name), catalog)
    for at, route in parts.routes.items():
        yield from route.findings(("routes", at), catalog)
    for location, tls in parts.tls_sections():
        yield from tls.findings(location, catalog)


def _listener_names(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    by_name: dict[str, list[int]] = {}
    for at, listener in parts.listeners.items():
        by_name.setdefault(listener.name, []).append(at)
    for places in by_name.values():
        for first, second in combinations(places, 2):
            yield Finding(
                ("listeners", second, "name"), f"listeners[{first}] is also called {VALUE}; choose another name"
            )


def _bind_schemes(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for location, address, protocols in _binds(parts):
        transports = {catalog.protocols[name].transport for name in protocols if name in catalog.protocols}
        if address.scheme and not (protocols and transports <= {"tcp"}):
            yield Finding(location, f"{address.scheme}:// is for protocols over TCP; expected HOST:PORT, got {VALUE}")


def _binds(parts: Parts) -> Iterator[tuple[Location, Address, tuple[str, ...]]]:
    for at, listener in parts.listeners.items():
        yield ("listeners", at, "bind"), listener.bind, listener.protocols
    for name, port in (("admin", parts.admin), ("health", parts.health), ("scaler", parts.scaler)):
        if port is not None:
            yield (name, "bind"), port.bind, ()
    for at, reference in parts.reference.items():
        yield ("reference", at, "bind"), reference.bind, (reference.protocol,)


def _clashes(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    by_port: dict[int | str, list[tuple[Location, Address]]] = {}
    for location, address, _ in _binds(parts):
        by_port.setdefault(address.path or address.port, []).append((location, address))
    by_port.pop(0, None)  # the system chooses the port
    for alike in by_port.values():
        for (first, one), (second, other) in combinations(alike, 2):
            if one.clashes(other):
                yield Finding(second, f"{VALUE} is taken by {dotted(first)}; choose another address")


def _route_names(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for at, route in parts.routes.items():
        same = first.setdefault(route.name, at)
        if same == at:
            continue
        if "name" in route.model_fields_set:
            yield Finding(("routes", at, "name"), f"routes[{same}] is also called {VALUE}; choose another name")
        elif route.match != parts.routes[same].match:  # equal routes are another error
            text = f"routes[{same}] is also called {route.name!r}, the text of this match; add a `name` to this route"
            yield Finding(("routes", at, "match"), text, at_key=True)


def _names_in_routes(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for at, route in parts.routes.items():
        for place, name in zip(route.backend_places, route.backends, strict=True):
            yield from unknown(("routes", at, *place), "backend", name, parts.backend_names)
        if route.match.listener is not None:
            location = ("routes", at, "match", "listener")
            yield from unknown(location, "listener", route.match.listener, parts.listener_names)
        for number, policy in enumerate(route.policies):
            for key, name in policy.other_backends.items():
                below: Location = ("routes", at, "policies", number, policy.name, key)
                yield from unknown(below, "backend", name, parts.backend_names)


def _loaded_by_two(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find servers that two backends with model loading share. Neither backend knows how much capacity the other
    uses."""
    loading = [
        (key, each)
        for key, each in parts.backends.items()
        if each.placement is not None and each.placement.loads and each.protocol in catalog.protocols
    ]
    seen: dict[EndpointAddress, str] = {}
    for key, backend in loading:
        for at, address in enumerate(backend.addresses):
            try:
                place = catalog.parse_endpoint(catalog.protocols[backend.protocol].transport, address)
            except ValueError:
                continue  # another check reports it
            other = seen.setdefault(place, key)
            if other != key:
                text = f"backend {other!r} also loads models on {VALUE}, so both together could exceed its capacity"
                yield Finding(("backends", key, "endpoints", at, "address"), f"{text}; use one backend for both")


def _placed_without_decoding(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find routes whose messages are not decoded, to backends that need the model's name."""
    for at, route in parts.routes.items():
        for place, name in zip(route.backend_places, route.backends, strict=True):
            found = parts.backends.get(name)
            if route.passthrough and found is not None and found.placement is not None:
                text = f"`placement` of backend {VALUE} needs the model, but passthrough does not decode messages"
                yield Finding(("routes", at, *place), f"{text}; remove one of them")


_NAME_CHECKS: tuple[Callable[[Parts, Catalog], Iterator[Finding]], ...] = (
    protocol_names,
    _listener_names,
    _bind_schemes,
    _clashes,
    _within_sections,
    _loaded_by_two,
    _placed_without_decoding,
    _route_names,
    _names_in_routes,
    path_ties,
    open_paths,
)


def dotted(location: Location) -> str:
    """Return the location in the form `listeners[0].bind`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return text.removeprefix(".")
