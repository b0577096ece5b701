"""The endpoints that Assemblies share across reloads. EndpointPool acquires and releases them.

On a reload, the new Assembly takes over unchanged endpoints, including their health, calls in flight and connections.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from gateway.core.frozen import frozen
from gateway.core.protocol import Limits, StreamFraming
from gateway.core.surviving import all_surviving
from gateway.core.transport import Connector
from gateway.routing.endpoint import Endpoint, PassthroughConnector

EndpointKey: TypeAlias = tuple[str, Hashable]
"""The key of an endpoint: the protocol's name and the normalized address. All spellings of an address have the same
normalized form."""


@frozen
class Replies:
    """The settings with which Connectors read responses: `limits` and, for streams, `framing`. A form can change both
    settings."""

    limits: Limits
    framing: StreamFraming | None = None


class SharedEndpoint:
    """A shared endpoint, the number of Assemblies that use it, and the settings with which its Connectors read
    responses."""

    __slots__ = ("endpoint", "replies", "users")

    def __init__(self, endpoint: Endpoint, replies: Replies) -> None:
        self.endpoint = endpoint
        self.replies = replies
        self.users = 0


class SharedEndpoints:
    """All endpoints in use. When the last Assembly releases an endpoint, the endpoint closes after its last call."""

    def __init__(self) -> None:
        self._shared: dict[EndpointKey, SharedEndpoint] = {}

    def use(self, key: EndpointKey, replies: Replies, make: Callable[[], Endpoint]) -> SharedEndpoint:
        """Return the endpoint with this key for an additional Assembly, and create it if necessary."""
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = SharedEndpoint(make(), replies)
        shared.users += 1
        return shared

    async def release(self, keys: Iterable[EndpointKey]) -> None:
        """Subtract one Assembly from the use count of each endpoint. Return when the unused endpoints are closed."""
        keys = tuple(keys)
        for key in keys:
            self._shared[key].users -= 1
        await all_surviving("closing an endpoint", (self._close_unused(key) for key in keys))

    async def _close_unused(self, key: EndpointKey) -> None:
        shared = self._shared.get(key)
        if shared is None or shared.users:  # another Assembly has already closed it, or uses it
            return
        await shared.endpoint.idle()
        # A later Assembly might already use it again, or have closed it.
        if not shared.users and self._shared.get(key) is shared:
            del self._shared[key]
            await shared.endpoint.close()

    def addresses(self) -> list[str]:
        """Return the addresses of all endpoints, including drained endpoints."""
        return [shared.endpoint.address for shared in self._shared.values()]

    async def close(self) -> None:
        """Close all endpoints immediately."""
        while self._shared:
            _, shared = self._shared.popitem()
            await shared.endpoint.close()


class ChangedConnectors:
    """New Connectors for endpoints that stay across a reload but whose responses require a different decoder. They
    belong to an Assembly, and take effect when this Assembly takes over."""

    def __init__(self) -> None:
        self._made: list[tuple[SharedEndpoint, Replies, Connector, Connector | None]] = []
        self._unused: list[Connector] = []

    def add(
        self, shared: SharedEndpoint, replies: Replies, connector: Connector, passthrough: Connector | None
    ) -> None:
        """Store these Connectors until `take_over`."""
        self._made.append((shared, replies, connector, passthrough))

    def take_over(self) -> None:
        """From now on, use the new Connectors for every call."""
        for shared, replies, connector, passthrough in self._made:
            endpoint = shared.endpoint
            self._unused.append(endpoint.connector)
            endpoint.use(connector)
            shared.replies = replies
            if passthrough is not None:
                if endpoint.passthrough is not None:
                    self._unused.append(endpoint.passthrough)
                endpoint.passthrough = PassthroughConnector(endpoint, passthrough)
        self._made.clear()

    async def close_unused(self) -> None:
        """Close the replaced Connectors, or the new Connectors if the Assembly never took over."""
        unused, self._unused = self._unused, []
        for _, _, connector, passthrough in self._made:
            unused += [connector, *([passthrough] if passthrough is not None else [])]
        self._made.clear()
        for each in unused:
            await each.close()
