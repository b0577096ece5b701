"""The configuration's keys. The attributes are the keys, their docstrings what `docs/configuration.md` says of them."""

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
    """What is refused before memory is taken for it."""

    message: Size = DEFAULT_LIMITS.message
    """Bytes of one message's body, before and after decompression."""
    headers: Size = DEFAULT_LIMITS.headers
    """Bytes of one message's headers."""
    json_values: Size = DEFAULT_LIMITS.json_values
    """JSON values of one message outside tensor data; of MIP, TLVs beyond one for each of 65535 rows."""
    config: Size = DEFAULT_LIMITS.config
    """Bytes of UM-Bridge's `config`."""
    inflation: Size = DEFAULT_LIMITS.inflation
    """How many times its compressed size a message may inflate to; up to 1 MiB it may in any case. Tensors of equal
    numbers compress to a thousandth."""


class ListenerLimitsConfig(LimitsConfig):
    """The same, and how many clients there may be."""

    connections: Size | None = None
    """Connections at once; further ones are refused in the words of the listener's first protocol. Absent: as many as
    the process may have."""


def _limits(keys: LimitsConfig) -> Limits:
    return Limits(keys.message, keys.headers, keys.json_values, keys.config, keys.inflation)


def _listener_limits(keys: ListenerLimitsConfig) -> Limits:
    return replace(_limits(keys), connections=keys.connections)


LimitsKey = Annotated[Limits, Written(LimitsConfig, _limits)]
ListenerLimitsKey = Annotated[Limits, Written(ListenerLimitsConfig, _listener_limits)]


def _prefix(path: str) -> str:
    if not path.startswith("/") or path.endswith("/") or not set(path).isdisjoint("{}?# %"):
        raise refusal("expected a path such as /science: no slash at its end, none of { } ? # %, got {value}")
    return path


class ErrorsConfig(Keys):
    """What clients are told of errors."""

    detail: Literal["full", "brief"] = "full"
    """`brief` leaves out the names and addresses of backends, and why one cannot be reached; the log has them."""


class ListenerConfig(Keys):
    """An address where clients arrive."""

    name: Name
    """What routes, logs and metrics call it."""
    bind: Bind
    """`HOST:PORT`; port 0 is one that the system chooses. Protocols over TCP: also `tcp://HOST:PORT`, `unix:///PATH`."""
    protocols: SomeNames
    """The protocols spoken here, all of one transport. Unknown paths are answered in the form of the first."""
    model: Name = ""
    """The model of requests that name none."""
    prefix: Mapping[Name, Annotated[Name, AfterValidator(_prefix)]] = {}
    """`{PROTOCOL: PATH}`: the protocol is served below that path."""
    allow_offline: Flag = False
    """Clients may take the listener offline and online again (grps): offline it says that it is not ready, and answers
    all the same. Without it that is refused."""
    allow_control: Flag = False
    """Clients may load and unload models, and see and change the settings of traces and logs, on the model servers
    behind it (V2). Without it that is refused."""
    metrics_page: Flag = False
    """Serve the page of metrics that one of its protocols has (grps-rest: `/`), about this listener."""
    limits: ListenerLimitsKey = Field(default_factory=Limits)
    """What clients may send."""
    errors: ErrorsConfig = ErrorsConfig()
    """How errors are told."""


class AdminConfig(Keys):
    """The status API."""

    bind: Bind
    """`HOST:PORT`, on loopback."""


Ready = Literal["any", "all", "none"]


class HealthConfig(Keys):
    """`/healthz` and `/readyz`, and nothing else."""

    bind: Bind
    """`HOST:PORT`, on any address."""
    ready: Ready = "none"
    """The same as the key `ready` beside `health`, for `/readyz`. Kubernetes takes a replica that is not ready out of
    its Service: with `any` or `all` a backend that all replicas share takes away all of them at once."""


class DrainConfig(Keys):
    """How the gateway stops on SIGTERM or SIGINT; a second signal ends it at once."""

    delay: Seconds = 0
    """Seconds in which `/readyz` fails and everything is still accepted and answered, so that load balancers notice.
    Replies over HTTP say `Connection: close` meanwhile."""
    timeout: Seconds = 30
    """Seconds that the requests in flight then have, after the listeners closed; the rest is given up."""


class ReferenceConfig(Keys):
    """Bundled models, served by the gateway's own process as if they were a model server; for demos and tests."""

    protocol: Name
    """The protocol spoken there."""
    bind: Bind
    """As a listener's."""
    models: SomeNames
    """Bundled models by name, or Python callables as `module:attribute`."""


# RFC 9110, section 7.6.1, and what this gateway's own message to the backend decides
_NEVER_FORWARDED = frozenset(
    {
        "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect",
        "gateway-hops", "gateway-reason", "host", "inference-header-content-length", "keep-alive", "proxy-connection",
        "request-timeout", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip


def _forwardable(name: str) -> str:
    if name in _NEVER_FORWARDED:
        raise refusal("{value} belongs to each connection by itself and is never forwarded")
    return name


class BackendConfig(Keys):
    """A destination for requests."""

    protocol: Name
    """The protocol its servers speak."""
    endpoints: SomeNames
    """Its addresses: `HOST:PORT`, or a URL where the protocol has one. The one with the least in flight is taken."""
    policies: Policies = ()
    """What wraps its calls, outermost first: a list of `{POLICY: SETTINGS}`."""
    trust_metadata: Flag = False
    """Its metadata is right, over protocols whose real servers tell wrong types (graphpipe) or nothing of tensors
    (grps): requests are fitted to it, and clients of every protocol are told what it says."""
    max_in_flight: Size | None = None
    """Calls at once per endpoint. The default is the protocol's: 1 for umbridge and mip, any number for the others."""
    batch: Name = ""
    """How a batch travels, where the protocol has several ways. For mip `split`: the first dimension of every tensor
    counts the examples of one packet; `whole`: a packet has one example, which holds the tensors as they are; `each`:
    a packet for each row."""
    flavor: Name = ""
    """What its servers are, where they do not speak the protocol alike: for v2-rest `triton`, `mlserver`, `kserve`,
    `binary` (another one, with binary tensors) or `plain`. Absent: each is asked before its first call."""
    limits: LimitsKey = Field(default_factory=Limits)
    """What it may answer."""
    forward_headers: Annotated[
        tuple[Annotated[HeaderName, AfterValidator(_forwardable)], ...], AfterValidator(distinct)
    ] = ()
    """The client's headers that it gets; it gets no other."""


class ProcessLimitsConfig(Keys):
    """What the whole process holds at most."""

    connections: Size = 10_000
    """Connections of clients at once, of all listeners together; fewer where the system does not give as many
    descriptors, of which a tenth and at least 64 are kept for backends and the ports for operators."""
    memory: Size | None = None
    """Bytes that the bodies of messages may hold together, of 16 KiB and more each. Absent: half of the memory of the
    machine, or of the process' cgroup."""


class Config(Keys):
    """The gateway's configuration."""

    listeners: Annotated[tuple[ListenerConfig, ...], Field(min_length=1)]
    """Where clients arrive. Several protocols of one transport may share an address."""
    limits: ProcessLimitsConfig = ProcessLimitsConfig()
    """What all clients together may take."""
    admin: AdminConfig | None = None
    """The status API; absent is off."""
    health: HealthConfig | None = None
    """The health port, for probes; absent is off."""
    drain: DrainConfig = DrainConfig()
    """How the gateway stops."""
    ready: Ready = "any"
    """Which backends have to be ready so that the gateway says in the clients' protocols that it is: at least one of
    those that routes name, all of them, or none. They are asked when a client asks, at most once a second."""
    reference: tuple[ReferenceConfig, ...] = ()
    """Bundled backends, started with the gateway."""
    backends: Mapping[Name, BackendConfig] = {}
    """Where requests go, by name."""
    routes: tuple[RouteConfig, ...] = ()
    """Which request goes where. They are tried in order; the first match wins."""
