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
from gateway.config.forms import JSON, FormEntries
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
from gateway.protocols.json.form import PREFIX

_LIMIT_FORMS: Mapping[Any, Any] = {int: Size, float: Seconds, PositiveSeconds: Period}
_OF_MESSAGES = ("message", "headers", "json_values", "config", "inflation")
LimitsKey = Annotated[Limits, Declared(Limits, _LIMIT_FORMS, {}, only=_OF_MESSAGES)]
"""Limits of a backend, which apply to its responses."""
ListenerLimitsKey = Annotated[Limits, Declared(Limits, _LIMIT_FORMS, {})]


def _prefix(path: str) -> str:
    if not path.startswith("/") or path.endswith("/") or not set(path).isdisjoint("{}?# %"):
        raise refusal("expected a path such as /science, without a slash at its end and without { } ? # %, got {value}")
    return path


class ErrorsConfig(Keys):
    """Settings for the details in errors that the gateway sends to clients."""

    detail: Literal["full", "brief"] = "full"
    """`brief` hides the names and addresses of backends, and the reason why a backend is unreachable. The log always
    contains these details."""


def _log_path(path: str) -> str:
    if path not in ("stdout", "stderr") and not path.startswith("/"):
        raise refusal("expected stdout, stderr or the absolute path of a file, got {value}")
    return path


class AccessConfig(Keys):
    """The access log: one line for each request, written when the request ends. The log contains no header values, keys
    or tensors."""

    when: Literal["auto", "always", "never"] = "auto"
    """When the gateway writes access lines. `auto`: if `format` is `json`, if `path` is a file, or if `path` is a
    terminal."""
    sample: Share = 1
    """Share of successful requests in the log. Failed requests are always logged."""
    path: Annotated[Name, AfterValidator(_log_path)] = "stdout"
    """`stdout`, `stderr` or the absolute path of a file. The gateway opens the file again on SIGHUP and at every
    reload."""


class LogConfig(Keys):
    """The gateway's log on standard error, the access log and the payload log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum severity of the gateway's log lines. For log lines of libraries, the minimum is always `warning`."""
    format: Literal["text", "json"] = "text"
    """`text`: readable lines, with colors only on a terminal. `json`: one JSON object per line."""
    access: AccessConfig = AccessConfig()
    """One line for each request."""
    payloads: PayloadLogConfig | None = None
    """The payload log: requests and responses of a share of calls, with their tensors. Off if absent."""


class RequestIdsConfig(Keys):
    """Request ids in responses and in requests to backends. Every request has an id in the access log, in traces, and
    in log lines about unexpected errors. If this key is absent, only error responses contain the id."""

    accept: Flag = True
    """Use the client's id: the value of `x-request-id` if it has at most 128 letters, digits and `._:/+=@-`, otherwise
    the trace id in a valid `traceparent`. If `false`, the gateway generates every id."""
    reply: Flag = True
    """Return the id to clients as `x-request-id`, in HTTP response headers and in gRPC trailers."""
    forward: Flag = True
    """Send the id to backends: over HTTP and gRPC as `x-request-id`, over brpc in the frame's meta. Also send the
    client's `traceparent` if it is valid."""


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?")
_USUAL_PORTS = {"http": ":80", "https": ":443"}


def _origin(origin: str) -> str:
    if origin == ANY_ORIGIN:
        return origin
    if not _ORIGIN.fullmatch(origin):
        raise refusal(f"expected an origin as browsers send it, such as https://app.example.com, or *, got {VALUE}")
    port = _USUAL_PORTS.get(origin.partition(":")[0])
    if port and origin.endswith(port):
        raise refusal(f"browsers leave out the default port; expected {origin.removesuffix(port)}, got {VALUE}")
    return origin


def _named_header(name: str) -> str:
    if name == "*":
        raise refusal(f"expected the names of headers, such as authorization, got {VALUE}")
    return name


class CorsConfig(Keys):
    """Settings for web pages of other origins, which can then call the listener over HTTP and read its responses."""

    origins: Annotated[
        tuple[Annotated[Name, AfterValidator(_origin)], ...], Field(min_length=1), AfterValidator(distinct)
    ]
    """Allowed origins of pages, such as `https://app.example.com`. `"*"` allows any origin, and is possible only if
    clients need no credentials."""
    headers: Annotated[tuple[Annotated[HeaderName, AfterValidator(_named_header)], ...], AfterValidator(distinct)] = (
        "authorization",
        "content-type",
    )
    """Request headers that pages can send."""
    max_age: Annotated[int, Strict(), Field(ge=0, le=86_400)] = 600
    """Time that browsers cache these permissions, in seconds."""


class ListenerConfig(Keys):
    """An address that accepts clients."""

    name: Name
    """Name of the listener in routes, logs and metrics."""
    bind: Bind
    """Address as `HOST:PORT`. If the port is 0, the system chooses a port. If all protocols use byte streams, you can
    also write `tcp://HOST:PORT`; for a single such protocol, also `unix:///PATH`."""
    protocols: SomeNames
    """Protocols of the listener. For a form, write `json:NAME`. The first bytes of each connection determine its
    transport (HTTP, gRPC, byte streams). HTTP requests to unknown paths get an error in the format of the first
    protocol over HTTP."""
    model: Name = ""
    """Model for requests without a model name."""
    prefix: Mapping[Name, Annotated[Name, AfterValidator(_prefix)]] = {}
    """`{PROTOCOL: PATH}`: path below which the listener serves the protocol."""
    flavor: Mapping[Name, Name] = {}
    """`{PROTOCOL: FLAVOR}`: server type that clients see, for protocols with several server types. For v1-rest:
    `kserve` (the default) or `tensorflow`. For v2-grpc: `triton` (the default) or `mlserver`, which answers typed
    requests with typed contents."""
    settings: Mapping[Name, Mapping[Name, Name]] = {}
    """`{PROTOCOL: {KEY: TEXT}}`: settings of a single protocol, described on [its page](protocols/grps.md#settings).
    For grps-rest, `ctrl_mode`, `ctrl_key` and `res_content_type` set how clients request a stream, and its content
    type."""
    allow_offline: Flag = False
    """Let clients take the listener offline and online (grps). An offline listener reports that it is not ready, but
    still answers requests."""
    allow_control: Flag = False
    """Let clients load and unload models, and read and change trace and log settings, on the model servers behind the
    listener (V2)."""
    allow_explain: Flag = False
    """Let clients request explanations: for a request with the header `gateway-explain: 1`, the response has the header
    `gateway-explanation`. The explanation names routes, backends and endpoints. If the listener has `auth`, clients
    need the permission `explain`. If it has `errors: {detail: brief}`, they also need `details`."""
    metrics_page: Flag = False
    """Serve this listener's metrics page, if one of its protocols has a metrics page (grps-rest: `/`)."""
    limits: ListenerLimitsKey = Field(default_factory=Limits)
    """Limits for messages and connections of clients."""
    errors: ErrorsConfig = ErrorsConfig()
    """Level of detail in errors that the gateway sends to clients."""
    reply_headers: Flag = False
    """Add headers about the call to HTTP and gRPC responses: `gateway-route` (the route's name), `gateway-backend`,
    `gateway-tries`, and, if a cache is configured, `gateway-cache`."""
    auth: ListenerAuthConfig | None = None
    """Authentication of clients; a client has the permissions of its principal. Default: no authentication, and every
    client has all permissions."""
    tls: ListenerTlsConfig | None = None
    """TLS for connections from the listener's clients. Default: no TLS."""
    cors: CorsConfig | None = None
    """Origins of web pages that can call the listener from browsers. Default: browsers block the responses for pages of
    other origins."""

    @property
    def has_credentials(self) -> bool:
        """True if clients authenticate."""
        return self.auth is not None or (self.tls is not None and self.tls.client != "none")

    @property
    def cross_origin(self) -> CrossOrigin | None:
        """`cors` in the format of the transport. Pages can use certificates and cookies if clients have credentials."""
        cors = self.cors
        return None if cors is None else CrossOrigin(cors.origins, cors.headers, cors.max_age, self.has_credentials)


class AdminConfig(Keys):
    """The status API, for operators."""

    bind: Bind
    """Address as `HOST:PORT`. It must be a loopback address, unless `auth` is set."""
    auth: AdminAuthConfig | None = None
    """Authentication of clients. Only principals with the permission `admin` have access."""
    tls: ListenerTlsConfig | None = None
    """TLS settings, with the same keys as `listeners[].tls`."""


Ready = Literal["any", "all", "none"]


class ScalerConfig(Keys):
    """KEDA's external scaler. It reports over gRPC how many calls each backend has, so KEDA can start and stop servers.
    Its clients can read backend names and load, but change nothing. If this key is absent, the gateway does not count
    these calls."""

    bind: Bind
    """Address as `HOST:PORT`. It must be a loopback address, unless `tls: {client: required}` or `open` is set."""
    tls: ListenerTlsConfig | None = None
    """TLS settings, with the same keys as `listeners[].tls`. KEDA reads `caCert`, `tlsClientCert` and `tlsClientKey`
    from a TriggerAuthentication."""
    open: Flag = False
    """Accept every client that reaches the address. Use this for a pod whose NetworkPolicy admits only KEDA's operator,
    because KEDA cannot send keys or tokens."""


class HealthConfig(Keys):
    """The health port: `/healthz`, `/readyz` and `/metrics`."""

    bind: Bind
    """Address as `HOST:PORT`; any address is allowed."""
    ready: Ready = "none"
    """Backends that must be ready for `/readyz` to report ready: at least one (`any`) or `all` of the backends that
    routes name, or `none`. Kubernetes removes a replica that is not ready from its Service. With `any` or `all`, if a
    backend that all replicas share fails, Kubernetes can remove all replicas at the same time."""
    auth: HealthAuthConfig | None = None
    """Authentication for `/metrics`: only principals with the permission `metrics` can read the page. Probes
    (`/healthz`, `/readyz`) need no credentials. Default: no authentication."""
    tls: ListenerTlsConfig | None = None
    """TLS settings, with the same keys as `listeners[].tls`. Probes then need `scheme: HTTPS`."""


def _ascending(bounds: tuple[float, ...]) -> tuple[float, ...]:
    for at in range(1, len(bounds)):
        if bounds[at] <= bounds[at - 1]:
            raise refusal(f"{VALUE} is not more than the bound before it, {bounds[at - 1]:g}", at)
    return bounds


class MetricsConfig(Keys):
    """`/metrics` on the health port, for Prometheus. Without a health port, the gateway counts nothing."""

    enabled: Flag = True
    """Count requests, and serve the page."""
    models: Annotated[int, Strict(), Field(ge=0)] = 100
    """Maximum number of models with a separate value of the label `model`, in addition to the models that routes name
    exactly. The first models that return a response get separate values. The gateway counts all other models together
    as `other`."""
    buckets: Annotated[tuple[Period, ...], Field(min_length=1, max_length=50), AfterValidator(_ascending)] = (
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
    )  # fmt: skip
    """Upper bounds of the histogram buckets, in seconds, ascending."""


class DrainConfig(Keys):
    """How the gateway stops on SIGTERM or SIGINT. A second signal terminates it immediately."""

    delay: Seconds = 0
    """Seconds before the listeners close. During this time, `/readyz` already fails, so load balancers can stop sending
    requests, but the gateway still accepts and answers requests. HTTP responses have `Connection: close`."""
    timeout: Seconds = 30
    """Maximum time for requests in flight after the listeners close, in seconds. The gateway then cancels them."""


class ReloadConfig(Keys):
    """Automatic reload of the configuration. SIGHUP and `POST /reload` always work too."""

    watch: Flag = True
    """Reload when the file, or a file that it references with `${file:PATH}`, changes."""
    interval: Annotated[Seconds, Field(ge=0.1)] = 1
    """Seconds between two checks of the files. The gateway loads a changed file only when the next check finds no
    further change, so it does not load an incomplete file."""


class ReferenceConfig(Keys):
    """A sample model server in the gateway's own process, with sample models, for demos and tests."""

    protocol: Name
    """Protocol of the server."""
    bind: Bind
    """Address, in the same format as `listeners[].bind`."""
    models: SomeNames
    """Names of sample models, or Python callables as `module:attribute`."""
    tls: ListenerTlsConfig | None = None
    """TLS settings, with the same keys as `listeners[].tls`."""


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
    """Settings for ejection: failing calls take an endpoint out of service for some time."""

    failures: Size = 5
    """Number of consecutive calls that must time out or get a malformed response before the gateway ejects the
    endpoint. The gateway ejects an unreachable endpoint immediately, for 1 s."""
    seconds: Period = 10
    """Duration of the first ejection, in seconds. If the endpoint has returned no response since its previous ejection,
    the next ejection lasts twice as long, up to 60 s (or this value, if it is larger)."""
    max_ejected_share: Share = 0.5
    """Maximum share of the backend's endpoints that get no calls because they are down, rounded up. The last endpoint
    always gets calls, unless this value is 1. If it is 1, calls fail immediately while all endpoints are down."""


class BackendHealthConfig(Keys):
    """How the gateway detects failing endpoints, and when it sends them no calls. If this key is absent, the gateway
    does not probe endpoints."""

    probe: Literal["live", "ready", "none"] | None = None
    """Kind of probe, in the backend's protocol. `live`: whether the server is live. `ready`: whether the server is
    ready. `none`: no probes. Default: `live` for grps, `ready` for all other protocols."""
    interval: Period = 5
    """Seconds between the probes of an endpoint."""
    timeout: Period = 2
    """Timeout of a probe, in seconds."""
    unhealthy: Size = 3
    """Number of consecutive probes that must fail before an endpoint is down."""
    healthy: Size = 1
    """Number of consecutive probes that must pass before an endpoint that was down gets calls again."""
    jitter: Share = 0.1
    """Share of `interval` by which each wait is randomly longer or shorter, so probes of different endpoints, or from
    different replicas of the gateway, do not all run at the same time."""
    ejection: EjectionConfig = EjectionConfig()
    """When failing calls take an endpoint out of service. This also applies if `probe` is `none`."""


class RegisterConfig(Keys):
    """Servers that register themselves with `POST /register` at the status API's port. Each server has a lease and
    renews it."""

    token: Secret
    """Token that a server must send as `Authorization: Bearer TOKEN`, preferably a reference such as `${file:/path}`.
    Anyone with the token can redirect the backend's requests to any address."""
    seconds: Period = 60
    """Maximum duration of a lease, in seconds, and the default for servers that do not request a duration. The gateway
    removes a server that does not renew its lease in time."""


class DiscoveryConfig(Keys):
    """How the gateway finds endpoints while it runs. You can combine several methods."""

    dns: Literal["all"] | None = None
    """`all`: every IP address of the host names in `endpoints` becomes a separate endpoint."""
    srv: Name | None = None
    """DNS name with SRV records, which contain hosts and ports. Needs `pip install "modelglot[discovery]"`."""
    files: Name | None = None
    """Absolute path of files with one address per line, with the wildcards `*`, `?`, `[...]` and `**`."""
    registration: RegisterConfig | None = Field(None, alias="register")  # pydantic has an attribute `register`
    """Servers that register themselves."""
    interval: Period = 5
    """Seconds between two checks of names and files. The gateway queries SRV records when their TTL expires, but not
    more often than this interval."""


class EndpointConfig(Keys):
    """A model server: its address, or a map of address and weight."""

    address: Name
    """Address of the server: `HOST:PORT`, or a URL if the protocol is over HTTP. With TLS: `https://HOST:PORT`,
    `grpcs://HOST:PORT` or `tcps://HOST:PORT`."""
    weight: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] = 1
    """Server's share of the calls, relative to the weights of the backend's other servers."""
    load_url: PageUrl | None = None
    """URL of the page on which this server reports its load. This URL replaces the backend's `load.url`."""


class _TextOrMap:
    """Annotation for an EndpointConfig that can also be only its address in YAML."""

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
    """Calls that wait because every endpoint has `max_in_flight` calls in flight."""

    length: Size = 1000
    """Maximum number of waiting calls. The gateway refuses calls above this limit. It also refuses a call if the client
    already has as many waiting calls as the queue has free places."""
    timeout: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] | None = None
    """Maximum time that a call waits, in seconds, before the gateway refuses the call. Default: a call waits until its
    deadline."""
    wait_for_endpoints: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] | None = None
    """Maximum time that a call (or a metadata request) waits while `discovery` has found no endpoint, in seconds.
    `timeout` does not count during this time. Use this key for a backend whose servers an autoscaler starts on demand
    (`scaler`). If the key is set, a DNS name without addresses means that no endpoint exists. Default: calls fail
    immediately."""


class BackendConfig(Keys):
    """A group of model servers with the same models, or, with `placement`, with different models."""

    protocol: Name
    """Protocol of the servers; `json` for the form in `form`."""
    form: Name = ""
    """Form of servers with a JSON API over HTTP: a name in `forms`, or a built-in form. `{protocol: json, form: NAME}`
    is the same as `protocol: "json:NAME"`."""
    endpoints: Annotated[tuple[Annotated[EndpointConfig, _TextOrMap()], ...], AfterValidator(_distinct_addresses)] = ()
    """The servers, each as an address or as `{address, weight}`. An address is `HOST:PORT`, or a URL if the protocol is
    over HTTP. Required, unless `discovery` finds servers by `srv`, `files` or `register`, or `servers` starts them."""
    discovery: DiscoveryConfig | None = None
    """How the gateway finds additional endpoints while it runs; `docs/discovery.md` describes each method. Default: the
    endpoints never change."""
    servers: ServersConfig | None = None
    """Model servers that the gateway starts itself when calls wait, instead of `endpoints`; `docs/servers.md` describes
    them."""
    placement: PlacementConfig | None = None
    """Settings for servers with different models. The gateway sends each request to a server that has the requested
    model, and can load models on demand. Default: all servers have the same models."""
    balance: Literal["least_in_flight", "least_load", "round_robin", "power_of_two"] = "least_in_flight"
    """Load balancing. `least_in_flight`: the endpoint with the fewest calls in flight (equally busy endpoints take
    turns). `least_load`: the endpoint with the lowest reported load (`load`). `round_robin`: the next endpoint.
    `power_of_two`: the less busy one of two random endpoints."""
    load: LoadConfig | None = None
    """Source of the servers' load for `balance: least_load`. Default for v2-rest and v2-grpc: Triton's metrics page at
    port 8002."""
    slow_start: Seconds = 0
    """Time in which the weight of an endpoint grows from a twentieth to the full weight after an ejection, in seconds.
    0: full weight immediately."""
    policies: Policies = ()
    """Policies for calls to the backend, outermost first: a list of `{POLICY: SETTINGS}`."""
    safe: Flag = False
    """Declares that the models have no side effects and that running a call twice is affordable, so the gateway can
    repeat calls even if a server might have received them. Required by the policies `retry` and `hedge`."""
    trust_metadata: Flag = False
    """Use the backend's metadata although servers of its protocol usually report wrong types (graphpipe) or no tensors
    (grps). The gateway adapts requests to this metadata, and returns it to clients."""
    max_in_flight: Size | None = None
    """Maximum number of calls in flight per endpoint; additional calls wait. Default: 1 for umbridge and mip, no limit
    for other protocols."""
    queue: QueueConfig = QueueConfig()
    """Settings for calls that wait for a free slot, if `max_in_flight` limits the calls."""
    batch: Name = ""
    """Batch format, if the protocol has several. For mip: `split`: the first dimension of every tensor counts the
    examples of one packet; `whole`: a packet has one example, which contains the tensors unchanged; `each`: one packet
    for each row."""
    flavor: Name = ""
    """Server type, if servers implement the protocol differently. For v2-rest: `triton`, `mlserver`, `kserve`,
    `openvino`, `binary` (any other server with binary tensors) or `plain`. For v2-grpc, also `typed` (reads only typed
    contents). For v1-rest: `kserve`, `tensorflow` or `gateway` (another gateway). Default: the gateway detects the type
    of each server before its first call."""
    settings: Mapping[Name, Name] = {}
    """`{KEY: TEXT}`: settings of a single protocol, described on [its page](protocols/grps.md#settings). For grps-rest,
    `ctrl_mode` and `ctrl_key` set how the gateway requests a stream."""
    limits: LimitsKey = Field(default_factory=Limits)
    """Limits for the backend's responses."""
    forward_headers: Annotated[
        tuple[Annotated[HeaderName, AfterValidator(_forwardable)], ...], AfterValidator(distinct)
    ] = ()
    """Client headers that the gateway forwards to the backend. It forwards no other headers."""
    headers: Annotated[Mapping[HeaderName, SecretHeaderValue], EachHeaderOnce, BeforeValidator(_server_headers)] = {}
    """`{NAME: VALUE}`: headers (over gRPC, metadata) of every request to the servers, including probes and metadata
    requests. They replace headers with the same names. `Host` replaces the address as the requested host name (over
    gRPC `:authority`). The gateway never shows the values."""
    health: BackendHealthConfig | None = None
    """Probes, and when failing endpoints get no calls. Default: no probes; the gateway detects failing endpoints only
    from calls."""
    tls: BackendTlsConfig | None = None
    """TLS settings for connections to all backend servers. The gateway uses TLS for addresses that begin with
    `https://`, `grpcs://` or `tcps://` even without this key."""

    @model_validator(mode="before")
    @classmethod
    def _with_form(cls, given: Any) -> Any:
        """Set the protocol to `json:FORM`, however the backend names the form."""
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


class ShedConfig(Keys):
    """When the gateway refuses new work because it is overloaded. It first refuses new connections, then requests of 64
    KiB and more, then all requests with a body."""

    lag: Annotated[Seconds, Field(gt=0)] = 0.25
    """Maximum delay of the event loop, in seconds. The gateway refuses new work if the delay exceeds this value for a
    fifth of a second."""
    memory: Annotated[float, Strict(), Field(gt=0, le=1)] = 0.9
    """Maximum share of `limits.memory` for messages, and of the cgroup's memory for the process. Above this share, the
    gateway refuses new work, but still serves small requests on open connections."""


class ProcessLimitsConfig(Keys):
    """Limits of the whole process."""

    connections: Size = 10_000
    """Maximum number of client connections on all listeners together. The limit is lower if the system allows fewer
    file descriptors. A tenth of the file descriptors, and at least 64, is reserved for backends, the health port and
    the status API."""
    handshakes: Size = 500
    """Maximum number of simultaneous TLS handshakes with clients on all listeners together; additional handshakes wait.
    Each handshake needs about 100 KiB of memory."""
    memory: Size | None = None
    """Maximum memory for client data, in bytes: bodies of 16 KiB and more, heads, waiting calls, and responses that
    clients do not read. Default: half of the memory of the machine or of the process' cgroup."""
    connections_per_client: Size | None = None
    """Maximum number of connections from one IPv4 address or one IPv6 /64 network on all listeners together. Behind a
    proxy, all clients have the proxy's address."""
    memory_per_client: Size | None = None
    """Maximum memory for data of one client address, in bytes. Until the gateway writes a response of a model server,
    the response counts only in `memory`."""
    calls_per_request: Size = 1000
    """Maximum number of calls that the steps of [graphs](graphs.md) make for one request, including nested graphs and
    the models of a `fallback`. A request that needs more calls fails."""
    shed: ShedConfig | None = None
    """Refuse new work while the gateway is overloaded. Off if absent. The gateway always serves the health port and the
    status API."""


def _collector(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refusal(f"expected a URL such as http://127.0.0.1:4318, got {VALUE}")
    if parts.username or parts.password:
        raise refusal("the URL contains a password, which would not stay secret; use a header in `headers`")
    if find_spec("requests") is None:
        text = 'needs the package of the extra `tracing`: pip install "modelglot[tracing]"'
        raise refusal(text)
    return url if parts.path.strip("/") else f"{url.rstrip('/')}/v1/traces"


class TracingConfig(Keys):
    """OpenTelemetry tracing. Needs `pip install "modelglot[tracing]"`."""

    otlp: Annotated[Name, AfterValidator(_collector)]
    """URL of a collector that accepts OTLP over HTTP. The gateway appends `/v1/traces` to a URL without a path."""
    headers: Annotated[Mapping[HeaderName, SecretHeaderValue], EachHeaderOnce] = {}
    """`{NAME: VALUE}`: headers for requests to the collector."""
    sample: Share = 0.01
    """Share of the traces starting at this gateway that are recorded. If a request has a `traceparent` header, the
    header decides whether the trace is recorded."""
    service: Name = "modelglot"
    """Value of `service.name` in the spans."""
    interval: Period = 5
    """Seconds between two batches of spans."""
    timeout: Period = 10
    """Timeout for sending a batch to the collector, in seconds. Trace data of at most 2048 requests waits for the
    collector; the gateway drops the trace data of additional requests."""


class Config(Keys):
    """The gateway's configuration."""

    _references: dict[str, str] = PrivateAttr(default_factory=dict)
    _warned: dict[Location, Problem] = PrivateAttr(default_factory=dict)

    listeners: Annotated[tuple[ListenerConfig, ...], Field(min_length=1)]
    """Addresses that accept clients. Several protocols can share one address."""
    limits: ProcessLimitsConfig = ProcessLimitsConfig()
    """Limits that all clients share."""
    admin: AdminConfig | None = None
    """The status API; off if absent."""
    auth: AuthConfig | None = None
    """Credentials for client authentication: API keys, tokens, certificates."""
    permissions: PermissionSets = Field(default_factory=dict)
    """Sets of permissions by name, each a list of permitted operations."""
    principals: PrincipalEntries = Field(default_factory=dict)
    """Permissions of principals, by the name of a principal or a glob. The entry with the exact name applies, or
    otherwise the first glob that matches. Principals without an entry have no permissions."""
    health: HealthConfig | None = None
    """The health port, for probes and Prometheus; off if absent."""
    scaler: ScalerConfig | None = None
    """KEDA's external scaler; off if absent."""
    metrics: MetricsConfig = MetricsConfig()
    """Metrics for Prometheus."""
    tracing: TracingConfig | None = None
    """Tracing with OpenTelemetry; off if absent."""
    log: LogConfig = LogConfig()
    """Settings of the logs."""
    request_ids: RequestIdsConfig | None = None
    """Request ids, which the gateway accepts or generates, returns to clients and sends to backends. If this key is set
    (`{}` is enough), every request has an id. Otherwise, only logged and traced requests have an id, and only error
    responses contain the id."""
    drain: DrainConfig = DrainConfig()
    """How the gateway stops."""
    workers: Size | Literal["auto"] = 1
    """Number of processes that serve clients. `auto`: one process for each core that the gateway can use. If there are
    several processes, an additional process supervises them and serves the health port and the status API."""
    reload: ReloadConfig = ReloadConfig()
    """Automatic reload of the configuration."""
    ready: Ready = "any"
    """Backends that must be ready for the gateway to report ready in the clients' protocols: at least one (`any`) or
    `all` of the backends that routes name, or `none`. The gateway queries the backends when a client asks, at most once
    per second. For backends with probes (`backends.*.health`), it uses the state of the endpoints instead."""
    check: Check = "none"
    """`full`: decode and check every request before it reaches a server, even if client and server use the same
    protocol. `none`: forward such requests without decoding them. Routes can override this key."""
    reference: tuple[ReferenceConfig, ...] = ()
    """Sample model servers, started with the gateway."""
    forms: FormEntries = Field(default_factory=dict)
    """JSON APIs over HTTP by name, for servers and clients that do not use any other protocol. Each form becomes the
    protocol `json:NAME` of backends and listeners. A form with the name of a built-in form replaces the built-in
    form."""
    backends: Mapping[Name, BackendConfig] = {}
    """Groups of model servers, by name."""
    models: Graphs = Field(default_factory=dict)
    """Graphs: models that the gateway builds from calls to other models, by name. Derivatives are computed by the chain
    rule. `docs/graphs.md` describes them. These names take precedence over all routes."""
    routes: tuple[RouteConfig, ...] = ()
    """Rules that assign requests to backends. The first route that matches applies."""

    @property
    def references(self) -> dict[str, str]:
        """Texts that came from files or variables, with the references in the configuration file that they replaced."""
        return self._references

    @property
    def warned(self) -> dict[Location, Problem]:
        """Warnings by location, with their positions in the file."""
        return self._warned
