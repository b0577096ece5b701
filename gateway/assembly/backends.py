"""Creates the backends of a Config, with their endpoints, probes and discovery."""

from functools import partial

from gateway.assembly.discovery import DiscoveredEndpoints, Discovery, fixed_addresses
from gateway.assembly.environment import Environment
from gateway.assembly.loads import load_reading, own_headers, reported_loads
from gateway.assembly.own_addresses import why_own
from gateway.assembly.placement import Placed, named_models, placed_slots
from gateway.assembly.pool import EndpointPool, ejection
from gateway.assembly.servers import Wiring
from gateway.config.backends import BackendConfig
from gateway.config.keys import Config
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target, resolve_batch
from gateway.routing.backend import Backend
from gateway.routing.balancing import Weights, strategy
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint
from gateway.routing.load.reported import ReportedLoads
from gateway.routing.on_demand import StartedSlots, started
from gateway.routing.probing import Prober, Probes
from gateway.routing.queue import QueueSettings
from gateway.routing.sending import Sender
from gateway.routing.slots import LocalSlots, Slots
from gateway.servers.discovery.source import Found


class Backends:
    """All backends of a Config. `all` maps names to backends.

    Also holds the Probers of backends with probes, and the load readings of backends that are balanced by load
    (`load_readings`)."""

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
        """Return the protocol of a backend, configured with the backend's settings."""
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
        return EndpointChoice(strategy(config.balance, weights, loads), ejection(config).max_ejected_share)

    def discovery(self) -> Discovery:
        """Return an object that adds and removes endpoints of backends once it is started."""
        discovery = Discovery(self._environment.clock, self._environment.host.own_addresses)
        for name, each in self._config.backends.items():
            if each.discovery is not None:
                protocol = self._spoken(each)
                endpoint = partial(self._pool.endpoint, name=name, protocol=protocol, config=each)
                endpoints = DiscoveredEndpoints(self.all[name], endpoint, partial(self._pool.release, name))
                discovery.add(name, each, endpoints, self._environment.connections.parser(protocol))
        return discovery

    def served(self) -> dict[str, tuple[Backend, StartedSlots, Wiring, Target]]:
        """Return the backends whose servers the gateway starts, with the data that it needs to start them."""
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
