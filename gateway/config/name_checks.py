"""Checks of single parts of a configuration: unknown names, invalid or clashing addresses, and keys that the protocol
does not support. `backend_checks` has the checks of backends. `loading` also runs them on the valid parts of an invalid
configuration."""

import re
from collections.abc import Callable, Iterator
from itertools import combinations

from gateway.config.backend_checks import backend_findings, own_settings
from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.form_checks import forms_beside_protocols, protocol_names
from gateway.config.listeners import ListenerConfig
from gateway.config.partial import Parts
from gateway.config.paths import open_paths, path_ties
from gateway.config.problems import Finding, listed, suggestion, unknown
from gateway.config.tls_checks import tls_findings
from gateway.core.address import Address
from gateway.core.protocol import ANY_ORIGIN, HttpBinding, StreamBinding

_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def name_findings(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Yield all findings of these checks."""
    for check in _NAME_CHECKS:
        yield from check(parts, catalog)


def _not_served(location: Location, name: str, listener: ListenerConfig) -> Iterator[Finding]:
    """Find a key that needs the protocol `name`, on a listener without this protocol."""
    if name not in listener.protocols:
        hint = suggestion(name, listener.protocols) or "; add it to `protocols`, or remove the key"
        yield Finding(location, f"the listener does not serve {name!r}{hint}", at_key=True)


def _prefixes(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for at, listener in parts.listeners.items():
        for name in listener.prefix:
            yield from _not_served(("listeners", at, "prefix", name), name, listener)


def _faces(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for at, listener in parts.listeners.items():
        for name, flavor in listener.flavor.items():
            location: Location = ("listeners", at, "flavor", name)
            yield from _not_served(location, name, listener)
            if name in listener.protocols and name in catalog.protocols:
                emulated = catalog.protocols[name].emulated_servers
                if emulated:
                    yield from unknown(location, f"flavor of {name} for clients", flavor, emulated)
                else:
                    yield Finding(location, f"clients of {name} see only one server type; remove the key", at_key=True)


def _settings(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find settings that the protocol does not support, or whose values are invalid."""
    for at, listener in parts.listeners.items():
        for name, values in listener.settings.items():
            location: Location = ("listeners", at, "settings", name)
            yield from _not_served(location, name, listener)
            if name in listener.protocols and name in catalog.protocols:
                yield from own_settings(location, catalog.protocols[name], values)


def _listener_names(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    by_name: dict[str, list[int]] = {}
    for at, listener in parts.listeners.items():
        by_name.setdefault(listener.name, []).append(at)
    for places in by_name.values():
        for first, second in combinations(places, 2):
            yield Finding(
                ("listeners", second, "name"), f"listeners[{first}] is also called {VALUE}; choose another name"
            )


def _shared_addresses(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find protocols at one address that the first bytes of a connection cannot distinguish."""
    for at, listener in parts.listeners.items():
        spoken = [catalog.protocols[name] for name in listener.protocols if name in catalog.protocols]
        streams = {each.name: each.binding for each in spoken if isinstance(each.binding, StreamBinding)}
        if not streams or len({each.name for each in spoken}) == 1:
            continue
        location: Location = ("listeners", at, "protocols")
        for name, form in streams.items():
            if not form.framing.magic:
                text = (
                    f"the first bytes of {name} do not identify it among other protocols; use a separate listener for "
                    "it"
                )
                yield Finding(location, text)
        for (one, first), (other, second) in combinations(streams.items(), 2):
            magics = sorted((first.framing.magic, second.framing.magic))
            if magics[0] and magics[1].startswith(magics[0]):
                text = f"{one} and {other} begin with the same bytes; use a listener for each protocol"
                yield Finding(location, text)
        if listener.bind.path:
            text = f"a unix socket serves one protocol; use HOST:PORT, or a listener for each protocol, got {VALUE}"
            yield Finding(("listeners", at, "bind"), text)


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


def _admin_bind(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    if parts.admin is not None and parts.admin.auth is None and not parts.admin.bind.loopback:
        text = "the status API must be on loopback unless it has `auth`; expected 127.0.0.1:PORT or `auth: {}`"
        yield Finding(("admin", "bind"), f"{text}, got {VALUE}")


def _scaler_bind(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    scaler = parts.scaler
    if scaler is None or scaler.open or scaler.bind.loopback:
        return
    if scaler.tls is None or scaler.tls.client != "required":
        text = "the scaler shows backends and their load; expected an address on loopback, `tls: {client: required}`"
        yield Finding(("scaler", "bind"), f"{text} or `open: true`, got {VALUE}")


def _reference_models(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for at, reference in parts.reference.items():
        for i, name in enumerate(reference.models):
            location = ("reference", at, "models", i)
            if ":" not in name:
                yield from unknown(location, "bundled model", name, catalog.reference_models)
            elif not _ATTRIBUTE.fullmatch(name):
                yield Finding(location, f"expected module:attribute, got {VALUE}")


def _cross_origin(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find `cors` on listeners without HTTP protocols, and `cors` that lets any web page use a browser's
    credentials."""
    for at, listener in parts.listeners.items():
        if listener.cors is None:
            continue
        location: Location = ("listeners", at, "cors")
        spoken = [catalog.protocols[name] for name in listener.protocols if name in catalog.protocols]
        if spoken and not any(isinstance(each.binding, HttpBinding) for each in spoken):
            yield Finding(
                location, "`cors` is for HTTP, but no protocol of the listener uses HTTP; remove the key", at_key=True
            )
        if ANY_ORIGIN in listener.cors.origins and listener.has_credentials:
            text = f"clients of this listener have credentials (`auth`, or `tls.client`): name the origins, got {VALUE}"
            yield Finding((*location, "origins", listener.cors.origins.index(ANY_ORIGIN)), text)


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


def _images(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for at, route in parts.routes.items():
        if route.translate.images is not None and not catalog.images:
            text = 'needs Pillow, which is not installed: pip install "modelglot[images]"'
            yield Finding(("routes", at, "translate", "images"), text, at_key=True)


def _pages(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    having = [name for name, protocol in catalog.protocols.items() if protocol.http.pages]
    for at, listener in parts.listeners.items():
        if listener.metrics_page and not any(name in having for name in listener.protocols):
            text = f"the listener's protocols have no metrics page; remove the key, or add {listed(having)}"
            yield Finding(("listeners", at, "metrics_page"), text, at_key=True)


_NAME_CHECKS: tuple[Callable[[Parts, Catalog], Iterator[Finding]], ...] = (
    protocol_names,
    forms_beside_protocols,
    _prefixes,
    _faces,
    _settings,
    _listener_names,
    _shared_addresses,
    _bind_schemes,
    _clashes,
    _admin_bind,
    _scaler_bind,
    _reference_models,
    backend_findings,
    _cross_origin,
    _route_names,
    _names_in_routes,
    _images,
    _pages,
    path_ties,
    open_paths,
    tls_findings,
)


def dotted(location: Location) -> str:
    """Return the location in the form `listeners[0].bind`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return text.removeprefix(".")
