"""Checks of backends: endpoints, discovery, servers that the gateway starts, headers, placement, load, and keys
that the protocol does not support. `name_checks` calls `backend_findings`, `warnings` calls `unused_load_keys`."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gateway.config.backends import DEFAULT_LOAD, URL_HOST, URL_PORT, BackendConfig, LoadConfig
from gateway.config.catalog import Catalog, EndpointAddress
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.partial import Parts
from gateway.config.placement import OF_LOADING
from gateway.config.problems import Finding, suggestion, unknown
from gateway.core.operations import Operation
from gateway.core.protocol import GrpcBinding, Protocol, SettingError, StreamBinding
from gateway.core.transport import HOST

_SRV_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
# "gRPC over HTTP2": Custom-Metadata consists of these characters; names that begin with grpc- are reserved, and the
# gateway writes user-agent itself.
_METADATA = re.compile(r"(?!grpc-|user-agent$)[0-9a-z_.-]+")


def backend_findings(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Yield all findings of these checks."""
    for name, backend in parts.backends.items():
        location, protocol = ("backends", name), catalog.protocols.get(backend.protocol)
        yield from _discovery(location, backend, catalog)
        yield from _servers(location, backend)
        yield from _placement((*location, "placement"), backend)
        if protocol is not None:  # another check reports an unknown protocol
            for check in _OF_PROTOCOL:
                yield from check(location, backend, protocol, catalog)
    yield from _loaded_by_two(parts, catalog)
    yield from _placed_without_decoding(parts)


def _settings(location: Location, backend: BackendConfig, protocol: Protocol, catalog: Catalog) -> Iterator[Finding]:
    return own_settings((*location, "settings"), protocol, backend.settings)


def own_settings(location: Location, protocol: Protocol, values: Mapping[str, str]) -> Iterator[Finding]:
    """Find settings that the protocol does not support, or whose values are invalid."""
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


def _endpoints(location: Location, backend: BackendConfig, protocol: Protocol, catalog: Catalog) -> Iterator[Finding]:
    for at, endpoint in enumerate(backend.addresses):
        try:
            catalog.parse_endpoint(protocol.transport, endpoint)
        except ValueError as error:
            # The message can contain the endpoint, and with it the value of a reference.
            text = str(error).replace(repr(endpoint), VALUE).replace(endpoint, VALUE)
            yield Finding((*location, "endpoints", at, "address"), text)


def _discovery(location: Location, backend: BackendConfig, catalog: Catalog) -> Iterator[Finding]:
    found = backend.discovery
    if found is None:
        return
    above: Location = (*location, "discovery")
    if found.registration and "interval" in found.model_fields_set and not (found.dns or found.srv or found.files):
        text = "has no effect on servers that register themselves; remove the key, or add dns, srv or files"
        yield Finding((*above, "interval"), text, at_key=True)
    if found.srv is not None and not _SRV_NAME.fullmatch(found.srv):
        yield Finding((*above, "srv"), f"expected a DNS name such as _http._tcp.models.default.svc, got {VALUE}")
    if found.srv is not None and not catalog.srv:
        text = 'needs dnspython, which is not installed: pip install "modelglot[discovery]"'
        yield Finding((*above, "srv"), text, at_key=True)
    if found.files is not None and not found.files.startswith("/"):
        yield Finding((*above, "files"), f"expected an absolute path such as /run/models/url-*.txt, got {VALUE}")


def _dns(location: Location, backend: BackendConfig, protocol: Protocol, catalog: Catalog) -> Iterator[Finding]:
    """Find `discovery: {dns: all}` on backends without a host name."""
    if backend.discovery is None or backend.discovery.dns is None or not backend.endpoints:
        return
    try:
        places = [catalog.parse_endpoint(protocol.transport, endpoint) for endpoint in backend.addresses]
    except ValueError:
        return  # another check reports it
    if not any(place.has_name for place in places):
        text = "no endpoint has a host name that the gateway could look up; remove the key"
        yield Finding((*location, "discovery", "dns"), text, at_key=True)


def _servers(location: Location, backend: BackendConfig) -> Iterator[Finding]:
    """Find inconsistent keys in `servers`, and files that do not exist."""
    found = backend.servers
    if found is None:
        return
    above: Location = (*location, "servers")
    if backend.endpoints:
        yield Finding((*location, "endpoints"), "a backend with `servers` has no `endpoints`; remove one of them")
    if backend.discovery is not None:
        text = "a backend with `servers` cannot use `discovery`; remove one of the keys"
        yield Finding((*location, "discovery"), text, at_key=True)
    if backend.queue.wait_for_endpoints is not None:
        text = "calls wait for servers anyway, for at most `servers.start_timeout`; remove the key"
        yield Finding((*location, "queue", "wait_for_endpoints"), text, at_key=True)
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


def _trust_metadata(
    location: Location, backend: BackendConfig, protocol: Protocol, catalog: Catalog
) -> Iterator[Finding]:
    above: Location = (*location, "trust_metadata")
    if backend.trust_metadata and not protocol.traits.models.metadata_parts:
        yield Finding(above, f"{protocol.name} has no metadata; remove the key", at_key=True)
    elif backend.trust_metadata and protocol.traits.models.trusted_metadata:
        yield Finding(above, f"the gateway always trusts {protocol.name} metadata; remove the key", at_key=True)


def _flavor(location: Location, backend: BackendConfig, protocol: Protocol, catalog: Catalog) -> Iterator[Finding]:
    flavors = protocol.traits.servers.flavors
    if backend.flavor and flavors is None:
        yield Finding((*location, "flavor"), f"{protocol.name} has no flavors; remove the key", at_key=True)
    elif backend.flavor and flavors is not None:
        yield from unknown((*location, "flavor"), f"flavor of {protocol.name}", backend.flavor, flavors.names)


def _batch(location: Location, backend: BackendConfig, protocol: Protocol, catalog: Catalog) -> Iterator[Finding]:
    if backend.batch and protocol.batches:
        yield from unknown((*location, "batch"), f"batch of {protocol.name}", backend.batch, protocol.batches)
    elif backend.batch:
        text = f"{protocol.name} has one way to send a batch; remove the key"
        yield Finding((*location, "batch"), text, at_key=True)


def _headers(location: Location, backend: BackendConfig, protocol: Protocol, catalog: Catalog) -> Iterator[Finding]:
    """Find headers that the backend's protocol cannot transport, or that are also forwarded from clients."""
    above: Location = (*location, "headers")
    if backend.headers and isinstance(protocol.binding, StreamBinding):
        yield Finding(above, f"messages of {protocol.name} have no headers; remove the key", at_key=True)
        return
    for name in backend.headers:
        if isinstance(protocol.binding, GrpcBinding) and name != HOST and not _METADATA.fullmatch(name):
            yield Finding(above, f"gRPC cannot carry {name!r} as metadata; remove it", at_key=True)
        if name in backend.forward_headers:
            at = backend.forward_headers.index(name)
            text = f"{VALUE} is also in `headers`, whose value is always sent; remove one of them"
            yield Finding((*location, "forward_headers", at), text)


# --- Load ---

_LEAST_LOAD = "least_load"
_TRITON_PROTOCOLS = ("v2-rest", "v2-grpc")
"""Protocols whose servers can be Triton servers, for which `load` has a default."""

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OF_PAGES = ("url", "interval", "timeout")
_UNUSED = {"triton": ("metric", "labels", "measures"), "prometheus": (), "orca": (*_OF_PAGES, "labels")}
"""The keys without effect, for each value of `from`."""


def _load(location: Location, backend: BackendConfig, protocol: Protocol, catalog: Catalog) -> Iterator[Finding]:
    """Find missing keys, and unusable sources of load reports."""
    if backend.balance == _LEAST_LOAD:
        yield from _missing_load(location, backend)
        if backend.load is not None:
            yield from _load_source((*location, "load"), backend.load, protocol)
        yield from _load_sockets(location, backend)


def unused_load_keys(location: Location, backend: BackendConfig) -> Iterator[tuple[Location, str]]:
    """Return the keys without effect, with the reason for each."""
    load = backend.load
    if backend.balance != _LEAST_LOAD:
        if load is not None:
            yield (*location, "load"), f"`balance` is {backend.balance}"
        reads = None
    else:
        reads = load or DEFAULT_LOAD
        for key in _UNUSED[reads.kind]:
            if key in reads.model_fields_set:
                yield (*location, "load", key), f"`from` is {reads.kind}"
    for at, endpoint in enumerate(backend.endpoints):
        if endpoint.load_url is not None and (reads is None or reads.kind == "orca"):
            yield (*location, "endpoints", at, "load_url"), "the gateway reads no load page"


def _missing_load(location: Location, backend: BackendConfig) -> Iterator[Finding]:
    if backend.load is None and (backend.protocol not in _TRITON_PROTOCOLS or backend.flavor not in ("", "triton")):
        server = f"{backend.protocol} servers" if not backend.flavor else f"{backend.flavor} servers"
        text = f"{VALUE} needs the key `load`, because the gateway cannot know how {server} report their load"
        yield Finding((*location, "balance"), text)


def _load_source(location: Location, load: LoadConfig, protocol: Protocol) -> Iterator[Finding]:
    if load.kind == "prometheus":
        if load.metric is None:
            yield Finding(location, "expected the key `metric`: the gauge of a server's load", at_key=True)
        elif not _METRIC.fullmatch(load.metric):
            yield Finding((*location, "metric"), f"{VALUE} is not a valid metric name")
        if "url" not in load.model_fields_set:
            yield Finding(location, "expected the key `url`, such as http://{host}:8000/metrics", at_key=True)
        for label in load.labels:
            if not _LABEL.fullmatch(label):
                yield Finding((*location, "labels", label), f"{label!r} is not a valid label name", at_key=True)
    if load.kind == "orca" and isinstance(protocol.binding, StreamBinding):
        text = f"{protocol.name} responses have no headers for load reports; use `from: prometheus`"
        yield Finding((*location, "from"), text)
    if load.kind != "orca" and load.stale < load.interval:
        yield Finding((*location, "stale"), f"expected at least `interval`, which is {load.interval:g}, got {VALUE}")


def _load_sockets(location: Location, backend: BackendConfig) -> Iterator[Finding]:
    """Find endpoints on unix sockets, which have no host for a metrics page's URL."""
    load = backend.load or DEFAULT_LOAD
    if load.kind == "orca" or not (URL_HOST in load.url or URL_PORT in load.url):
        return
    for at, endpoint in enumerate(backend.endpoints):
        if endpoint.address.startswith("unix:") and endpoint.load_url is None:
            text = "a unix socket has no host for the server's load page; add `load_url`"
            yield Finding((*location, "endpoints", at, "address"), text)


# --- Placement ---


def _placement(above: Location, backend: BackendConfig) -> Iterator[Finding]:
    """Find keys of `placement` that conflict with each other, or with `servers`."""
    placement = backend.placement
    if placement is None:
        return
    if backend.servers is not None:
        text = "all servers that the gateway starts have the same models; remove one of the keys"
        yield Finding(above, f"{text}, `placement` or `servers`", at_key=True)
    if not placement.loads:
        for key in sorted(placement.model_fields_set.intersection(OF_LOADING)):
            yield Finding((*above, key), "has an effect only with `loading: on_demand`; remove the key", at_key=True)
        return
    if placement.memory is not None and not placement.sizes:
        text = 'this key needs `sizes`, such as `{"*": 2GiB}`: servers do not report model sizes'
        yield Finding((*above, "memory"), text, at_key=True)
    if placement.sizes and placement.memory is None:
        text = "has an effect only with `memory`, the limit for the total size; add `memory`"
        yield Finding((*above, "sizes"), text, at_key=True)
    for glob, size in placement.sizes.items():
        if placement.memory is not None and size > placement.memory:
            text = "no server can load models of this size, which exceeds `memory`; raise `memory`"
            yield Finding((*above, "sizes", glob), text)


def _placement_protocol(
    location: Location, backend: BackendConfig, protocol: Protocol, catalog: Catalog
) -> Iterator[Finding]:
    if backend.placement is None:
        return
    models, above = protocol.traits.models, (*location, "placement")
    if not (models.named or models.may_be_named or models.one_at is not None):
        text = f"{protocol.name} requests do not name a model, which placement needs; remove the key"
        yield Finding(above, text, at_key=True)
    if backend.placement.loads and Operation.LOAD not in protocol.traits.servers.extensions:
        text = f"{protocol.name} servers cannot load models on demand; expected never, got on_demand"
        yield Finding((*above, "loading"), text)


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
                text = f"backend {other!r} also loads models on {{value}}, so both together could exceed its capacity"
                yield Finding(("backends", key, "endpoints", at, "address"), f"{text}; use one backend for both")


def _placed_without_decoding(parts: Parts) -> Iterator[Finding]:
    """Find routes whose messages are not decoded, to backends that need the model's name."""
    for at, route in parts.routes.items():
        for place, name in zip(route.backend_places, route.backends, strict=True):
            found = parts.backends.get(name)
            if route.passthrough and found is not None and found.placement is not None:
                text = f"`placement` of backend {VALUE} needs the model, but passthrough does not decode messages"
                yield Finding(("routes", at, *place), f"{text}; remove one of them")


_OF_PROTOCOL: tuple[Callable[[Location, BackendConfig, Protocol, Catalog], Iterator[Finding]], ...] = (
    _settings, _endpoints, _dns, _load, _placement_protocol, _flavor, _batch, _headers, _trust_metadata,
)  # fmt: skip
"""The checks of a backend against its protocol."""
