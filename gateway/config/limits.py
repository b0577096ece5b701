"""The keys of `limits`: of a listener, of a backend, and of the whole process.

An attribute is a key, and its docstring is the key's description in `docs/configuration`.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, Strict

from gateway.config.declared import Declared
from gateway.config.fields import Keys, Period, Seconds, Size
from gateway.core.protocol import Limits, PositiveSeconds

_LIMIT_FORMS: Mapping[Any, Any] = {int: Size, float: Seconds, PositiveSeconds: Period}


_OF_MESSAGES = ("message", "headers", "json_values", "config", "inflation")


LimitsKey = Annotated[Limits, Declared(Limits, _LIMIT_FORMS, {}, only=_OF_MESSAGES)]
"""Limits for the responses of a backend."""


ListenerLimitsKey = Annotated[Limits, Declared(Limits, _LIMIT_FORMS, {})]


class ShedConfig(Keys):
    """Load shedding: thresholds above which the gateway rejects new work. It first rejects new connections, then
    requests of 64 KiB and more, then all requests with a body."""

    lag: Annotated[Seconds, Field(gt=0)] = 0.25
    """Maximum event-loop lag, in seconds. The gateway rejects new work if the lag exceeds this value for 0.2 s."""
    memory: Annotated[float, Strict(), Field(gt=0, le=1)] = 0.9
    """Maximum fraction of `limits.memory` that messages use, and of the cgroup's memory that the process uses. Above
    this fraction, the gateway rejects new work, but still serves small requests on open connections."""


class ProcessLimitsConfig(Keys):
    """Limits of the entire process."""

    connections: Size = 10_000
    """Maximum number of client connections on all listeners together. The limit is lower if the system allows fewer
    file descriptors. The gateway reserves a tenth of the file descriptors, but at least 64, for backends, the health
    port and the admin port."""
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
    while the gateway writes it to the client; before that, it counts only toward `memory`."""
    calls_per_request: Size = 1000
    """Maximum number of calls from [graph](graphs.md) steps per client request, including nested graphs and `fallback`
    models. A request that needs more calls fails."""
    shed: ShedConfig | None = None
    """Reject new work while the gateway is overloaded. Off if absent. The gateway always serves the health port and the
    admin port."""
