"""The keys at the top of the configuration, and the keys below them that have no module of their own.

An attribute is a key, and its docstring is the key's description in `docs/configuration`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr

from gateway.config.access import AdminAuthConfig, AuthConfig, HealthAuthConfig, PermissionSets, PrincipalEntries
from gateway.config.backends import BackendConfig
from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE, Flag, Keys, Name, Seconds, Size, SomeNames
from gateway.config.forms import FormEntries
from gateway.config.graphs import Graphs
from gateway.config.limits import ProcessLimitsConfig
from gateway.config.listeners import Bind, ListenerConfig, tls_on_socket
from gateway.config.observing import LogConfig, MetricsConfig, RequestIdsConfig, TracingConfig
from gateway.config.problems import Finding, Problem, unknown
from gateway.config.routes import Check, RouteConfig
from gateway.config.tls import ListenerTlsConfig


class AdminConfig(Keys):
    """The admin port: the status API and the console, for operators."""

    bind: Bind
    """Address as `HOST:PORT`. It must be a loopback address, unless `auth` is set."""
    auth: AdminAuthConfig | None = None
    """Client authentication. Only principals with the permission `admin` have access."""
    tls: ListenerTlsConfig | None = None
    """TLS settings, with the same keys as `listeners[].tls`."""

    def findings(self, location: Location) -> Iterator[Finding]:
        """Find an address that is open to everyone."""
        if self.auth is None and not self.bind.loopback:
            text = "the status API must be on loopback unless it has `auth`; expected 127.0.0.1:PORT or `auth: {}`"
            yield Finding((*location, "bind"), f"{text}, got {VALUE}")


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

    def findings(self, location: Location) -> Iterator[Finding]:
        """Find an address that is open to everyone, without `open: true`."""
        if self.open or self.bind.loopback or (self.tls is not None and self.tls.client == "required"):
            return
        text = "the scaler shows backends and their load; expected an address on loopback, `tls: {client: required}`"
        yield Finding((*location, "bind"), f"{text} or `open: true`, got {VALUE}")


class HealthConfig(Keys):
    """The health port: `/healthz`, `/readyz` and `/metrics`."""

    bind: Bind
    """Address as `HOST:PORT`; any address is allowed."""
    ready: Ready = "none"
    """Backends that must be ready before `/readyz` reports readiness: at least one (`any`) or `all` of the backends in
    routes, or `none`. Kubernetes removes replicas that are not ready from the Service. With `any` or `all`, the failure
    of a backend that all replicas share can therefore remove all replicas at the same time."""
    auth: HealthAuthConfig | None = None
    """Authentication for `/metrics`: only principals with the permission `metrics` can read the page. Probes
    (`/healthz`, `/readyz`) never need credentials. Default: no authentication."""
    tls: ListenerTlsConfig | None = None
    """TLS settings, with the same keys as `listeners[].tls`. Probes then need `scheme: HTTPS`."""


class DrainConfig(Keys):
    """Settings for graceful shutdown on SIGTERM or SIGINT. A second signal terminates the gateway immediately."""

    delay: Seconds = 0
    """Time before the listeners close, in seconds. During this time, `/readyz` fails, so load balancers stop sending
    requests, but the gateway still serves requests. HTTP responses have `Connection: close`."""
    timeout: Seconds = 30
    """Maximum time for requests in flight after the listeners close, in seconds. The gateway then cancels these
    requests."""


class ReloadConfig(Keys):
    """Automatic reload of the configuration. SIGHUP and `POST /reload` always reload the configuration."""

    watch: Flag = True
    """Reload when the configuration file, or a file in a `${file:PATH}` reference, changes."""
    interval: Annotated[Seconds, Field(ge=0.1)] = 1
    """Interval between checks of the files, in seconds. The gateway loads a changed file only when the next check finds
    no further change, to avoid loading an incomplete file."""


_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


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

    def findings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find unknown sample models, and TLS on a unix socket."""
        for at, name in enumerate(self.models):
            if ":" not in name:
                yield from unknown((*location, "models", at), "bundled model", name, catalog.reference_models)
            elif not _ATTRIBUTE.fullmatch(name):
                yield Finding((*location, "models", at), f"expected module:attribute, got {VALUE}")
        yield from tls_on_socket(location, self.bind, self.tls)


class Config(Keys):
    """The gateway's configuration."""

    _references: dict[str, str] = PrivateAttr(default_factory=dict)
    _warned: dict[Location, Problem] = PrivateAttr(default_factory=dict)

    listeners: Annotated[tuple[ListenerConfig, ...], Field(min_length=1)]
    """Addresses on which the gateway accepts client connections. Several protocols can share one address."""
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
    responses contain the id."""
    drain: DrainConfig = DrainConfig()
    """Settings for graceful shutdown."""
    workers: Size | Literal["auto"] = 1
    """Number of processes that serve clients. `auto`: one process for each core that the gateway can use. With several
    processes, an additional process supervises them, and serves the health port and the admin port."""
    reload: ReloadConfig = ReloadConfig()
    """Automatic reload of the configuration."""
    ready: Ready = "any"
    """Backends that must be ready before the gateway reports readiness in the clients' protocols: at least one (`any`)
    or `all` of the backends in routes, or `none`. The gateway queries the backends when a client requests readiness, at
    most once per second. For backends with probes (`backends.*.health`), it uses the endpoints' state instead."""
    check: Check = "none"
    """`full`: decode and check every request before it reaches a server. `none`: if client and server use the same
    protocol, forward requests without decoding them. Routes can override this key."""
    reference: tuple[ReferenceConfig, ...] = ()
    """Sample model servers that start with the gateway."""
    forms: FormEntries = Field(default_factory=dict)
    """Named descriptions of JSON APIs over HTTP, for servers and clients that use none of the other protocols. Each
    form defines the protocol `json:NAME` for backends and listeners. A form with the name of a built-in form replaces
    the built-in form."""
    backends: Mapping[Name, BackendConfig] = {}
    """Groups of model servers, by name."""
    models: Graphs = Field(default_factory=dict)
    """Model graphs by name: models that the gateway builds from calls to other models. The gateway computes derivatives
    by the chain rule. Graph names take precedence over all routes. See `docs/graphs.md`."""
    routes: tuple[RouteConfig, ...] = ()
    """Rules that assign requests to backends. The first matching route applies."""

    @property
    def references(self) -> dict[str, str]:
        """Values from files and environment variables, and the reference in the configuration file that each value
        replaced."""
        return self._references

    @property
    def warned(self) -> dict[Location, Problem]:
        """Warnings by location, with their positions in the file."""
        return self._warned
