"""The base class of all transports' listeners: the end of their connections, and what they count."""

from gateway.transports.listener_connections import ListenerConnections


class BaseListener:
    """A Listener without its address and its wire. None of this is used by requests."""

    def __init__(self, connections: ListenerConnections) -> None:
        self._connections = connections

    @property
    def refused_connections(self) -> int:
        """As in every Listener."""
        return self._connections.refused

    @property
    def unrecognised_connections(self) -> int:
        """As in every Listener."""
        return self._connections.unrecognised

    @property
    def open_connections(self) -> int:
        """As in every Listener."""
        return self._connections.accepted

    @property
    def unanswered_requests(self) -> int:
        """As in every Listener."""
        return self._connections.unanswered

    async def stop_accepting(self) -> None:
        """As in every Listener."""
        raise NotImplementedError

    async def drain(self, seconds: float) -> int:
        """Accept no more connections, let those that are open end after their last reply, and terminate them after
        `seconds`. Returns the number of requests that were not answered."""
        await self.stop_accepting()
        return await self._connections.end(seconds)
