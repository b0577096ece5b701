"""The environment of an Assembly: everything that the Assembly requires and that is not in the Config."""

import typing
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from gateway.assembly.endpoints import SharedEndpoints
from gateway.assembly.part import WHOLE, GatewayPart
from gateway.assembly.registry import PolicyModule
from gateway.assembly.servers import Fleets
from gateway.config.backends import BackendConfig
from gateway.config.tls import BackendTlsConfig
from gateway.core.models import ServerInfo
from gateway.core.protocol import Limits, Protocol
from gateway.core.transport import Connector, FixedFields

ParseAddress = Callable[[str, Protocol], Hashable]
"""Returns the normalized key of an endpoint. The key is the same for all spellings of the endpoint's address."""
IsReady = Callable[[], bool]


class Connect(typing.Protocol):
    """Creates a Connector to an address.

    If `ip` is not empty, the Connector connects to this IP address of the host. The Connector sends `headers` with
    every message."""

    def __call__(
        self, address: str, protocol: Protocol, limits: Limits, ip: str = "", *, headers: FixedFields = ()
    ) -> Connector: ...


ConnectOverTls = Callable[[BackendTlsConfig], Connect]
"""Returns the Connect for a backend that has `tls`."""


@dataclass(frozen=True)
class Connections:
    """Creates Connectors for addresses. If `over_tls` is None, connections do not use TLS, even to
    backends with `tls`."""

    parse_address: ParseAddress
    connect: Connect
    over_tls: ConnectOverTls | None = None

    def of(self, config: BackendConfig) -> Connect:
        """Return the Connect for the servers of this backend."""
        connect = self.connect
        if config.tls is not None and self.over_tls is not None:
            connect = self.over_tls(config.tls)
        return partial(connect, headers=config.sent_headers) if config.headers else connect

    def parser(self, protocol: Protocol) -> Callable[[str], Hashable]:
        """Return the `parse_address` function of one protocol."""
        return lambda address: self.parse_address(address, protocol)


@dataclass(frozen=True)
class Host:
    """The process in which one Assembly replaces another on each reload.

    `fleets` contains the model servers that the process starts, or is None. `own_addresses` contains the addresses that
    the gateway has bound."""

    shared: SharedEndpoints = field(default_factory=SharedEndpoints)
    part: GatewayPart = WHOLE
    fleets: Fleets | None = None
    own_addresses: Callable[[], Iterable[str]] = tuple


@dataclass(frozen=True)
class Environment:
    """The installed protocols and policies, the clock (in seconds), the gateway's name and version, and its readiness.
    Configurations can add forms as protocols."""

    protocols: Mapping[str, Protocol]
    policies: Mapping[str, PolicyModule]
    connections: Connections
    clock: Callable[[], float]
    info: ServerInfo
    is_ready: IsReady
    host: Host = field(default_factory=Host)
    rows_at_once: int | None = None
    """The maximum number of rows of one batch in flight for a backend; None for the usual number."""
