"""The endpoints of all backends of one Config, for `backends`.

The pool creates endpoints, shares them with other Assemblies, and releases them.
"""

from collections.abc import Callable, Hashable

from gateway.assembly.discovery import EndpointCloser
from gateway.assembly.endpoints import ChangedConnectors, EndpointKey, Replies
from gateway.assembly.environment import Environment
from gateway.config.backends import BackendConfig
from gateway.config.keys import Config
from gateway.core.protocol import Protocol
from gateway.routing.endpoint import Endpoint, PassthroughConnector
from gateway.routing.health import Ejection
from gateway.routing.on_demand import CountedEndpoint
from gateway.servers.discovery.source import Found


class EndpointPool:
    """Endpoints, by key. `is_used` returns whether a backend uses an endpoint."""

    def __init__(self, config: Config, environment: Environment, is_used: Callable[[Endpoint], bool]) -> None:
        self._connections, self._clock = environment.connections, environment.clock
        self._part, self._shared = environment.host.part, environment.host.shared
        self._passing = {each.main_backend for each in config.routes if each.passthrough}
        """The names of backends with `passthrough` routes."""
        self._changed_connectors = ChangedConnectors()
        self.endpoints: dict[EndpointKey, Endpoint] = {}
        self._closer = EndpointCloser(self.endpoints, is_used, self._shared.release)
        self.weights: dict[str, dict[Hashable, float]] = {
            name: {at.address: at.weight for at in each.endpoints} for name, each in config.backends.items()
        }
        """For each backend, the weights of its endpoints, by endpoint key and by address as written in the
        configuration."""

    def endpoint(self, found: Found, name: str, protocol: Protocol, config: BackendConfig) -> Endpoint:
        """Return the Endpoint at this address. All backends with this protocol and address share it."""
        place = self._connections.parse_address(found.address, protocol)
        own = (found.ip, config.tls, config.sent_headers)
        key = protocol.name, (place, *own) if any(own) else place
        connect = self._connections.of(config)
        new = self._part.endpoint if config.servers is None else CountedEndpoint
        if key not in self.endpoints:
            limits = config.limits
            replies = Replies(limits, protocol.http.stream_framing)

            def made() -> Endpoint:
                connector = connect(found.address, protocol, limits, found.ip)
                return new(str(found), connector, self._clock, ejection(config))

            shared = self._shared.use(key, replies, made)
            self.endpoints[key] = shared.endpoint
            if shared.replies != replies:
                form = protocol.http.passthrough if shared.endpoint.passthrough is not None else None
                passthrough = None if form is None else connect(found.address, form, limits, found.ip)
                connector = connect(found.address, protocol, limits, found.ip)
                self._changed_connectors.add(shared, replies, connector, passthrough)
        endpoint = self.endpoints[key]
        if name in self._passing and endpoint.passthrough is None:
            form = protocol.http.passthrough
            assert form is not None
            passing = connect(found.address, form, config.limits, found.ip)
            endpoint.passthrough = PassthroughConnector(endpoint, passing)
        weight = self.weights[name].get(found.address, 1.0)
        if weight != 1:
            self.weights[name][endpoint] = weight
        return endpoint

    def release(self, name: str, endpoint: Endpoint) -> None:
        """Close an endpoint that the backend `name` has lost, unless another backend uses it."""
        self.weights[name].pop(endpoint, None)
        self._closer.release(endpoint)

    def take_over(self) -> None:
        """Use the new Connectors for every call from now on."""
        self._changed_connectors.take_over()

    async def close_unused_connectors(self) -> None:
        """Close the replaced Connectors, or the new ones if the Assembly never took over."""
        await self._changed_connectors.close_unused()

    async def close(self) -> None:
        """Release all endpoints. Return when the endpoints that no other Assembly uses are closed."""
        keys = tuple(self.endpoints)
        self.endpoints.clear()  # so a later removal does not release an endpoint twice
        await self._shared.release(keys)


def ejection(config: BackendConfig) -> Ejection:
    """Return the rules for ejecting failing endpoints of the backend."""
    if config.health is None:
        return Ejection()
    keys = config.health.ejection
    return Ejection(keys.failures, keys.seconds, keys.max_ejected_share)
