"""Checks of single parts of a configuration: unknown names, invalid or clashing addresses, and keys that the protocol
does not support. `loading` also runs them on the valid parts of an invalid configuration."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from gateway.config.backends import BackendConfig
from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.form_checks import forms_beside_protocols, protocol_names
from gateway.config.header_checks import cross_origin, server_headers
from gateway.config.listeners import ListenerConfig
from gateway.config.load_checks import load_findings
from gateway.config.partial import Parts
from gateway.config.paths import open_paths, path_ties
from gateway.config.placement_checks import placement_findings
from gateway.config.problems import Finding, listed, suggestion
from gateway.config.tls_checks import tls_findings
from gateway.core.address import Address
from gateway.core.protocol import Protocol, SettingError, StreamBinding

_SRV_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def name_findings(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Yield all findings of these checks."""
    for check in _NAME_CHECKS:
        yield from check(parts, catalog)


def _unknown(location: Location, what: str, name: str, known: Any) -> Iterator[Finding]:
    if name not in known:
        yield Finding(location, f"unknown {what} {VALUE}{suggestion(name, known)}")


def _not_served(location: Location, name: str, listener: ListenerConfig) -> Iterator[Finding]:
    """Find a key that needs the protocol `name`, on a listener without this protocol."""
    if name not in listener.protocols:
        text = f"the listener does not serve {name!r}{suggestion(name, listener.protocols)}"
        yield Finding(location, text, at_key=True)


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
                    yield from _unknown(location, f"flavor of {name} for clients", flavor, emulated)
                else:
                    yield Finding(location, f"clients of {name} see only one server type; remove the key", at_key=True)


def _settings(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find settings that the protocol does not support, or whose values are invalid."""
    for at, listener in parts.listeners.items():
        for name, values in listener.settings.items():
            location: Location = ("listeners", at, "settings", name)
            yield from _not_served(location, name, listener)
            if name in listener.protocols and name in catalog.protocols:
                yield from _own_settings(location, catalog.protocols[name], values)
    for key, backend in parts.backends.items():
        if backend.protocol in catalog.protocols:
            yield from _own_settings(
                ("backends", key, "settings"), catalog.protocols[backend.protocol], backend.settings
            )


def _own_settings(location: Location, protocol: Protocol, values: Mapping[str, str]) -> Iterator[Finding]:
    known = [] if protocol.settings is None else [each.name for each in protocol.settings.keys]
    if values and not known:
        yield Finding(location, f"{protocol.name} has no settings; remove the key", at_key=True)
        return
    for key in values:
        if key not in known:
            text = f"{protocol.name} has no setting {key!r}{suggestion(key, known)}"
            yield Finding((*location, key), text, at_key=True)
    try:
        protocol.with_settings(values)
    except SettingError as error:
        yield Finding((*location, error.key), str(error))


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
                yield from _unknown(location, "bundled model", name, catalog.reference_models)
            elif not _ATTRIBUTE.fullmatch(name):
                yield Finding(location, f"expected module:attribute, got {VALUE}")


def _endpoints(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for key, backend in parts.backends.items():
        if backend.protocol in catalog.protocols:
            transport = catalog.protocols[backend.protocol].transport
            for i, endpoint in enumerate(backend.addresses):
                yield from _endpoint(("backends", key, "endpoints", i, "address"), transport, endpoint, catalog)


def _discovery(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for key, backend in parts.backends.items():
        found = backend.discovery
        if found is None:
            continue
        location: Location = ("backends", key, "discovery")
        if found.registration and "interval" in found.model_fields_set and not (found.dns or found.srv or found.files):
            text = "has no effect on servers that register themselves; remove the key, or add dns, srv or files"
            yield Finding((*location, "interval"), text, at_key=True)
        if found.srv is not None and not _SRV_NAME.fullmatch(found.srv):
            yield Finding((*location, "srv"), f"expected a DNS name such as _http._tcp.models.default.svc, got {VALUE}")
        if found.srv is not None and not catalog.srv:
            text = 'needs dnspython, which is not installed: pip install "modelglot[discovery]"'
            yield Finding((*location, "srv"), text, at_key=True)
        if found.files is not None and not found.files.startswith("/"):
            yield Finding((*location, "files"), f"expected an absolute path such as /run/models/url-*.txt, got {VALUE}")
        if found.dns is not None:
            yield from _dns(key, backend, catalog)


def _servers(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find inconsistent keys in `servers`, and files that do not exist."""
    for key, backend in parts.backends.items():
        found = backend.servers
        if found is None:
            continue
        above: Location = ("backends", key, "servers")
        if backend.endpoints:
            yield Finding((*above[:2], "endpoints"), "a backend with `servers` has no `endpoints`; remove one of them")
        if backend.discovery is not None:
            text = "a backend with `servers` cannot use `discovery`; remove one of the keys"
            yield Finding((*above[:2], "discovery"), text, at_key=True)
        if backend.queue.wait_for_endpoints is not None:
            text = "calls wait for servers anyway, for at most `servers.start_timeout`; remove the key"
            yield Finding((*above[:2], "queue", "wait_for_endpoints"), text, at_key=True)
        if (found.script is None) == (found.command is None):
            yield Finding(above, "expected either `script` or `command`", at_key=True)
        if found.max < found.min:
            yield Finding((*above, "max"), f"expected at least `min`, which is {found.min}, got {VALUE}")
        if found.script is not None:
            yield from _script((*above, "script"), found.script)
        if found.state is not None and not found.state.startswith("/"):
            yield Finding((*above, "state"), f"expected an absolute path, got {VALUE}")
        if found.directory is not None and found.engine != "hyperqueue":
            yield Finding((*above, "directory"), f"the engine {found.engine} has no directory; remove the key")
        if found.engine == "process":
            for name in ("cpus", "gpus", "options"):
                if name in found.resources.model_fields_set:
                    text = "the engine process cannot limit this resource; remove the key"
                    yield Finding((*above, "resources", name), text, at_key=True)


def _script(location: Location, script: str) -> Iterator[Finding]:
    path = Path(script)
    if not path.is_absolute():
        yield Finding(location, f"expected the absolute path of a job script, got {VALUE}")
    elif not path.is_file():
        yield Finding(location, f"{VALUE} is not a file", files=(script,))
    elif not os.access(path, os.R_OK):
        yield Finding(location, f"{VALUE} cannot be read", files=(script,))


def _dns(key: str, backend: BackendConfig, catalog: Catalog) -> Iterator[Finding]:
    """Find `discovery: {dns: all}` on backends without a host name."""
    if backend.protocol not in catalog.protocols or not backend.endpoints:
        return
    transport = catalog.protocols[backend.protocol].transport
    try:
        places = [catalog.parse_endpoint(transport, endpoint) for endpoint in backend.addresses]
    except ValueError:
        return  # another check reports it
    if not any(place.has_name for place in places):
        text = "no endpoint has a host name that the gateway could look up; remove the key"
        yield Finding(("backends", key, "discovery", "dns"), text, at_key=True)


def _trust_metadata(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for key, backend in parts.backends.items():
        protocol = catalog.protocols.get(backend.protocol)
        if not backend.trust_metadata or protocol is None:
            continue
        location = ("backends", key, "trust_metadata")
        if not protocol.traits.models.metadata_parts:
            yield Finding(location, f"{protocol.name} has no metadata; remove the key", at_key=True)
        elif protocol.traits.models.trusted_metadata:
            yield Finding(location, f"the gateway always trusts {protocol.name} metadata; remove the key", at_key=True)


def _endpoint(location: Location, transport: str, endpoint: str, catalog: Catalog) -> Iterator[Finding]:
    try:
        catalog.parse_endpoint(transport, endpoint)
    except ValueError as error:
        # The message can contain the endpoint, and with it the value of a reference.
        yield Finding(location, str(error).replace(repr(endpoint), VALUE).replace(endpoint, VALUE))


def _flavors(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for key, backend in parts.backends.items():
        if backend.flavor and backend.protocol in catalog.protocols:
            location = ("backends", key, "flavor")
            flavors = catalog.protocols[backend.protocol].traits.servers.flavors
            if flavors is None:
                yield Finding(location, f"{backend.protocol} has no flavors; remove the key", at_key=True)
            else:
                yield from _unknown(location, f"flavor of {backend.protocol}", backend.flavor, flavors.names)


def _batches(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    for key, backend in parts.backends.items():
        if backend.batch and backend.protocol in catalog.protocols:
            location = ("backends", key, "batch")
            words = catalog.protocols[backend.protocol].batches
            if words:
                yield from _unknown(location, f"batch of {backend.protocol}", backend.batch, words)
            else:
                text = f"{backend.protocol} has one way to send a batch; remove the key"
                yield Finding(location, text, at_key=True)


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
            yield from _unknown(("routes", at, *place), "backend", name, parts.backend_names)
        if route.match.listener is not None:
            location = ("routes", at, "match", "listener")
            yield from _unknown(location, "listener", route.match.listener, parts.listener_names)
        for number, policy in enumerate(route.policies):
            for key, name in policy.other_backends.items():
                below: Location = ("routes", at, "policies", number, policy.name, key)
                yield from _unknown(below, "backend", name, parts.backend_names)


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
    _endpoints,
    _discovery,
    _servers,
    load_findings,
    placement_findings,
    _flavors,
    _batches,
    server_headers,
    cross_origin,
    _trust_metadata,
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
