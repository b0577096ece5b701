"""The configuration's keys: listeners, backends and everything at the top. Routes are in `routes`.

An attribute is a key, and its docstring is the key's description in `docs/configuration.md`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gateway.config.address import Bind
from gateway.config.fields import Flag, HeaderName, Keys, Name, Seconds, Size, SomeNames, Written, distinct, refusal
from gateway.config.policies import Policies
from gateway.config.routes import RouteConfig
from gateway.core.frozen import replace
from gateway.core.protocol import DEFAULT_LIMITS, Limits


class LimitsConfig(Keys):
    """Bounds on what is received, checked before memory is allocated."""

    message: Size = DEFAULT_LIMITS.message
    """Bytes of a message's body, before and after decompression."""
    headers: Size = DEFAULT_LIMITS.headers
    """Bytes of a message's headers."""
    json_values: Size = DEFAULT_LIMITS.json_values
    """JSON values in a message outside tensor data; for MIP, TLVs beyond one for each of 65535 rows."""
    config: Size = DEFAULT_LIMITS.config
    """Bytes of UM-Bridge's `config`."""
    inflation: Size = DEFAULT_LIMITS.inflation
    """The largest ratio of a message's size to its compressed size; up to 1 MiB any ratio is accepted. (A tensor of
    equal numbers has a ratio of about 1000.)"""


class ListenerLimitsConfig(LimitsConfig):
    """Bounds on what clients send, and on their connections."""

    connections: Size | None = None
    """Connections at once; further ones are refused with an error of the listener's first protocol. Without it only
    the process' limit holds."""


def _limits(keys: LimitsConfig) -> Limits:
    return Limits(keys.message, keys.headers, keys.json_values, keys.config, keys.inflation)


def _listener_limits(keys: ListenerLimitsConfig) -> Limits:
    return replace(_limits(keys), connections=keys.connections)


LimitsKey = Annotated[Limits, Written(LimitsConfig, _limits)]
ListenerLimitsKey = Annotated[Limits, Written(ListenerLimitsConfig, _listener_limits)]


def _prefix(path: str) -> str:
    if not path.startswith("/") or path.endswith("/") or not set(path).isdisjoint("{}?# %"):
        raise refusal("expected a path such as /science, without a slash at its end and without { } ? # %, got {value}")
    return path


class ErrorsConfig(Keys):
    """What errors tell clients."""

    detail: Literal["full", "brief"] = "full"
    """`brief` hides the names and addresses of backends and the reason why one cannot be reached; the log has them."""


class ListenerConfig(Keys):
    """An address that accepts clients."""

    name: Name
    """The listener's name in routes, logs and metrics."""
    bind: Bind
    """`HOST:PORT`; with port 0 the system chooses one. For protocols over TCP also `tcp://HOST:PORT` and
    `unix:///PATH`."""
    protocols: SomeNames
    """The protocols that are served, all of one transport. Requests to unknown paths get an error of the first one."""
    model: Name = ""
    """The model for requests that do not name one."""
    prefix: Mapping[Name, Annotated[Name, AfterValidator(_prefix)]] = {}
    """`{PROTOCOL: PATH}`: serve the protocol below this path."""
    flavor: Mapping[Name, Name] = {}
    """`{PROTOCOL: FLAVOR}`: which kind of server clients take the gateway for, if the kinds differ towards clients: for
    v1-rest `kserve` (the default) or `tensorflow`."""
    allow_offline: Flag = False
    """Let clients take the listener offline and online (grps). Offline it reports that it is not ready, but still
    answers requests."""
    allow_control: Flag = False
    """Let clients load and unload models, and read and change trace and log settings, on the model servers behind the
    listener (V2)."""
    metrics_page: Flag = False
    """Serve this listener's metrics page, if one of its protocols has one (grps-rest: `/`)."""
    limits: ListenerLimitsKey = Field(default_factory=Limits)
    """Bounds on what clients send."""
    errors: ErrorsConfig = ErrorsConfig()
    """How much errors tell clients."""


class AdminConfig(Keys):
    """The status API, for operators."""

    bind: Bind
    """`HOST:PORT` on loopback."""


Ready = Literal["any", "all", "none"]


class HealthConfig(Keys):
    """The health port: `/healthz` and `/readyz`."""

    bind: Bind
    """`HOST:PORT` on any address."""
    ready: Ready = "none"
    """Which backends must be ready for `/readyz` to report ready: at least one (`any`), `all` of those that routes
    name, or `none`. Kubernetes removes a replica that is not ready from its Service: with `any` or `all` one backend
    that all replicas share removes all of them at once."""


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


class BackendConfig(Keys):
    """A group of model servers that have the same models."""

    protocol: Name
    """The protocol of the servers."""
    endpoints: SomeNames
    """The addresses of the servers: `HOST:PORT`, or a URL if the protocol is over HTTP. A request goes to the one with
    the fewest requests in flight."""
    policies: Policies = ()
    """Policies around calls to the backend, outermost first: a list of `{POLICY: SETTINGS}`."""
    trust_metadata: Flag = False
    """Use the backend's metadata although servers of its protocol usually report wrong types (graphpipe) or no tensors
    (grps): requests are fitted to it, and all clients get it."""
    max_in_flight: Size | None = None
    """The most calls in flight per endpoint; further ones wait. The default is the protocol's: 1 for umbridge and mip,
    no limit for the others."""
    batch: Name = ""
    """How a batch is sent, if the protocol has several ways. For mip: `split`: the first dimension of every tensor
    counts the examples of one packet; `whole`: a packet has one example, which holds the tensors unchanged; `each`: one
    packet for each row."""
    flavor: Name = ""
    """The kind of server, if servers differ in how they implement the protocol: for v2-rest `triton`, `mlserver`,
    `kserve`, `binary` (any other with binary tensors) or `plain`; for v1-rest `kserve`, `tensorflow` or `gateway`
    (another gateway). Without it each server is asked before its first call."""
    limits: LimitsKey = Field(default_factory=Limits)
    """Bounds on what the backend answers."""
    forward_headers: Annotated[
        tuple[Annotated[HeaderName, AfterValidator(_forwardable)], ...], AfterValidator(distinct)
    ] = ()
    """The only headers of clients that are sent on to the backend."""


class ProcessLimitsConfig(Keys):
    """Bounds on the whole process."""

    connections: Size = 10_000
    """Connections of clients at once, on all listeners together. Fewer if the system allows fewer file descriptors, of
    which a tenth, and at least 64, are reserved for backends, the health port and the status API."""
    memory: Size | None = None
    """Bytes of all message bodies together (those of 16 KiB and more). Without it half of the memory of the machine or
    of the process' cgroup."""


class Config(Keys):
    """The gateway's configuration."""

    listeners: Annotated[tuple[ListenerConfig, ...], Field(min_length=1)]
    """Addresses that accept clients. Several protocols of one transport can share one."""
    limits: ProcessLimitsConfig = ProcessLimitsConfig()
    """Bounds on all clients together."""
    admin: AdminConfig | None = None
    """The status API; off if absent."""
    health: HealthConfig | None = None
    """The health port, for probes; off if absent."""
    drain: DrainConfig = DrainConfig()
    """How the gateway stops."""
    reload: ReloadConfig = ReloadConfig()
    """When the configuration is read again."""
    ready: Ready = "any"
    """Which backends must be ready for the gateway to report ready in the clients' protocols: at least one (`any`) or
    `all` of those that routes name, or `none`. They are asked when a client asks, at most once a second."""
    reference: tuple[ReferenceConfig, ...] = ()
    """Model servers with bundled models, started with the gateway."""
    backends: Mapping[Name, BackendConfig] = {}
    """Groups of model servers, by name."""
    routes: tuple[RouteConfig, ...] = ()
    """Which requests go to which backend. The first route that matches is used."""
