"""The backends of a Config, with their endpoints, load readings, probes and discovery. `assembly` creates them."""

from collections.abc import Callable, Hashable
from functools import partial

from gateway.assembly.discovery import DiscoveredEndpoints, Discovery, EndpointCloser, fixed_addresses
from gateway.assembly.endpoints import ChangedConnectors, EndpointKey, Replies
from gateway.assembly.environment import Environment
from gateway.assembly.load_reading import load_reading, own_headers, reported_loads
from gateway.assembly.own_addresses import why_own
from gateway.assembly.placement import Placed, named_models, placed_slots
from gateway.assembly.servers import Wiring
from gateway.config.backends import BackendConfig
from gateway.config.keys import Config
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target, resolve_batch
from gateway.routing.backend import Backend
from gateway.routing.balancing import Weights, strategy
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint, PassthroughConnector
from gateway.routing.health import Ejection
from gateway.routing.load.reported import ReportedLoads
from gateway.routing.on_demand import CountedEndpoint, StartedSlots, started
from gateway.routing.probing import Prober, Probes
from gateway.routing.queue import QueueSettings
from gateway.routing.sending import Sender
from gateway.routing.slots import LocalSlots, Slots
from gateway.servers.discovery.source import Found


class EndpointPool:
    """Endpoints by key. `is_used` returns whether a backend uses an endpoint."""

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
        """For each backend, the weights of its endpoints, by endpoint key and by the address in the configuration."""

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
                return new(str(found), connector, self._clock, _ejection(config))

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
        """From now on, use the new Connectors for every call."""
        self._changed_connectors.take_over()

    async def close_unused_connectors(self) -> None:
        """Close the replaced Connectors, or the new Connectors if the Assembly never took over."""
        await self._changed_connectors.close_unused()

    async def close(self) -> None:
        """Release all endpoints. Return when the endpoints that no other Assembly uses are closed."""
        keys = tuple(self.endpoints)
        self.endpoints.clear()  # so a later removal does not release an endpoint twice
        await self._shared.release(keys)


def _ejection(config: BackendConfig) -> Ejection:
    """Return the rules for ejecting failing endpoints of the backend."""
    if config.health is None:
        return Ejection()
    keys = config.health.ejection
    return Ejection(keys.failures, keys.seconds, keys.max_ejected_share)


class Backends:
    """All backends of a Config. `all` maps names to backends.

    Also contains the Probers of backends with probes, and the load readings (`load_readings`) of backends that are
    balanced by load."""

    def __init__(self, config: Config, environment: Environment) -> None:
        self._config = config
        self._environment = environment
        self._pool = EndpointPool(config, environment, self._has)
        self._loads: dict[str, ReportedLoads] = {}
        self.all = {name: self._backend(name, each) for name, each in config.backends.items()}
        self.placed = Placed(self.all)
        """The backends whose servers have different models."""
        self.load_readings = [
            load_reading(self.all[name], config.backends[name], loads, environment.clock)
            for name, loads in self._loads.items()
        ]
        self.probers = [
            Prober(self.all[name], probes, environment.clock)
            for name, each in config.backends.items()
            if (probes := _probes(each, environment.protocols[each.protocol]))
        ]

    @property
    def pool(self) -> EndpointPool:
        """Return the endpoints of all backends."""
        return self._pool

    def _has(self, endpoint: Endpoint) -> bool:
        """Return True if a backend has this endpoint."""
        return any(endpoint in backend.endpoints for backend in self.all.values())

    def _spoken(self, config: BackendConfig) -> Protocol:
        """Return a backend's protocol, configured with the backend's settings."""
        return self._environment.protocols[config.protocol].with_settings(config.settings)

    def _backend(self, name: str, config: BackendConfig) -> Backend:
        protocol = self._spoken(config)
        addresses = fixed_addresses(config.addresses, config.discovery, self._environment.connections.parser(protocol))
        endpoints = [self._pool.endpoint(Found(address), name, protocol, config) for address in addresses]
        limit = protocol.traits.servers.max_in_flight if config.max_in_flight is None else config.max_in_flight
        batch, _ = resolve_batch(protocol, config.batch)
        target = Target(
            name, flavor=config.flavor, batch=batch, limits=config.limits, forward_headers=config.forward_headers,
            own_headers=own_headers(config, protocol),
        )  # fmt: skip
        queue = QueueSettings(config.queue.length, config.queue.timeout, config.queue.wait_for_endpoints)
        choice, clock = self._choice(name, config), self._environment.clock
        sender = Sender(target, protocol, endpoints, clock, has_tls=config.tls is not None)
        local = LocalSlots(name, protocol.traits.servers, endpoints, limit, choice, queue, clock)
        return Backend(sender, self._slots(config, local, sender))

    def _slots(self, config: BackendConfig, local: LocalSlots, sender: Sender) -> Slots:
        """Return the Slots that manage a backend's slots in this process."""
        if (shared := self._environment.host.part.slots) is not None:
            return shared(local, sender.protocol)
        if config.servers is not None:
            return StartedSlots(local)
        if config.placement is None:
            return local
        names, new_choice = named_models(self._config, local.name), partial(self._choice, local.name, config)
        return placed_slots(local, sender, config.placement, names, new_choice)

    def _choice(self, name: str, config: BackendConfig) -> EndpointChoice:
        """Return the strategy that chooses among the backend's endpoints, according to `balance` and the endpoint
        weights."""
        clock = self._environment.clock
        loads = self._loads.get(name) or reported_loads(config, clock)
        if loads is not None:
            self._loads[name] = loads
        weights = Weights(self._pool.weights[name], config.slow_start, clock)
        return EndpointChoice(strategy(config.balance, weights, loads), _ejection(config).max_ejected_share)

    def discovery(self) -> Discovery:
        """Return an object that, after its start, adds and removes endpoints of backends."""
        discovery = Discovery(self._environment.clock, self._environment.host.own_addresses)
        for name, each in self._config.backends.items():
            if each.discovery is not None:
                protocol = self._spoken(each)
                endpoint = partial(self._pool.endpoint, name=name, protocol=protocol, config=each)
                endpoints = DiscoveredEndpoints(self.all[name], endpoint, partial(self._pool.release, name))
                discovery.add(name, each, endpoints, self._environment.connections.parser(protocol))
        return discovery

    def served(self) -> dict[str, tuple[Backend, StartedSlots, Wiring, Target]]:
        """Return the backends whose servers the gateway starts, with the data for starting the servers."""
        found = {}
        for name, slots in started(self.all).items():
            config, backend = self._config.backends[name], self.all[name]
            target = Target(name, flavor=config.flavor, limits=config.limits)
            found[name] = backend, slots, self._wiring(name, config, backend.protocol), target
        return found

    def _wiring(self, name: str, config: BackendConfig, protocol: Protocol) -> Wiring:
        connections, host = self._environment.connections, self._environment.host

        def why_not(address: str) -> str:
            try:
                return why_own(connections.parse_address(address, protocol), host.own_addresses())
            except ValueError as error:
                return str(error)

        return Wiring(
            lambda address: self._pool.endpoint(Found(address), name, protocol, config),
            partial(self._pool.release, name),
            lambda address: connections.of(config)(address, protocol, config.limits),
            why_not,
        )


def _probes(config: BackendConfig, protocol: Protocol) -> Probes | None:
    """Return the backend's probes, or None if the backend is not probed."""
    keys = config.health
    if keys is None or keys.probe == "none":
        return None
    operation = Operation(keys.probe) if keys.probe else protocol.traits.servers.probe
    return Probes(operation, keys.interval, keys.timeout, keys.unhealthy, keys.healthy, keys.jitter)
