"""The keys of `backends`. `discovery`, `servers`, `placement`, `load` and `tls` have modules of their own.

An attribute is a key, and its docstring is the key's description in `docs/configuration`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from gateway.config.catalog import Catalog, EndpointAddress
from gateway.config.discovery import DiscoveryConfig
from gateway.config.document import Location
from gateway.config.fields import (
    VALUE,
    EachHeaderOnce,
    Flag,
    HeaderName,
    Keys,
    Name,
    OrText,
    Period,
    Seconds,
    SecretHeaderValue,
    Share,
    Size,
    distinct,
    distinct_by,
    refusal,
)
from gateway.config.forms import JSON
from gateway.config.limits import LimitsKey
from gateway.config.placement import PlacementConfig
from gateway.config.policies import Policies
from gateway.config.problems import Finding, unknown, unused, wrong_settings
from gateway.config.reported_load import DEFAULT_LOAD, URL_HOST, URL_PORT, LoadConfig, PageUrl
from gateway.config.servers import ServersConfig
from gateway.config.tls import BackendTlsConfig
from gateway.core.protocol import GrpcBinding, Limits, Protocol, StreamBinding
from gateway.core.record import ID_HEADER
from gateway.core.spans import TRACE_HEADERS
from gateway.core.transport import HOST, FixedFields
from gateway.protocols.json.form import PREFIX

# RFC 9110, section 7.6.1, and the headers that the gateway sets in its own requests to backends.
_NEVER_FORWARDED = frozenset(
    {
        "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect",
        "gateway-hops", "gateway-reason", "host", "inference-header-content-length", "keep-alive", "proxy-connection",
        "request-timeout", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip


def _forwardable(name: str) -> str:
    if name in _NEVER_FORWARDED:
        raise refusal("{value} is set by the gateway for each connection and cannot be forwarded")
    return name


# The gateway writes the headers of its request ids and traces for each request.
_NEVER_FIXED = (_NEVER_FORWARDED - {HOST}) | {ID_HEADER, *TRACE_HEADERS}


# "gRPC over HTTP2": Custom-Metadata consists of these characters; names that begin with grpc- are reserved, and the
# gateway writes user-agent itself.
_METADATA = re.compile(r"(?!grpc-|user-agent$)[0-9a-z_.-]+")
_HOST_VALUE = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::[0-9]{1,5})?")


def _server_headers(given: Any) -> Any:
    """Check the `headers` of a backend as written, before the names are changed to lower case."""
    for name, text in given.items() if isinstance(given, dict) else ():
        lower = str(name).lower()
        if lower in _NEVER_FIXED or lower.startswith("grpc-"):
            raise refusal(f"{name!r} is set by the gateway for each request and cannot be in `headers`", name)
        if lower.endswith("-bin"):
            raise refusal(f"{name!r}: headers that end in -bin are bytes over gRPC; choose another name", name)
        if lower == HOST and isinstance(text, str) and not _HOST_VALUE.fullmatch(text):
            raise refusal("expected a host name, with or without :PORT", name)
    return given


class EjectionConfig(Keys):
    """Settings for ejection, which temporarily takes an endpoint out of service if calls fail."""

    failures: Size = 5
    """Number of consecutive calls that time out or receive a malformed response after which the gateway ejects the
    endpoint. It ejects an unreachable endpoint immediately, for 1 s."""
    seconds: Period = 10
    """Duration of the first ejection, in seconds. If the endpoint has returned no response since its previous ejection,
    the next ejection lasts twice as long, up to 60 s (or up to this value, if it is larger)."""
    max_ejected_share: Share = 0.5
    """Maximum fraction of the backend's endpoints that receive no calls because they are down, rounded up. The last
    endpoint always receives calls, unless this value is 1. In that case, calls fail immediately while all endpoints are
    down."""


class BackendHealthConfig(Keys):
    """Settings for probes and for ejection of failing endpoints. If this key is absent, the gateway does not probe
    endpoints."""

    probe: Literal["live", "ready", "none"] | None = None
    """Type of probe in the backend's protocol: `live` checks whether the server is live, and `ready` whether it is
    ready. `none`: no probes. Default: `live` for grps, `ready` for all other protocols."""
    interval: Period = 5
    """Interval between probes of an endpoint, in seconds."""
    timeout: Period = 2
    """Timeout of a probe, in seconds."""
    unhealthy: Size = 3
    """Number of consecutive failed probes after which an endpoint is down."""
    healthy: Size = 1
    """Number of consecutive successful probes after which an endpoint that is down receives calls again."""
    jitter: Share = 0.1
    """Maximum random variation of each wait, as a fraction of `interval`. The variation spreads the probes of different
    endpoints and replicas over time."""
    ejection: EjectionConfig = EjectionConfig()
    """Ejection of endpoints whose calls fail. These settings apply even if `probe` is `none`."""

    def warnings(self, location: Location) -> Iterator[Finding]:
        """Find keys without effect."""
        for key in ("interval", "timeout", "unhealthy", "healthy", "jitter"):
            if self.probe == "none" and key in self.model_fields_set:
                yield unused((*location, key), "`probe` is none")


class EndpointConfig(Keys):
    """A model server: its address, or a map with the address and other keys."""

    address: Name
    """Address of the server: `HOST:PORT`, or a URL if the protocol uses HTTP. With TLS: `https://HOST:PORT`,
    `grpcs://HOST:PORT` or `tcps://HOST:PORT`."""
    weight: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] = 1
    """Weight of the server in load balancing, relative to the weights of the backend's other servers."""
    load_url: PageUrl | None = None
    """URL of the page on which this server reports its load. This URL overrides the backend's `load.url`."""


def _with_address(given: Any) -> Any:
    """Return the map for an endpoint of which only the address is given."""
    return given if isinstance(given, (dict, EndpointConfig)) else {"address": given}


class QueueConfig(Keys):
    """Settings for calls that wait because every endpoint has `max_in_flight` calls in flight."""

    length: Size = 1000
    """Maximum number of waiting calls. The gateway rejects calls above this limit. It also rejects a client's call if
    the client already has as many waiting calls as the queue has free positions."""
    timeout: Period | None = None
    """Maximum time that a call waits, in seconds. The gateway then rejects the call. Default: a call waits until its
    deadline."""
    wait_for_endpoints: Period | None = None
    """Maximum time that a call or a metadata request waits while `discovery` finds no endpoint, in seconds. This time
    does not count toward `timeout`. Use this key if an autoscaler starts the servers on demand (`scaler`). If this key
    is set, a DNS name without addresses means that the backend has no endpoints. Default: calls fail immediately."""


class BackendConfig(Keys):
    """A group of model servers with the same models, or, with `placement`, with different models."""

    protocol: Name
    """Protocol of the servers. With `json`, set `form`."""
    form: Name = ""
    """Form that describes the servers' JSON API: a name in `forms`, or a built-in form. `{protocol: json, form: NAME}`
    is the same as `protocol: "json:NAME"`."""
    endpoints: Annotated[
        tuple[Annotated[EndpointConfig, BeforeValidator(_with_address), OrText(minLength=1)], ...],
        AfterValidator(distinct_by("address")),
    ] = ()
    """The servers, each as an address, or as a map such as `{address: ..., weight: ...}`. An address is `HOST:PORT`, or
    a URL if the protocol uses HTTP. Required, unless `discovery` finds servers by `srv`, `files` or `register`, or
    `servers` starts them."""
    discovery: DiscoveryConfig | None = None
    """Methods to discover endpoints at runtime: see `docs/discovery.md`. Default: the endpoints never change."""
    servers: ServersConfig | None = None
    """Model servers that the gateway starts when calls are waiting, instead of `endpoints`: see `docs/servers.md`."""
    placement: PlacementConfig | None = None
    """Settings for servers with different models. The gateway sends each request to a server that has the requested
    model, and can load models on demand. Default: all servers have the same models."""
    balance: Literal["least_in_flight", "least_load", "round_robin", "power_of_two"] = "least_in_flight"
    """Load balancing. `least_in_flight`: the endpoint with the fewest calls in flight (equally busy endpoints take
    turns). `least_load`: the endpoint with the lowest reported load (`load`). `round_robin`: the next endpoint.
    `power_of_two`: the less busy one of two random endpoints."""
    load: LoadConfig | None = None
    """Source of the servers' load for `balance: least_load`. Default for v2-rest and v2-grpc: Triton's metrics page on
    port 8002."""
    slow_start: Seconds = 0
    """Time after an ejection during which the endpoint's weight grows from 5% to 100%, in seconds. 0: full weight
    immediately."""
    policies: Policies = ()
    """Policies for calls to the backend, outermost first: a list of `{POLICY: SETTINGS}`."""
    safe: Flag = False
    """Declares that calls are idempotent: the models have no side effects, and you can afford to run a call twice. The
    gateway can then repeat calls that a server might have received. Required by the policies `retry` and `hedge`."""
    trust_metadata: Flag = False
    """Trust the backend's metadata, although servers of its protocol usually report wrong types (graphpipe) or no
    tensors (grps). The gateway uses this metadata to convert requests, and returns it to clients."""
    max_in_flight: Size | None = None
    """Maximum number of calls in flight per endpoint; additional calls wait in the queue. Default: 1 for umbridge and
    mip, no limit for other protocols."""
    queue: QueueConfig = QueueConfig()
    """Settings for calls that wait for a free slot because of `max_in_flight`."""
    batch: Name = ""
    """Batch format, if the protocol has several. For mip: `split`: all rows in one packet, each row as one example;
    `whole`: the tensors unchanged, as one example in one packet; `each`: one packet per row."""
    flavor: Name = ""
    """Server type, for protocols that servers implement differently. For v2-rest: `triton`, `mlserver`, `kserve`,
    `openvino`, `binary` (any other server with binary tensors) or `plain`. For v2-grpc, also `typed` (reads only typed
    contents). For v1-rest: `kserve`, `tensorflow` or `gateway` (another gateway). Default: the gateway detects the type
    of each server before its first call."""
    settings: Mapping[Name, Name] = {}
    """`{KEY: TEXT}`: [protocol-specific settings](protocols/grps.md#settings). For grps-rest, `ctrl_mode` and
    `ctrl_key` set how the gateway requests a stream."""
    limits: LimitsKey = Field(default_factory=Limits)
    """Limits for the backend's responses."""
    forward_headers: Annotated[
        tuple[Annotated[HeaderName, AfterValidator(_forwardable)], ...], AfterValidator(distinct)
    ] = ()
    """Client headers that the gateway forwards to the backend. The gateway drops all other client headers."""
    headers: Annotated[Mapping[HeaderName, SecretHeaderValue], EachHeaderOnce, BeforeValidator(_server_headers)] = {}
    """`{NAME: VALUE}`: headers (over gRPC, metadata) that the gateway sends with every request to the servers,
    including probes and metadata requests. These headers replace the gateway's own headers with the same names. `Host`
    sets the requested host name (over gRPC `:authority`), instead of the address. The gateway never shows the
    values."""
    health: BackendHealthConfig | None = None
    """Probes, and ejection of failing endpoints. Default: no probes; the gateway detects failing endpoints only from
    calls."""
    tls: BackendTlsConfig | None = None
    """TLS settings for connections to all backend servers. The gateway uses TLS for addresses that begin with
    `https://`, `grpcs://` or `tcps://` even without this key."""

    @model_validator(mode="before")
    @classmethod
    def _with_form(cls, given: Any) -> Any:
        """Set the protocol to `json:FORM` if the backend has the form in the key `form`."""
        if isinstance(given, dict) and given.get("protocol") == JSON and isinstance(given.get("form"), str):
            return {**given, "protocol": PREFIX + given["form"]}
        return given

    @property
    def sent_headers(self) -> FixedFields:
        """The backend's `headers` in the format of requests."""
        return tuple((name.encode(), each.get_secret_value().encode()) for name, each in self.headers.items())

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the backend's endpoints, as written in the configuration."""
        return tuple(each.address for each in self.endpoints)

    def findings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find errors in the backend's sections, inconsistent keys, and keys that the protocol does not support."""
        if self.form and self.protocol != PREFIX + self.form:
            text = f"`form` needs `protocol: json`, but the protocol is {self.protocol}; remove one of them"
            yield Finding((*location, "form"), text, at_key=True)
        if self.discovery is not None:
            yield from self.discovery.findings((*location, "discovery"), catalog)
        if self.servers is not None:
            yield from self.servers.findings((*location, "servers"))
            yield from _beside_servers(location, self)
        protocol = catalog.protocols.get(self.protocol)
        if self.placement is not None:
            yield from self.placement.findings((*location, "placement"), protocol)
        if self.tls is not None:
            yield from _addresses_without_tls(location, self)
        if protocol is not None:  # another check reports an unknown protocol
            yield from _addresses(location, self, protocol, catalog)
            yield from _unsupported(location, self, protocol)
            yield from _headers(location, self, protocol)
            yield from _load(location, self, protocol)

    def whole_findings(self, location: Location) -> Iterator[Finding]:
        """Find a valid backend without endpoints."""
        found = self.discovery
        if found is not None:
            yield from found.whole_findings((*location, "discovery"))
        if self.endpoints or self.servers or (found is not None and found.methods != ("dns",)):
            return
        place: Location = (*location, "endpoints") if "endpoints" in self.model_fields_set else location
        if found is not None:
            yield Finding(place, "`endpoints` needs a host name, which `discovery: {dns: all}` looks up")
        else:
            yield Finding(place, "`endpoints` needs an address, or `discovery` one of srv, files and register")

    def warnings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find keys without effect, and programs that are missing on this machine."""
        waits = self.queue.wait_for_endpoints is not None
        if waits and self.discovery is None:
            text = "endpoints never change, because `discovery` is missing; remove it"
            yield unused((*location, "queue", "wait_for_endpoints"), text)
        has_queue = self.max_in_flight or catalog.protocols[self.protocol].traits.servers.max_in_flight
        if "queue" in self.model_fields_set and not has_queue and not waits:
            text = "calls wait only if `max_in_flight` limits them; add `max_in_flight`"
            yield unused((*location, "queue"), text)
        yield from _unused_load(location, self)
        if self.health is not None:
            yield from self.health.warnings((*location, "health"))
        if self.servers is not None:
            yield from self.servers.warnings((*location, "servers"), catalog)


def _beside_servers(location: Location, backend: BackendConfig) -> Iterator[Finding]:
    """Find keys that conflict with `servers`."""
    if backend.endpoints:
        yield Finding((*location, "endpoints"), "a backend with `servers` has no `endpoints`; remove one of them")
    if backend.discovery is not None:
        text = "a backend with `servers` cannot use `discovery`; remove one of the keys"
        yield Finding((*location, "discovery"), text, at_key=True)
    if backend.queue.wait_for_endpoints is not None:
        text = "calls wait for servers anyway, for at most `servers.start_timeout`; remove the key"
        yield Finding((*location, "queue", "wait_for_endpoints"), text, at_key=True)
    if backend.placement is not None:
        text = "all servers that the gateway starts have the same models; remove one of the keys"
        yield Finding((*location, "placement"), f"{text}, `placement` or `servers`", at_key=True)


def _addresses_without_tls(location: Location, backend: BackendConfig) -> Iterator[Finding]:
    for at, address in enumerate(backend.addresses):
        if address.partition(":")[0].lower() in ("http", "tcp", "unix") and address[address.find(":") :][1:2] == "/":
            text = f"the backend has `tls`, and {VALUE} is an address without TLS; change one of them"
            yield Finding((*location, "endpoints", at, "address"), text)


def _addresses(location: Location, backend: BackendConfig, protocol: Protocol, catalog: Catalog) -> Iterator[Finding]:
    """Find invalid addresses, and `discovery: {dns: all}` without a host name."""
    places: list[EndpointAddress] = []
    for at, endpoint in enumerate(backend.addresses):
        try:
            places.append(catalog.parse_endpoint(protocol.transport, endpoint))
        except ValueError as error:
            # The message can contain the endpoint, and with it the value of a reference.
            text = str(error).replace(repr(endpoint), VALUE).replace(endpoint, VALUE)
            yield Finding((*location, "endpoints", at, "address"), text)
    resolves = backend.discovery is not None and backend.discovery.dns is not None
    if resolves and 0 < len(places) == len(backend.addresses) and not any(place.has_name for place in places):
        text = "no endpoint has a host name that the gateway could look up; remove the key"
        yield Finding((*location, "discovery", "dns"), text, at_key=True)


def _unsupported(location: Location, backend: BackendConfig, protocol: Protocol) -> Iterator[Finding]:
    """Find keys that the protocol does not support, and unknown names in them."""
    name, models, flavors = protocol.name, protocol.traits.models, protocol.traits.servers.flavors
    yield from wrong_settings((*location, "settings"), protocol, backend.settings)
    if backend.flavor and flavors is None:
        yield Finding((*location, "flavor"), f"{name} has no flavors; remove the key", at_key=True)
    elif backend.flavor and flavors is not None:
        yield from unknown((*location, "flavor"), f"flavor of {name}", backend.flavor, flavors.names)
    if backend.batch and protocol.batches:
        yield from unknown((*location, "batch"), f"batch of {name}", backend.batch, protocol.batches)
    elif backend.batch:
        yield Finding((*location, "batch"), f"{name} has one way to send a batch; remove the key", at_key=True)
    if backend.trust_metadata and not models.metadata_parts:
        yield Finding((*location, "trust_metadata"), f"{name} has no metadata; remove the key", at_key=True)
    elif backend.trust_metadata and models.trusted_metadata:
        text = f"the gateway always trusts {name} metadata; remove the key"
        yield Finding((*location, "trust_metadata"), text, at_key=True)


def _headers(location: Location, backend: BackendConfig, protocol: Protocol) -> Iterator[Finding]:
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


_LEAST_LOAD = "least_load"
_TRITON_PROTOCOLS = ("v2-rest", "v2-grpc")
"""Protocols whose servers can be Triton servers, for which `load` has a default."""


def _load(location: Location, backend: BackendConfig, protocol: Protocol) -> Iterator[Finding]:
    """Find missing keys, and unusable sources of load reports."""
    if backend.balance == _LEAST_LOAD:
        if backend.load is not None:
            yield from backend.load.findings((*location, "load"), protocol)
        elif backend.protocol not in _TRITON_PROTOCOLS or backend.flavor not in ("", "triton"):
            servers = f"{backend.flavor or backend.protocol} servers"
            text = f"{VALUE} needs the key `load`, because the gateway cannot know how {servers} report their load"
            yield Finding((*location, "balance"), text)
        yield from _load_sockets(location, backend)


def _load_sockets(location: Location, backend: BackendConfig) -> Iterator[Finding]:
    """Find endpoints on unix sockets, which have no host for a metrics page's URL."""
    load = backend.load or DEFAULT_LOAD
    if load.kind == "orca" or not (URL_HOST in load.url or URL_PORT in load.url):
        return
    for at, endpoint in enumerate(backend.endpoints):
        if endpoint.address.startswith("unix:") and endpoint.load_url is None:
            text = "a unix socket has no host for the server's load page; add `load_url`"
            yield Finding((*location, "endpoints", at, "address"), text)


def _unused_load(location: Location, backend: BackendConfig) -> Iterator[Finding]:
    is_read = backend.balance == _LEAST_LOAD
    if backend.load is not None and is_read:
        yield from backend.load.warnings((*location, "load"))
    elif backend.load is not None:
        yield unused((*location, "load"), f"`balance` is {backend.balance}")
    for at, endpoint in enumerate(backend.endpoints):
        if endpoint.load_url is not None and not (is_read and (backend.load or DEFAULT_LOAD).kind != "orca"):
            yield unused((*location, "endpoints", at, "load_url"), "the gateway reads no load page")
