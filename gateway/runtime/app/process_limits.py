"""Process-wide limits (the top-level key `limits`): connections, memory, load shedding."""

from gateway.config.limits import ProcessLimitsConfig, ShedConfig
from gateway.transports import listener_connections, memory
from gateway.transports.shedding import Shedding


class ProcessLimits:
    """The limits of the process. This object outlives the gateway's configurations."""

    def __init__(self) -> None:
        self.shedding: Shedding | None = None
        """Rejects requests while the gateway is overloaded; None if load shedding is not configured."""
        self._shed: ShedConfig | None = None
        """The `shedding` settings in use."""

    def apply(self, limits: ProcessLimitsConfig) -> None:
        """Apply these limits to the process from now on."""
        connections = listener_connections.PROCESS_CONNECTIONS
        connections.fit(limits.connections)
        connections.handshakes.limit = limits.handshakes
        connections.clients.limit = limits.connections_per_client
        memory.PROCESS_MEMORY.limit = limits.memory or memory.default_limit()
        memory.PROCESS_MEMORY.per_client = limits.memory_per_client
        if limits.shed != self._shed:  # if the settings are unchanged, it continues, even during an overload
            self._shed = limits.shed
            self.stop()
            self.shedding = None if limits.shed is None else Shedding(limits.shed.lag, limits.shed.memory)
            if self.shedding is not None:
                self.shedding.start()
        connections.shedding = self.shedding

    def stop(self) -> None:
        """Stop checking for overload."""
        if self.shedding is not None:
            self.shedding.stop()
