"""The endpoints that several Assemblies share: at a reload the new one takes over those that stay, with their health,
their calls in flight and their connections."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from gateway.core.frozen import frozen
from gateway.core.protocol import Limits, StreamFraming
from gateway.core.surviving import all_surviving
from gateway.core.transport import Connector
from gateway.routing.endpoint import Endpoint, PassthroughConnector

EndpointKey: TypeAlias = tuple[str, Hashable]
"""The name of a protocol, and a place that is equal for all ways to write an address."""


@frozen
class Replies:
    """How Connectors read replies: within `limits`, streams as `framing` says, which a form may change."""

    limits: Limits
    framing: StreamFraming | None = None


class SharedEndpoint:
    """An endpoint, the number of Assemblies that use it, and how its Connectors read replies."""

    __slots__ = ("endpoint", "replies", "users")

    def __init__(self, endpoint: Endpoint, replies: Replies) -> None:
        self.endpoint = endpoint
        self.replies = replies
        self.users = 0


class SharedEndpoints:
    """All endpoints in use. One that no Assembly uses any more is closed after its last call."""

    def __init__(self) -> None:
        self._shared: dict[EndpointKey, SharedEndpoint] = {}

    def use(self, key: EndpointKey, replies: Replies, make: Callable[[], Endpoint]) -> SharedEndpoint:
        """The endpoint at this place for one more Assembly; made if there is none."""
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = SharedEndpoint(make(), replies)
        shared.users += 1
        return shared

    async def release(self, keys: Iterable[EndpointKey]) -> None:
        """Count one Assembly less for each of these. Returns when those that are not used any more are closed."""
        keys = tuple(keys)
        for key in keys:
            self._shared[key].users -= 1
        await all_surviving("closing an endpoint", (self._close_unused(key) for key in keys))

    async def _close_unused(self, key: EndpointKey) -> None:
        shared = self._shared.get(key)
        if shared is None or shared.users:  # another Assembly has closed it already, or uses it
            return
        await shared.endpoint.idle()
        # A later Assembly may have taken it up again meanwhile, or have closed it.
        if not shared.users and self._shared.get(key) is shared:
            del self._shared[key]
            await shared.endpoint.close()

    def addresses(self) -> list[str]:
        """The addresses of all, including those that are drained."""
        return [shared.endpoint.address for shared in self._shared.values()]

    async def close(self) -> None:
        """Close all at once."""
        while self._shared:
            _, shared = self._shared.popitem()
            await shared.endpoint.close()


class ChangedConnectors:
    """The Connectors of endpoints that stay and whose replies are read in another way: made with an Assembly, in use
    from its takeover on."""

    def __init__(self) -> None:
        self._made: list[tuple[SharedEndpoint, Replies, Connector, Connector | None]] = []
        self._unused: list[Connector] = []

    def add(
        self, shared: SharedEndpoint, replies: Replies, connector: Connector, passthrough: Connector | None
    ) -> None:
        """Keep these for `take_over`."""
        self._made.append((shared, replies, connector, passthrough))

    def take_over(self) -> None:
        """Use them for every call that begins from now on."""
        for shared, replies, connector, passthrough in self._made:
            endpoint = shared.endpoint
            self._unused.append(endpoint.connector)
            endpoint.connector, shared.replies = connector, replies
            if passthrough is not None:
                if endpoint.passthrough is not None:
                    self._unused.append(endpoint.passthrough)
                endpoint.passthrough = PassthroughConnector(endpoint, passthrough)
        self._made.clear()

    async def close_unused(self) -> None:
        """Close those that were replaced, and those that were made for an Assembly that never took over."""
        unused, self._unused = self._unused, []
        for _, _, connector, passthrough in self._made:
            unused += [connector, *([passthrough] if passthrough is not None else [])]
        self._made.clear()
        for each in unused:
            await each.close()
