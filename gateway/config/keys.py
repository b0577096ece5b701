"""The configuration's keys: listeners, backends and everything at the top. Routes are in `routes`.

An attribute is a key, and its docstring is the key's description in `docs/configuration`.
"""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PrivateAttr,
    Strict,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from gateway.config.access import (
    AdminAuthConfig,
    AuthConfig,
    HealthAuthConfig,
    ListenerAuthConfig,
    PermissionSets,
    PrincipalEntries,
)
from gateway.config.address import Bind
from gateway.config.declared import Declared
from gateway.config.document import Location
from gateway.config.fields import (
    VALUE,
    EachHeaderOnce,
    Flag,
    HeaderName,
    Keys,
    Name,
    Period,
    Seconds,
    Secret,
    SecretHeaderValue,
    Share,
    Size,
    SomeNames,
    distinct,
    refusal,
)
from gateway.config.forms import JSON, PREFIX, FormEntries
from gateway.config.graphs import Graphs
from gateway.config.load import LoadConfig, PageUrl
from gateway.config.payload_log import PayloadLogConfig
from gateway.config.placement import PlacementConfig
from gateway.config.policies import Policies
from gateway.config.problems import Problem
from gateway.config.routes import Check, RouteConfig
from gateway.config.servers import ServersConfig
from gateway.config.tls import BackendTlsConfig, ListenerTlsConfig
from gateway.core.protocol import ANY_ORIGIN, CrossOrigin, Limits, PositiveSeconds
from gateway.core.record import ID_HEADER
from gateway.core.spans import TRACE_HEADERS
from gateway.core.transport import HOST, FixedFields

_LIMIT_FORMS: Mapping[Any, Any] = {int: Size, float: Seconds, PositiveSeconds: Period}
_OF_MESSAGES = ("message", "headers", "json_values", "config", "inflation")
LimitsKey = Annotated[Limits, Declared(Limits, _LIMIT_FORMS, {}, only=_OF_MESSAGES)]
"""The limits of a backend: those of what it answers."""
ListenerLimitsKey = Annotated[Limits, Declared(Limits, _LIMIT_FORMS, {})]


def _prefix(path: str) -> str:
    if not path.startswith("/") or path.endswith("/") or not set(path).isdisjoint("{}?# %"):
        raise refusal("expected a path such as /science, without a slash at its end and without { } ? # %, got {value}")
    return path


class ErrorsConfig(Keys):
    """Settings of what errors tell clients."""

    detail: Literal["full", "brief"] = "full"
    """`brief` hides the names and addresses of backends and the reason why one cannot be reached; the log has them."""


def _log_path(path: str) -> str:
    if path not in ("stdout", "stderr") and not path.startswith("/"):
        raise refusal("expected stdout, stderr or the absolute path of a file, got {value}")
    return path


class AccessConfig(Keys):
    """The access log: one line for each request, written when it has ended. It has no values of headers, no keys and no
    tensors."""

    when: Literal["auto", "always", "never"] = "auto"
    """Whether lines are written. With `auto` they are if `format` is `json`, if `path` is a file, or if they go to a
    terminal."""
    sample: Share = 1
    """The share of successful requests that have a line. Requests that failed always have one."""
    path: Annotated[Name, AfterValidator(_log_path)] = "stdout"
    """`stdout`, `stderr` or the absolute path of a file, which is opened again on SIGHUP and at every reload."""


class LogConfig(Keys):
    """The log of the gateway, on standard error, the access log and the payload log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines that are written. Those of libraries are written from `warning`."""
    format: Literal["text", "json"] = "text"
    """`text` for people, with colours only on a terminal; `json`: one JSON object a line."""
    access: AccessConfig = AccessConfig()
    """One line for each request."""
    payloads: PayloadLogConfig | None = None
    """The payload log: the requests and replies of a share of calls, with their tensors; off if absent."""


class RequestIdsConfig(Keys):
    """Request ids in replies and in requests to backends. Every request has one in the access log, in traces, and in
    lines about unexpected errors. Without this key replies that report an error have it, and other messages do not."""

    accept: Flag = True
    """Take the id that the client sends: that in `x-request-id` if it has at most 128 letters, digits and `._:/+=@-`,
    else the trace id in a valid `traceparent`. With `false` every id is made here."""
    reply: Flag = True
    """Give clients the id, as `x-request-id` in the headers of HTTP replies and the trailers of gRPC."""
    forward: Flag = True
    """Send the id to backends, over HTTP and gRPC as `x-request-id`, over brpc in the frame's meta, and the client's
    `traceparent` if it is valid."""


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?")
_USUAL_PORTS = {"http": ":80", "https": ":443"}


def _origin(origin: str) -> str:
    if origin == ANY_ORIGIN:
        return origin
    if not _ORIGIN.fullmatch(origin):
        raise refusal(f"expected an origin as browsers send it, such as https://app.example.com, or *, got {VALUE}")
    port = _USUAL_PORTS.get(origin.partition(":")[0])
    if port and origin.endswith(port):
        raise refusal(f"browsers leave out the usual port; expected {origin.removesuffix(port)}, got {VALUE}")
    return origin


def _named_header(name: str) -> str:
    if name == "*":
        raise refusal(f"expected the names of headers, such as authorization, got {VALUE}")
    return name


class CorsConfig(Keys):
    """Which pages in browsers may call the listener over HTTP and read its replies."""

    origins: Annotated[
        tuple[Annotated[Name, AfterValidator(_origin)], ...], Field(min_length=1), AfterValidator(distinct)
    ]
    """The origins of the pages, such as `https://app.example.com`; `"*"` for any, where clients need no credentials."""
    headers: Annotated[tuple[Annotated[HeaderName, AfterValidator(_named_header)], ...], AfterValidator(distinct)] = (
        "authorization",
        "content-type",
    )
    """The headers that pages may send."""
    max_age: Annotated[int, Strict(), Field(ge=0, le=86_400)] = 600
    """Seconds for which browsers remember this answer."""


class ListenerConfig(Keys):
    """An address that accepts clients."""

    name: Name
    """The listener's name in routes, logs and metrics."""
    bind: Bind
    """`HOST:PORT`; with port 0 the system chooses one. For protocols on byte streams alone also `tcp://HOST:PORT`, and
    for one of them `unix:///PATH`."""
    protocols: SomeNames
    """The protocols that are served; a form as `json:NAME`. Those of several transports (HTTP, gRPC, byte streams) are
    told apart by the first bytes of each connection. HTTP requests to unknown paths get an error of the first protocol
    over HTTP."""
    model: Name = ""
    """The model for requests that do not name one."""
    prefix: Mapping[Name, Annotated[Name, AfterValidator(_prefix)]] = {}
    """`{PROTOCOL: PATH}`: serve the protocol below this path."""
    flavor: Mapping[Name, Name] = {}
    """`{PROTOCOL: FLAVOR}`: which kind of server clients take the gateway for, if the kinds differ towards clients: for
    v1-rest `kserve` (the default) or `tensorflow`; for v2-grpc `triton` (the default) or `mlserver`, which answers
    typed requests typed."""
    settings: Mapping[Name, Mapping[Name, Name]] = {}
    """`{PROTOCOL: {KEY: TEXT}}`: what a protocol alone has to set, in [its page](protocols/grps.md#settings): for
    grps-rest `ctrl_mode`, `ctrl_key` and `res_content_type`, how a stream is asked for, and its content type."""
    allow_offline: Flag = False
    """Let clients take the listener offline and online (grps). Offline it reports that it is not ready, but still
    answers requests."""
    allow_control: Flag = False
    """Let clients load and unload models, and read and change trace and log settings, on the model servers behind the
    listener (V2)."""
    allow_explain: Flag = False
    """Let clients ask how a request was answered: with the header `gateway-explain: 1` the reply has the header
    `gateway-explanation`. It names routes, backends and endpoints. With `auth` clients need the permission `explain`,
    with `errors: {detail: brief}` also `details`."""
    metrics_page: Flag = False
    """Serve this listener's metrics page, if one of its protocols has one (grps-rest: `/`)."""
    limits: ListenerLimitsKey = Field(default_factory=Limits)
    """Bounds on what clients send."""
    errors: ErrorsConfig = ErrorsConfig()
    """How much errors tell clients."""
    reply_headers: Flag = False
    """Name what answered: replies over HTTP and gRPC have `gateway-route` (the route's name), `gateway-backend` and
    `gateway-tries`, and `gateway-cache` where a cache was asked."""
    auth: ListenerAuthConfig | None = None
    """Clients must identify themselves, and may do what their principal may. Without it every client may do
    everything."""
    tls: ListenerTlsConfig | None = None
    """TLS for all clients of the listener; without it there is none."""
    cors: CorsConfig | None = None
    """Pages of other origins that may call the listener from browsers. Without it browsers show them no reply."""

    @property
    def has_credentials(self) -> bool:
        """Whether clients identify themselves."""
        return self.auth is not None or (self.tls is not None and self.tls.client != "none")

    @property
    def cross_origin(self) -> CrossOrigin | None:
        """`cors` as the listener is told it. Pages may use certificates and cookies where clients have credentials."""
        cors = self.cors
        return None if cors is None else CrossOrigin(cors.origins, cors.headers, cors.max_age, self.has_credentials)


class AdminConfig(Keys):
    """The status API, for operators."""

    bind: Bind
    """`HOST:PORT`; with `auth` on any address, without it on loopback."""
    auth: AdminAuthConfig | None = None
    """Only principals with the permission `admin` may use it."""
    tls: ListenerTlsConfig | None = None
    """TLS, as of a listener."""


Ready = Literal["any", "all", "none"]


class ScalerConfig(Keys):
    """KEDA's external scaler: tells over gRPC how many calls each backend has, so that KEDA starts and ends its
    servers. It tells names of backends and their load, and controls nothing. Nothing is counted without it."""

    bind: Bind
    """`HOST:PORT`; on loopback, or on any address with `tls: {client: required}` or `open`."""
    tls: ListenerTlsConfig | None = None
    """TLS, as of a listener. KEDA takes `caCert`, `tlsClientCert` and `tlsClientKey` from a TriggerAuthentication."""
    open: Flag = False
    """Everybody who reaches the address may ask: for a pod whose NetworkPolicy lets only KEDA's operator reach it. KEDA
    cannot send keys or tokens."""


class HealthConfig(Keys):
    """The health port: `/healthz`, `/readyz` and `/metrics`."""

    bind: Bind
    """`HOST:PORT` on any address."""
    ready: Ready = "none"
    """Which backends must be ready for `/readyz` to report ready: at least one (`any`), `all` of those that routes
    name, or `none`. Kubernetes removes a replica that is not ready from its Service: with `any` or `all` one backend
    that all replicas share removes all of them at once."""
    auth: HealthAuthConfig | None = None
    """Only principals with the permission `metrics` get `/metrics`. Probes (`/healthz`, `/readyz`) need no credentials.
    Without this key nobody does."""
    tls: ListenerTlsConfig | None = None
    """TLS, as of a listener. Probes need `scheme: HTTPS` then."""


def _ascending(bounds: tuple[float, ...]) -> tuple[float, ...]:
    for at in range(1, len(bounds)):
        if bounds[at] <= bounds[at - 1]:
            raise refusal(f"{VALUE} is not more than the bound before it, {bounds[at - 1]:g}", at)
    return bounds


class MetricsConfig(Keys):
    """`/metrics` on the health port, for Prometheus. Without a health port nothing is counted."""

    enabled: Flag = True
    """Count requests, and serve the page."""
    models: Annotated[int, Strict(), Field(ge=0)] = 100
    """How many models have a value of their own in the label `model`, beside those that routes name exactly: the first
    so many that answer a request. All others are counted together as `other`."""
    buckets: Annotated[tuple[Period, ...], Field(min_length=1, max_length=50), AfterValidator(_ascending)] = (
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
    )  # fmt: skip
    """Upper bounds of the histograms' buckets in seconds, ascending."""


class DrainConfig(Keys):
    """How the gateway stops on SIGTERM or SIGINT; a second signal ends it at once."""

    delay: Seconds = 0
    """Seconds in which `/readyz` already fails while requests are still accepted and answered, so that load balancers
    notice. HTTP replies have `Connection: close` in this time."""
    timeout: Seconds = 30
    """Seconds that requests in flight have to finish after the listeners are closed; then they are cancelled."""


class ReloadConfig(Keys):
    """When the gateway reads its configuration again while it runs, besides on SIGHUP and `POST /reload`."""

    watch: Flag = True
    """Reload when the file, or one that it names by `${file:PATH}`, has changed."""
    interval: Annotated[Seconds, Field(ge=0.1)] = 1
    """Seconds between two looks at the files. A change is loaded when the next look finds no further one, so that a
    file is not read while it is being written."""


class ReferenceConfig(Keys):
    """A model server in the gateway's own process, with bundled models; for demos and tests."""

    protocol: Name
    """The protocol that it serves."""
    bind: Bind
    """The address, as a listener's `bind`."""
    models: SomeNames
    """Names of bundled models, or Python callables as `module:attribute`."""
    tls: ListenerTlsConfig | None = None
    """TLS, as of a listener."""


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


# The gateway writes those of its request ids and traces for each request.
_NEVER_FIXED = (_NEVER_FORWARDED - {HOST}) | {ID_HEADER, *TRACE_HEADERS}
_HOST_VALUE = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::[0-9]{1,5})?")


def _server_headers(given: Any) -> Any:
    """The `headers` of a backend as they are written, with the keys that errors name."""
    for name, text in given.items() if isinstance(given, dict) else ():
        lower = str(name).lower()
        if lower in _NEVER_FIXED:
            raise refusal(f"{name!r} is set by the gateway for each request and cannot be in `headers`", name)
        if lower.endswith("-bin"):
            raise refusal(f"{name!r}: headers that end in -bin are bytes over gRPC; expected another one", name)
        if lower == HOST and isinstance(text, str) and not _HOST_VALUE.fullmatch(text):
            raise refusal("expected a host name, with or without :PORT", name)
    return given


class EjectionConfig(Keys):
    """When calls that fail make an endpoint down for a time."""

    failures: Size = 5
    """Calls in a row that time out or get a malformed reply until the endpoint is ejected. One that cannot be reached
    is ejected at once, for 1 s."""
    seconds: Period = 10
    """The length of the first ejection. Each further one without an answer takes twice as long, at most 60 s (or this
    key, if it is more)."""
    most: Share = 0.5
    """The share of the backend's endpoints that may get no calls at once because they are down, rounded up. The last
    endpoint always gets calls, unless this is 1: then calls fail at once while all endpoints are down."""


class BackendHealthConfig(Keys):
    """How endpoints that fail are found, and when they get no calls. Without this key endpoints are not probed."""

    probe: Literal["live", "ready", "none"] | None = None
    """What each endpoint is asked in the protocol's own way: whether it is `live` or `ready`; with `none` endpoints are
    not probed. The default is the protocol's: `live` for grps, `ready` for the others."""
    interval: Period = 5
    """Seconds between the probes of an endpoint."""
    timeout: Period = 2
    """Seconds in which a probe must be answered."""
    unhealthy: Size = 3
    """Probes in a row that fail until an endpoint is down."""
    healthy: Size = 1
    """Probes in a row that must pass until an endpoint that was down gets calls again."""
    jitter: Share = 0.1
    """The share of `interval` by which each wait is made longer or shorter at random, so that not all endpoints are
    probed at once, nor one endpoint by all replicas of the gateway."""
    ejection: EjectionConfig = EjectionConfig()
    """When calls that fail make an endpoint down; also without probes."""


class RegisterConfig(Keys):
    """Servers that register themselves by `POST /register` at the status API's port, each with a lease that it
    renews."""

    token: Secret
    """What a server must send as `Authorization: Bearer TOKEN`; best as `${file:/path}`. Who has it can have the
    backend's requests sent to any address."""
    seconds: Period = 60
    """The longest lease, and the one of servers that ask for none: a server that has not renewed it by then is
    removed."""


class DiscoveryConfig(Keys):
    """How endpoints are found while the gateway runs. Several ways can be used together."""

    dns: Literal["all"] | None = None
    """`all`: every IP address of the host names in `endpoints` is an endpoint of its own."""
    srv: Name | None = None
    """A DNS name with SRV records, which name hosts and ports. Needs `pip install "modelglot[discovery]"`."""
    files: Name | None = None
    """The absolute path of files with one address a line, with the wildcards `*`, `?`, `[...]` and `**`."""
    registration: RegisterConfig | None = Field(None, alias="register")  # pydantic has an attribute `register`
    """Servers that register themselves."""
    interval: Period = 5
    """Seconds between two looks at names and files. SRV records are looked up when their TTL is over, but not more
    often than this."""


class EndpointConfig(Keys):
    """A model server: its address, or a map of address and weight."""

    address: Name
    """The address of the server: `HOST:PORT`, or a URL if the protocol is over HTTP. Over TLS `https://HOST:PORT`,
    `grpcs://HOST:PORT` or `tcps://HOST:PORT`."""
    weight: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] = 1
    """The server's share of the calls, relative to the weights of the backend's other servers."""
    load_url: PageUrl | None = None
    """The page on which this server says how busy it is, in place of the backend's `load.url`."""


class _TextOrMap:
    """The annotation of an EndpointConfig that can also be written as its address alone."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        whole = handler(source)

        def read(item: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> Any:
            return validate(item if isinstance(item, (dict, EndpointConfig)) else {"address": item})

        return core_schema.no_info_wrap_validator_function(read, whole)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {"type": "string", "minLength": 1}]}


def _distinct_addresses(endpoints: tuple[EndpointConfig, ...]) -> tuple[EndpointConfig, ...]:
    seen: set[str] = set()
    for at, each in enumerate(endpoints):
        if each.address in seen:
            raise refusal(f"{VALUE} is listed twice", at, "address")
        seen.add(each.address)
    return endpoints


class QueueConfig(Keys):
    """The calls that wait because every endpoint has `max_in_flight` calls in flight."""

    length: Size = 1000
    """How many calls may wait. Further ones are refused, and so are those of a client that has as many waiting as there
    are free places."""
    timeout: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] | None = None
    """Seconds that a call may wait; then it is refused. Without it a call waits until its deadline."""
    wait_for_endpoints: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] | None = None
    """Seconds that a call (or a question for a model's metadata) waits while `discovery` has found no endpoint, for a
    backend whose servers are started on demand (`scaler`); `timeout` does not count meanwhile. A DNS name without
    addresses then means that there is no endpoint. Without it calls fail at once."""


class BackendConfig(Keys):
    """A group of model servers that have the same models, or with `placement` different ones."""

    protocol: Name
    """The protocol of the servers; `json` for one that `form` names."""
    form: Name = ""
    """The form of servers that speak JSON over HTTP: one of `forms`, or a ready one. `{protocol: json, form: NAME}` is
    the same as `protocol: "json:NAME"`."""
    endpoints: Annotated[tuple[Annotated[EndpointConfig, _TextOrMap()], ...], AfterValidator(_distinct_addresses)] = ()
    """The servers: the address of each, or `{address, weight}`. An address is `HOST:PORT`, or a URL if the protocol is
    over HTTP. Required unless `discovery` finds some by `srv`, `files` or `register`, or `servers` starts some."""
    discovery: DiscoveryConfig | None = None
    """How further endpoints are found while the gateway runs; `docs/discovery.md` describes each way. Without it the
    endpoints never change."""
    servers: ServersConfig | None = None
    """Model servers that the gateway starts itself when calls wait, in place of `endpoints`; `docs/servers.md`
    describes them."""
    placement: PlacementConfig | None = None
    """The servers have different models: each request goes to one that has its model, and models may be loaded on
    demand. Without it all servers have the same models."""
    balance: Literal["least_in_flight", "least_load", "round_robin", "power_of_two"] = "least_in_flight"
    """Which endpoint gets a call: the one with the fewest calls in flight (equally busy ones take turns), the one that
    says it is least busy (`load`), the next one, or the less busy one of two that are drawn at random."""
    load: LoadConfig | None = None
    """Where `balance: least_load` reads how busy servers are. Without it, for v2-rest and v2-grpc, on the metrics page
    of Triton at port 8002."""
    slow_start: Seconds = 0
    """Seconds in which the weight of an endpoint that came back after an ejection grows from a twentieth to the whole;
    0: it has its whole weight at once."""
    policies: Policies = ()
    """Policies around calls to the backend, outermost first: a list of `{POLICY: SETTINGS}`."""
    safe: Flag = False
    """Calls that run a model may be repeated after a server may have seen them: the models have no side effects, and
    computing a call twice is affordable. The policies `retry` and `hedge` need it."""
    trust_metadata: Flag = False
    """Use the backend's metadata although servers of its protocol usually report wrong types (graphpipe) or no tensors
    (grps): requests are fitted to it, and all clients get it."""
    max_in_flight: Size | None = None
    """The most calls in flight per endpoint; further ones wait. The default is the protocol's: 1 for umbridge and mip,
    no limit for the others."""
    queue: QueueConfig = QueueConfig()
    """Calls that wait for a free slot, if `max_in_flight` limits the calls."""
    batch: Name = ""
    """How a batch is sent, if the protocol has several ways. For mip: `split`: the first dimension of every tensor
    counts the examples of one packet; `whole`: a packet has one example, which holds the tensors unchanged; `each`: one
    packet for each row."""
    flavor: Name = ""
    """The kind of server, if servers differ in how they implement the protocol: for v2-rest `triton`, `mlserver`,
    `kserve`, `openvino`, `binary` (any other with binary tensors) or `plain`, for v2-grpc also `typed` (reads typed
    contents alone); for v1-rest `kserve`, `tensorflow` or `gateway` (another gateway). Without it each server is asked
    before its first call."""
    settings: Mapping[Name, Name] = {}
    """`{KEY: TEXT}`: what the protocol alone has to set, in [its page](protocols/grps.md#settings): for grps-rest
    `ctrl_mode` and `ctrl_key`, how its servers are asked for a stream."""
    limits: LimitsKey = Field(default_factory=Limits)
    """Bounds on what the backend answers."""
    forward_headers: Annotated[
        tuple[Annotated[HeaderName, AfterValidator(_forwardable)], ...], AfterValidator(distinct)
    ] = ()
    """The only headers of clients that are sent on to the backend."""
    headers: Annotated[Mapping[HeaderName, SecretHeaderValue], EachHeaderOnce, BeforeValidator(_server_headers)] = {}
    """`{NAME: VALUE}`: headers of every request to the servers, also of probes and questions for metadata; over gRPC
    metadata. They take the place of headers with the same names. `Host` is the name that servers are asked for, in
    place of the address (over gRPC `:authority`). Values are shown nowhere."""
    health: BackendHealthConfig | None = None
    """Active probes, and when endpoints that fail get no calls. Without it endpoints are judged by their calls only."""
    tls: BackendTlsConfig | None = None
    """TLS towards all servers of the backend. Addresses that begin with `https://`, `grpcs://` or `tcps://` are reached
    over TLS also without this key."""

    @model_validator(mode="before")
    @classmethod
    def _with_form(cls, given: Any) -> Any:
        """The protocol of a form is called `json:FORM`, however a backend names it."""
        if isinstance(given, dict) and given.get("protocol") == JSON and isinstance(given.get("form"), str):
            return {**given, "protocol": PREFIX + given["form"]}
        return given

    @property
    def sent_headers(self) -> FixedFields:
        """Its `headers`, as they are sent."""
        return tuple((name.encode(), each.get_secret_value().encode()) for name, each in self.headers.items())

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of its endpoints, as they are written."""
        return tuple(each.address for each in self.endpoints)


class ShedConfig(Keys):
    """When the gateway refuses new work because it cannot keep up: first new connections, then requests of 64 KiB and
    more, then all requests with a body."""

    lag: Annotated[Seconds, Field(gt=0)] = 0.25
    """Seconds by which the event loop may be late, for a fifth of a second and more."""
    memory: Annotated[float, Strict(), Field(gt=0, le=1)] = 0.9
    """The share of `limits.memory` that messages may hold, and the share of its cgroup's memory that the process may
    have. Beyond it small requests on open connections are still served."""


class ProcessLimitsConfig(Keys):
    """Bounds on the whole process."""

    connections: Size = 10_000
    """Connections of clients at once, on all listeners together. Fewer if the system allows fewer file descriptors, of
    which a tenth, and at least 64, are reserved for backends, the health port and the status API."""
    handshakes: Size = 500
    """TLS handshakes of clients at once, on all listeners together; further ones wait. Each takes about 100 KiB."""
    memory: Size | None = None
    """Bytes of what clients have in the gateway: bodies of 16 KiB and more, heads, calls that wait, replies that they
    do not read. Without it half of the memory of the machine or of the process' cgroup."""
    connections_per_client: Size | None = None
    """Connections at once from one IPv4 address or one /64 network of IPv6, on all listeners together. Behind a proxy
    all clients have the proxy's address."""
    memory_per_client: Size | None = None
    """The same of one client address. The replies of model servers count in `memory` alone until they are written."""
    calls_per_request: Size = 1000
    """The most calls that the steps of [graphs](graphs.md) make for one request, those of graphs within graphs
    together; one more fails the request. The models of a `fallback` count, too."""
    shed: ShedConfig | None = None
    """Refuse new work while the gateway is overloaded; off if absent. The health port and the status API are always
    served."""


def _collector(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refusal(f"expected a URL such as http://127.0.0.1:4318, got {VALUE}")
    if parts.username or parts.password:
        raise refusal("the URL has a password, which would be shown; a header in `headers` can carry it")
    if find_spec("requests") is None:
        text = 'needs the package of the extra `tracing`: pip install "modelglot[tracing]"'
        raise refusal(text)
    return url if parts.path.strip("/") else f"{url.rstrip('/')}/v1/traces"


class TracingConfig(Keys):
    """OpenTelemetry tracing. Needs `pip install "modelglot[tracing]"`."""

    otlp: Annotated[Name, AfterValidator(_collector)]
    """The URL of a collector that takes OTLP over HTTP; `/v1/traces` is added to one without a path."""
    headers: Annotated[Mapping[HeaderName, SecretHeaderValue], EachHeaderOnce] = {}
    """`{NAME: VALUE}`: headers of the requests to the collector."""
    sample: Share = 0.01
    """The share of the traces that begin at this gateway which are recorded. A request with a `traceparent` header is
    recorded if that says so."""
    service: Name = "modelglot"
    """The `service.name` of the spans."""
    interval: Period = 5
    """Seconds between two batches of spans."""
    timeout: Period = 10
    """Seconds that the collector has to take a batch. At most 2048 requests wait meanwhile; further ones are not
    recorded."""


class Config(Keys):
    """The gateway's configuration."""

    _references: dict[str, str] = PrivateAttr(default_factory=dict)
    _warned: dict[Location, Problem] = PrivateAttr(default_factory=dict)

    listeners: Annotated[tuple[ListenerConfig, ...], Field(min_length=1)]
    """Addresses that accept clients. Several protocols can share one."""
    limits: ProcessLimitsConfig = ProcessLimitsConfig()
    """Bounds on all clients together."""
    admin: AdminConfig | None = None
    """The status API; off if absent."""
    auth: AuthConfig | None = None
    """What clients can identify themselves with: API keys, tokens, certificates."""
    permissions: PermissionSets = Field(default_factory=dict)
    """Sets of permissions by name, each a list of what it permits."""
    principals: PrincipalEntries = Field(default_factory=dict)
    """Who may do what, by the name or a glob of names of principals. The entry with the whole name counts, else the
    first glob that matches. Principals without an entry may do nothing."""
    health: HealthConfig | None = None
    """The health port, for probes and Prometheus; off if absent."""
    scaler: ScalerConfig | None = None
    """KEDA's external scaler; off if absent."""
    metrics: MetricsConfig = MetricsConfig()
    """What is counted for Prometheus."""
    tracing: TracingConfig | None = None
    """Tracing with OpenTelemetry; off if absent."""
    log: LogConfig = LogConfig()
    """What is logged, and how."""
    request_ids: RequestIdsConfig | None = None
    """Request ids: accepted or made, returned to clients and sent to backends; with the key (`{}` is enough) of all
    requests. Without it only requests that are observed have one, and only replies that report an error tell it."""
    drain: DrainConfig = DrainConfig()
    """How the gateway stops."""
    workers: Size | Literal["auto"] = 1
    """The number of processes that serve clients; `auto`: one for each core that the gateway may use. With more than
    one, a further process supervises them and has the health port and the status API."""
    reload: ReloadConfig = ReloadConfig()
    """When the configuration is read again."""
    ready: Ready = "any"
    """Which backends must be ready for the gateway to report ready in the clients' protocols: at least one (`any`) or
    `all` of those that routes name, or `none`. They are asked when a client asks, at most once a second; where they are
    probed (`backends.*.health`), the state of their endpoints says it."""
    check: Check = "none"
    """Whether requests are read and checked before a server sees them, also where client and server speak the same
    protocol: `full`, or `none` to let them pass unread there. Routes may say otherwise."""
    reference: tuple[ReferenceConfig, ...] = ()
    """Model servers with bundled models, started with the gateway."""
    forms: FormEntries = Field(default_factory=dict)
    """Descriptions of JSON over HTTP by name, for servers and clients that speak none of the other protocols: each is
    the protocol `json:NAME` of backends and listeners. One with the name of a ready form takes its place."""
    backends: Mapping[Name, BackendConfig] = {}
    """Groups of model servers, by name."""
    models: Graphs = Field(default_factory=dict)
    """Models that the gateway makes of others, by name: graphs of calls, with derivatives by the chain rule.
    `docs/graphs.md` describes them. A name here is taken before all routes."""
    routes: tuple[RouteConfig, ...] = ()
    """Which requests go to which backend. The first route that matches is used."""

    @property
    def references(self) -> dict[str, str]:
        """Texts that came from files or variables, each with the reference that the file has in its place."""
        return self._references

    @property
    def warned(self) -> dict[Location, Problem]:
        """A warning about each location that has any, with its place in the file."""
        return self._warned
