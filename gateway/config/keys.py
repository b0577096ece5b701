"""The configuration keys of listeners, backends and the top level; `routes` contains the keys of routes. `loading`
creates the Config of a file.

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
"""Limits for the responses of a backend."""
ListenerLimitsKey = Annotated[Limits, Declared(Limits, _LIMIT_FORMS, {})]


def _prefix(path: str) -> str:
    if not path.startswith("/") or path.endswith("/") or not set(path).isdisjoint("{}?# %"):
        raise refusal("expected a path such as /science, without a slash at its end and without { } ? # %, got {value}")
    return path


class ErrorsConfig(Keys):
    """Level of detail in the error messages that clients get."""

    detail: Literal["full", "brief"] = "full"
    """`brief` hides backend names, backend addresses, and the reason why a backend is unreachable. The log always
    contains these details."""


def _log_path(path: str) -> str:
    if path not in ("stdout", "stderr") and not path.startswith("/"):
        raise refusal("expected stdout, stderr or the absolute path of a file, got {value}")
    return path


class AccessConfig(Keys):
    """The access log: one line for each request, written when the request ends. The log contains no header values, keys
    or tensors."""

    when: Literal["auto", "always", "never"] = "auto"
    """When the gateway writes the access log. `auto`: if `format` is `json`, or if `path` is a file or a terminal."""
    sample: Share = 1
    """Fraction of successful requests that are logged. Failed requests are always logged."""
    path: Annotated[Name, AfterValidator(_log_path)] = "stdout"
    """`stdout`, `stderr` or the absolute path of a file. The gateway reopens the file on SIGHUP and at every reload."""


class LogConfig(Keys):
    """The gateway's log on standard error, the access log and the payload log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum severity of the gateway's log lines. For libraries, the minimum is always `warning`."""
    format: Literal["text", "json"] = "text"
    """`text`: readable lines, with colors only on a terminal. `json`: one JSON object per line."""
    access: AccessConfig = AccessConfig()
    """One line for each request."""
    payloads: PayloadLogConfig | None = None
    """The payload log: requests and responses of a sample of calls, with their tensors. Off if absent."""


class RequestIdsConfig(Keys):
    """Request ids in responses and in requests to backends. Every request has an id in the access log, in traces, and
    in log lines about unexpected errors. If this key is absent, only error responses contain the id."""

    accept: Flag = True
    """Use the client's id: the value of `x-request-id` if it has at most 128 letters, digits and `._:/+=@-`, otherwise
    the trace id in a valid `traceparent`. If `false`, the gateway generates every id."""
    reply: Flag = True
    """Return the id to clients as `x-request-id`, in HTTP response headers and in gRPC trailers."""
    forward: Flag = True
    """Send the id to backends: over HTTP and gRPC as `x-request-id`, over brpc in the frame's meta. A valid
    `traceparent` from the client is forwarded too."""


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
    """CORS settings. Web pages of the allowed origins can call the listener over HTTP and read its responses."""

    origins: Annotated[
        tuple[Annotated[Name, AfterValidator(_origin)], ...], Field(min_length=1), AfterValidator(distinct)
    ]
    """Allowed origins of web pages, such as `https://app.example.com`. `"*"` allows any origin, and requires a listener
    without client authentication."""
    headers: Annotated[tuple[Annotated[HeaderName, AfterValidator(_named_header)], ...], AfterValidator(distinct)] = (
        "authorization",
        "content-type",
    )
    """Request headers that web pages can send."""
    max_age: Annotated[int, Strict(), Field(ge=0, le=86_400)] = 600
    """How long browsers cache these permissions, in seconds."""


class ListenerConfig(Keys):
    """An address that accepts clients."""

    name: Name
    """Name of the listener in routes, logs and metrics."""
    bind: Bind
    """Address as `HOST:PORT`. If the port is 0, the system chooses a port. If all protocols are byte streams,
    `tcp://HOST:PORT` is also possible; for a single byte-stream protocol, also `unix:///PATH`."""
    protocols: SomeNames
    """Protocols of the listener. For a form, write `json:NAME`. The first bytes of each connection determine its
    transport (HTTP, gRPC, byte streams). HTTP requests to unknown paths get an error in the format of the first
    protocol over HTTP."""
    model: Name = ""
    """Model for requests without a model name."""
    prefix: Mapping[Name, Annotated[Name, AfterValidator(_prefix)]] = {}
    """`{PROTOCOL: PATH}`: path prefix of the protocol's URLs."""
    flavor: Mapping[Name, Name] = {}
    """`{PROTOCOL: FLAVOR}`: server type that clients see, for protocols with several server types. For v1-rest:
    `kserve` (the default) or `tensorflow`. For v2-grpc: `triton` (the default) or `mlserver`, which sends typed
    responses to typed requests."""
    settings: Mapping[Name, Mapping[Name, Name]] = {}
    """`{PROTOCOL: {KEY: TEXT}}`: [protocol-specific settings](protocols/grps.md#settings). For grps-rest, `ctrl_mode`
    and `ctrl_key` set how clients request a stream, and `res_content_type` sets the stream's content type."""
    allow_offline: Flag = False
    """Let clients take the listener offline and online (grps). An offline listener reports that it is not ready, but
    still serves requests."""
    allow_control: Flag = False
    """Let clients load and unload models on the model servers, and read and change their trace and log settings
    (V2)."""
    allow_explain: Flag = False
    """Let clients request explanations: for a request with the header `gateway-explain: 1`, the response has the header
    `gateway-explanation`. The explanation contains the names of routes, backends and endpoints. If the listener has
    `auth`, clients need the permission `explain`. If it has `errors: {detail: brief}`, they also need `details`."""
    metrics_page: Flag = False
    """Serve this listener's metrics page, if one of its protocols defines one (grps-rest: `/`)."""
    limits: ListenerLimitsKey = Field(default_factory=Limits)
    """Limits for client messages and client connections."""
    errors: ErrorsConfig = ErrorsConfig()
    """Level of detail in the error messages that clients of this listener get."""
    reply_headers: Flag = False
    """Add headers with details about the call to HTTP and gRPC responses: `gateway-route` (the route's name),
    `gateway-backend`, `gateway-tries`, and, if a cache is configured, `gateway-cache`."""
    auth: ListenerAuthConfig | None = None
    """Client authentication. Each client has the permissions of its principal. Default: no authentication; every client
    has all permissions."""
    tls: ListenerTlsConfig | None = None
    """TLS for connections from the listener's clients. Default: no TLS."""
    cors: CorsConfig | None = None
    """Origins of web pages that can call the listener from browsers. Default: browsers block web pages of other origins
    from reading responses."""

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
    """The admin port: the status API and the console, for operators."""

    bind: Bind
    """Address as `HOST:PORT`. It must be a loopback address, unless `auth` is set."""
    auth: AdminAuthConfig | None = None
    """Client authentication. Only principals with the permission `admin` have access."""
    tls: ListenerTlsConfig | None = None
    """TLS settings, with the same keys as `listeners[].tls`."""


Ready = Literal["any", "all", "none"]


class ScalerConfig(Keys):
    """The external scaler for KEDA. It reports the number of calls to each backend over gRPC, so KEDA can start and
    stop servers. Clients can read the names and the load of backends, but cannot change anything. If this key is
    absent, the gateway does not count these calls."""

    bind: Bind
    """Address as `HOST:PORT`. It must be a loopback address, unless `tls: {client: required}` or `open` is set."""
    tls: ListenerTlsConfig | None = None
    """TLS settings, with the same keys as `listeners[].tls`. Configure `caCert`, `tlsClientCert` and `tlsClientKey` for
    KEDA in a TriggerAuthentication."""
    open: Flag = False
    """Accept every client that can reach the address. KEDA cannot send API keys or tokens, so use this key in a pod
    whose NetworkPolicy admits only KEDA's operator."""


class HealthConfig(Keys):
    """The health port: `/healthz`, `/readyz` and `/metrics`."""

    bind: Bind
    """Address as `HOST:PORT`; any address is allowed."""
    ready: Ready = "none"
    """Backends that must be ready for `/readyz` to report ready: at least one (`any`) or `all` of the backends in
    routes, or `none`. Kubernetes removes replicas that are not ready from the Service. With `any` or `all`, the failure
    of a backend that all replicas share can therefore remove all replicas at the same time."""
    auth: HealthAuthConfig | None = None
    """Authentication for `/metrics`: only principals with the permission `metrics` can read the page. Probes
    (`/healthz`, `/readyz`) never need credentials. Default: no authentication."""
    tls: ListenerTlsConfig | None = None
    """TLS settings, with the same keys as `listeners[].tls`. Probes then need `scheme: HTTPS`."""


def _ascending(bounds: tuple[float, ...]) -> tuple[float, ...]:
    for at in range(1, len(bounds)):
        if bounds[at] <= bounds[at - 1]:
            raise refusal(f"{VALUE} is not more than the bound before it, {bounds[at - 1]:g}", at)
    return bounds


class MetricsConfig(Keys):
    """`/metrics` on the health port, for Prometheus. If the health port is not enabled, the gateway records no
    metrics."""

    enabled: Flag = True
    """Record metrics, and serve the page."""
    models: Annotated[int, Strict(), Field(ge=0)] = 100
    """Maximum number of models with their own value of the label `model`, in addition to the models with an exact name
    in a route. The first models that return a response get their own values. All other models are counted together as
    `other`."""
    buckets: Annotated[tuple[Period, ...], Field(min_length=1, max_length=50), AfterValidator(_ascending)] = (
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
    )  # fmt: skip
    """Upper bounds of the histogram buckets, in seconds, ascending."""


class DrainConfig(Keys):
    """How the gateway stops on SIGTERM or SIGINT. A second signal terminates it immediately."""

    delay: Seconds = 0
    """Seconds before the listeners close. During this time, `/readyz` fails, so load balancers stop sending requests,
    but the gateway still serves requests. HTTP responses have `Connection: close`."""
    timeout: Seconds = 30
    """Maximum time for requests in flight after the listeners close, in seconds. The gateway then cancels them."""


class ReloadConfig(Keys):
    """Automatic reload of the configuration. SIGHUP and `POST /reload` reload it in any case."""

    watch: Flag = True
    """Reload when the configuration file, or a file in a `${file:PATH}` reference, changes."""
    interval: Annotated[Seconds, Field(ge=0.1)] = 1
    """Seconds between two checks of the files. The gateway loads a changed file only when the next check finds no
    further change, which avoids loading an incomplete file."""


class ReferenceConfig(Keys):
    """A model server with sample models in the gateway's own process, for demos and tests."""

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
    """Settings for ejection, which takes an endpoint out of service for some time if calls fail."""

    failures: Size = 5
    """Number of consecutive calls that time out or get a malformed response, after which the gateway ejects the
    endpoint. An unreachable endpoint is ejected immediately, for 1 s."""
    seconds: Period = 10
    """Duration of the first ejection, in seconds. If the endpoint has returned no response since its previous ejection,
    the next ejection lasts twice as long, up to 60 s (or up to this value, if it is larger)."""
    max_ejected_share: Share = 0.5
    """Maximum fraction of the backend's endpoints that get no calls because they are down, rounded up. The last
    endpoint always gets calls, unless this value is 1. In that case, calls fail immediately while all endpoints are
    down."""


class BackendHealthConfig(Keys):
    """Settings for probes and for ejection of failing endpoints. If this key is absent, the gateway does not probe
    endpoints."""

    probe: Literal["live", "ready", "none"] | None = None
    """Type of probe in the backend's protocol: `live` checks whether the server is live, and `ready` whether it is
    ready. `none`: no probes. Default: `live` for grps, `ready` for all other protocols."""
    interval: Period = 5
    """Seconds between two probes of an endpoint."""
    timeout: Period = 2
    """Timeout of a probe, in seconds."""
    unhealthy: Size = 3
    """Number of consecutive failed probes after which an endpoint is down."""
    healthy: Size = 1
    """Number of consecutive passed probes after which an endpoint that is down gets calls again."""
    jitter: Share = 0.1
    """Fraction of `interval` by which each wait is randomly longer or shorter, so probes of different endpoints or from
    different replicas do not all run at the same time."""
    ejection: EjectionConfig = EjectionConfig()
    """Ejection of endpoints whose calls fail. These settings apply even if `probe` is `none`."""


class RegisterConfig(Keys):
    """Servers that register themselves with `POST /register` on the admin port. Each server has a lease, which it
    renews."""

    token: Secret
    """Token that a server must send as `Authorization: Bearer TOKEN`. Anyone with the token can redirect the backend's
    requests to any address, so use a reference such as `${file:/path}`."""
    seconds: Period = 60
    """Maximum duration of a lease, in seconds, and the default for servers that do not request a duration. The gateway
    removes a server that does not renew its lease in time."""


class DiscoveryConfig(Keys):
    """Methods to find endpoints while the gateway runs. You can combine several methods."""

    dns: Literal["all"] | None = None
    """`all`: every IP address of the host names in `endpoints` becomes a separate endpoint."""
    srv: Name | None = None
    """DNS name with SRV records, which contain the host and port of each server. Needs `pip install
    "modelglot[discovery]"`."""
    files: Name | None = None
    """Absolute path of the files, which contain one address per line. The path can contain the wildcards `*`, `?`,
    `[...]` and `**`."""
    registration: RegisterConfig | None = Field(None, alias="register")  # pydantic has an attribute `register`
    """Servers that register themselves."""
    interval: Period = 5
    """Seconds between two checks of DNS names and files. The gateway queries SRV records when their TTL expires, but
    not more often than this interval."""


class EndpointConfig(Keys):
    """A model server: its address, or a map with the address and other keys."""

    address: Name
    """Address of the server: `HOST:PORT`, or a URL if the protocol is over HTTP. With TLS: `https://HOST:PORT`,
    `grpcs://HOST:PORT` or `tcps://HOST:PORT`."""
    weight: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] = 1
    """Weight of the server in load balancing, relative to the weights of the backend's other servers."""
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
    """Settings for calls that wait because every endpoint has `max_in_flight` calls in flight."""

    length: Size = 1000
    """Maximum number of waiting calls. The gateway refuses calls above this limit. It also refuses a call if its client
    already has as many waiting calls as the queue has free positions."""
    timeout: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] | None = None
    """Maximum time that a call waits, in seconds. The gateway then refuses the call. Default: a call waits until its
    deadline."""
    wait_for_endpoints: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] | None = None
    """Maximum time that a call or a metadata request waits while `discovery` finds no endpoint, in seconds. This time
    does not count toward `timeout`. Use this key if an autoscaler starts the servers on demand (`scaler`). If it is
    set, a DNS name without addresses means that the backend has no endpoints. Default: calls fail immediately."""


class BackendConfig(Keys):
    """A group of model servers with the same models, or, with `placement`, with different models."""

    protocol: Name
    """Protocol of the servers; `json` for the form in `form`."""
    form: Name = ""
    """Form that describes the servers' JSON API: a name in `forms`, or a built-in form. `{protocol: json, form: NAME}`
    is the same as `protocol: "json:NAME"`."""
    endpoints: Annotated[tuple[Annotated[EndpointConfig, _TextOrMap()], ...], AfterValidator(_distinct_addresses)] = ()
    """The servers, each as an address, or as a map such as `{address: ..., weight: ...}`. An address is `HOST:PORT`, or
    a URL if the protocol is over HTTP. Required, unless `discovery` finds servers by `srv`, `files` or `register`, or
    `servers` starts them."""
    discovery: DiscoveryConfig | None = None
    """Methods to find endpoints while the gateway runs: see `docs/discovery.md`. Default: the endpoints never
    change."""
    servers: ServersConfig | None = None
    """Model servers that the gateway starts itself when calls wait, instead of `endpoints`: see `docs/servers.md`."""
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
    """Time after an ejection in which the weight of the endpoint grows from 5% to 100%, in seconds. 0: full weight
    immediately."""
    policies: Policies = ()
    """Policies for calls to the backend, outermost first: a list of `{POLICY: SETTINGS}`."""
    safe: Flag = False
    """Declares that calls are idempotent: the models have no side effects, and running a call twice is affordable. The
    gateway can then repeat calls that a server might have received. Required by the policies `retry` and `hedge`."""
    trust_metadata: Flag = False
    """Trust the backend's metadata, although servers of its protocol usually report wrong types (graphpipe) or no
    tensors (grps). The gateway converts requests with this metadata, and returns it to clients."""
    max_in_flight: Size | None = None
    """Maximum number of calls in flight per endpoint; additional calls wait in the queue. Default: 1 for umbridge and
    mip, no limit for other protocols."""
    queue: QueueConfig = QueueConfig()
    """Settings for calls that wait for a free slot, if `max_in_flight` limits the calls."""
    batch: Name = ""
    """Batch format, if the protocol has several. For mip: `split`: all rows in one packet, each row as one example;
    `whole`: the tensors unchanged, as one example in one packet; `each`: one packet per row."""
    flavor: Name = ""
    """Server type, because servers implement some protocols differently. For v2-rest: `triton`, `mlserver`, `kserve`,
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
    """Client headers that the gateway forwards to the backend. All other client headers are dropped."""
    headers: Annotated[Mapping[HeaderName, SecretHeaderValue], EachHeaderOnce, BeforeValidator(_server_headers)] = {}
    """`{NAME: VALUE}`: headers (over gRPC, metadata) of every request to the servers, including probes and metadata
    requests. They replace headers with the same names. `Host` sets the requested host name (over gRPC `:authority`),
    instead of the address. The gateway never shows the values."""
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


class ShedConfig(Keys):
    """Load shedding: thresholds above which the gateway refuses new work. It first refuses new connections, then
    requests of 64 KiB and more, then all requests with a body."""

    lag: Annotated[Seconds, Field(gt=0)] = 0.25
    """Maximum event-loop lag, in seconds. The gateway refuses new work if the lag exceeds this value for 0.2 s."""
    memory: Annotated[float, Strict(), Field(gt=0, le=1)] = 0.9
    """Maximum fraction of `limits.memory` that messages use, and of the cgroup's memory that the process uses. Above
    this fraction, the gateway refuses new work, but still serves small requests on open connections."""


class ProcessLimitsConfig(Keys):
    """Limits of the whole process."""

    connections: Size = 10_000
    """Maximum number of client connections on all listeners together. The limit is lower if the system allows fewer
    file descriptors. A tenth of the file descriptors, but at least 64, is reserved for backends, the health port and
    the admin port."""
    handshakes: Size = 500
    """Maximum number of simultaneous TLS handshakes with clients on all listeners together; additional handshakes wait.
    Each handshake needs about 100 KiB of memory."""
    memory: Size | None = None
    """Maximum memory for client data, in bytes: bodies of 16 KiB and more, headers, waiting calls, and responses that
    clients have not read yet. Default: half of the memory of the machine or of the cgroup."""
    connections_per_client: Size | None = None
    """Maximum number of connections from one IPv4 address or one IPv6 /64 network on all listeners together. Behind a
    proxy, all clients have the proxy's address."""
    memory_per_client: Size | None = None
    """Maximum memory for data of one client address, in bytes. A model server's response counts toward this limit only
    while the gateway writes it to the client; before, it counts only toward `memory`."""
    calls_per_request: Size = 1000
    """Maximum number of calls from [graph](graphs.md) steps per client request, including nested graphs and `fallback`
    models. A request that needs more calls fails."""
    shed: ShedConfig | None = None
    """Refuse new work while the gateway is overloaded. Off if absent. The health port and the admin port are always
    served."""


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
    """Fraction of the traces starting at this gateway that are recorded. If a request has a `traceparent` header, the
    header decides whether the trace is recorded."""
    service: Name = "modelglot"
    """Value of `service.name` in the spans."""
    interval: Period = 5
    """Seconds between two batches of spans."""
    timeout: Period = 10
    """Timeout for sending a batch to the collector, in seconds. While the collector is slow, the gateway keeps the
    trace data of at most 2048 requests, and drops the rest."""


class Config(Keys):
    """The gateway's configuration."""

    _references: dict[str, str] = PrivateAttr(default_factory=dict)
    _warned: dict[Location, Problem] = PrivateAttr(default_factory=dict)

    listeners: Annotated[tuple[ListenerConfig, ...], Field(min_length=1)]
    """Addresses that accept clients. Several protocols can share one address."""
    limits: ProcessLimitsConfig = ProcessLimitsConfig()
    """Limits for all clients together."""
    admin: AdminConfig | None = None
    """The admin port; off if absent."""
    auth: AuthConfig | None = None
    """Credentials for client authentication: API keys, tokens, certificates."""
    permissions: PermissionSets = Field(default_factory=dict)
    """Named sets of permissions, each a list of permitted operations."""
    principals: PrincipalEntries = Field(default_factory=dict)
    """Permissions of principals. Each key is the name of a principal, or a glob. The entry with the exact name applies,
    otherwise the first matching glob. Principals without an entry have no permissions."""
    health: HealthConfig | None = None
    """The health port, for probes and Prometheus; off if absent."""
    scaler: ScalerConfig | None = None
    """The external scaler for KEDA; off if absent."""
    metrics: MetricsConfig = MetricsConfig()
    """Metrics for Prometheus."""
    tracing: TracingConfig | None = None
    """Tracing with OpenTelemetry; off if absent."""
    log: LogConfig = LogConfig()
    """Log settings."""
    request_ids: RequestIdsConfig | None = None
    """Request ids, which the gateway accepts or generates, returns to clients and sends to backends. If this key is set
    (`{}` is enough), every request has an id. Otherwise, only logged and traced requests have an id, and only error
    responses contain it."""
    drain: DrainConfig = DrainConfig()
    """Settings for stopping the gateway."""
    workers: Size | Literal["auto"] = 1
    """Number of processes that serve clients. `auto`: one process for each core that the gateway can use. With several
    processes, an additional process supervises them, and serves the health port and the admin port."""
    reload: ReloadConfig = ReloadConfig()
    """Automatic reload of the configuration."""
    ready: Ready = "any"
    """Backends that must be ready for the gateway to report ready in the clients' protocols: at least one (`any`) or
    `all` of the backends in routes, or `none`. The gateway queries the backends when a client requests readiness, at
    most once per second. For backends with probes (`backends.*.health`), it uses the state of the endpoints instead."""
    check: Check = "none"
    """`full`: decode and check every request before it reaches a server, even if client and server use the same
    protocol. `none`: forward such requests without decoding them. Routes can override this key."""
    reference: tuple[ReferenceConfig, ...] = ()
    """Sample model servers, started with the gateway."""
    forms: FormEntries = Field(default_factory=dict)
    """Named descriptions of JSON APIs over HTTP, for servers and clients that use none of the other protocols. Each
    form defines the protocol `json:NAME` for backends and listeners. A form with the name of a built-in form replaces
    the built-in form."""
    backends: Mapping[Name, BackendConfig] = {}
    """Groups of model servers, by name."""
    models: Graphs = Field(default_factory=dict)
    """Model graphs by name: models that the gateway builds from calls to other models. Derivatives are computed by the
    chain rule. Names of graphs take precedence over all routes. See `docs/graphs.md`."""
    routes: tuple[RouteConfig, ...] = ()
    """Rules that assign requests to backends. The first route that matches applies."""

    @property
    def references(self) -> dict[str, str]:
        """Values from files and environment variables, and the reference in the configuration file that each value
        replaced."""
        return self._references

    @property
    def warned(self) -> dict[Location, Problem]:
        """Warnings by location, with their positions in the file."""
        return self._warned
