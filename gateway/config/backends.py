"""The keys of `backends`, except `placement` and `servers`, which have modules of their own.

An attribute is a key, and its docstring is the key's description in `docs/configuration`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

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
    Secret,
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
from gateway.config.servers import ServersConfig
from gateway.config.tls import BackendTlsConfig
from gateway.core.protocol import Limits
from gateway.core.record import ID_HEADER
from gateway.core.spans import TRACE_HEADERS
from gateway.core.transport import HOST, FixedFields
from gateway.protocols.json.form import PREFIX

URL_HOST, URL_PORT = "{host}", "{port}"
"""Placeholders for the endpoint's host and port in the URL of a page."""
TRITON_PAGE = "http://{host}:8002/metrics"

_BRACES = re.compile(r"\{[^}]*\}?|\}")


def _page(url: str) -> str:
    for found in _BRACES.findall(url):
        if found not in (URL_HOST, URL_PORT):
            raise refusal(f"{VALUE} has {found}; use only {URL_HOST} and {URL_PORT}, the endpoint's host and port")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise refusal(f"expected a URL such as {TRITON_PAGE}, got {VALUE}")
    if "@" in parts.netloc:
        raise refusal("the URL contains a password, which would not stay secret; remove it")
    if parts.fragment:
        raise refusal(f"expected the URL of a page without a fragment (#...), got {VALUE}")
    return url


PageUrl = Annotated[Name, AfterValidator(_page)]


class LoadConfig(Keys):
    """Source of the server loads that `balance: least_load` compares."""

    kind: Literal["triton", "prometheus", "orca"] = Field("triton", alias="from")
    """`triton`: Triton's metrics page. `prometheus`: the `metric` on any Prometheus page. `orca`: the load reports in
    responses, in the header `endpoint-load-metrics` over HTTP and in trailing metadata over gRPC."""
    url: PageUrl = TRITON_PAGE
    """URL of each server's page, with the placeholders `{host}` and `{port}` for the endpoint's host and port. An
    endpoint's `load_url` overrides this URL. The gateway ignores pages larger than 4 MiB."""
    metric: Name | None = None
    """Name of a gauge metric on the page. The load is the sum of the metric's samples. For `orca`: name in the report,
    such as `named_metrics.queue`. Default for `orca`: `application_utilization`, otherwise `cpu_utilization`, otherwise
    `named_metrics.kv_cache_utilization`."""
    measures: Literal["calls", "use"] | None = None
    """Quantity that the metric measures. `calls` (default for `prometheus`): number of calls at the server. `use`
    (default for `orca`): utilization of a processor, a GPU or a cache, on any scale."""
    labels: Mapping[Name, str] = {}
    """`{LABEL: VALUE}`: use only samples of the metric with these labels."""
    interval: Period = 1
    """Interval between requests for a server's page, in seconds."""
    timeout: Period = 1
    """Timeout of a request for a page, in seconds."""
    stale: Period = 5
    """Age above which the gateway ignores a load report, in seconds. Until the next report, the gateway uses the number
    of calls in flight instead."""


DEFAULT_LOAD = LoadConfig.model_validate({})
"""The default source: Triton's metrics page."""


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
    """Methods to discover endpoints at runtime. You can combine several methods."""

    dns: Literal["all"] | None = None
    """`all`: every IP address of the host names in `endpoints` becomes a separate endpoint."""
    srv: Name | None = None
    """DNS name with SRV records, which contain the host and port of each server. Needs `pip install
    "modelglot[discovery]"`."""
    files: Name | None = None
    """Absolute path of one or more files that contain one address per line. The path can contain the wildcards `*`,
    `?`, `[...]` and `**`."""
    registration: RegisterConfig | None = Field(None, alias="register")  # pydantic has an attribute `register`
    """Settings for servers that register themselves."""
    interval: Period = 5
    """Interval between checks of DNS names and files, in seconds. The gateway queries SRV records when their TTL
    expires, but not more often than this interval."""


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
