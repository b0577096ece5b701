"""The gateway's parts, made of a Config: endpoints, backends, bridges and routes. Nothing here opens a socket."""

import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from gateway.admin.statistics import ListenerStatistics
from gateway.assembly.discovery import DiscoveredEndpoints, Discovery, EndpointCloser, fixed_addresses
from gateway.assembly.routes import (
    conditions,
    joined_versions,
    policy_states,
    route,
    route_settings,
    stream_with_policies,
    with_policies,
)
from gateway.assembly.server_operations import server_operations
from gateway.bridge.backend import ROWS_AT_ONCE, BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.signature_cache import SignatureCache
from gateway.config.keys import BackendConfig, Config
from gateway.config.routes import RouteConfig
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, Protocol, Target, resolve_batch, traits_at_endpoints
from gateway.core.transport import Connector, Destination, Handler, StreamHandler
from gateway.core.types import ServerInfo
from gateway.discovery.source import Found
from gateway.policies.places import PolicyState
from gateway.registry import PolicyModule
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint, PassthroughConnector
from gateway.routing.extensions import AllStatistics, Extended, ServerExtensions
from gateway.routing.health import Ejection
from gateway.routing.listing import BackendModels, Listed, Listing, Remembered
from gateway.routing.probing import Prober, Probes
from gateway.routing.readiness import BackendReadiness, Readiness
from gateway.routing.router import Route, Router

ParseAddress = Callable[[str, Protocol], Hashable]
"""The place of an endpoint, equal for all ways to write it."""
IsReady = Callable[[], bool]


class Connect(typing.Protocol):
    """Makes a Connector to an address, and if `ip` is not empty to this one of its host's IP addresses."""

    def __call__(self, address: str, protocol: Protocol, limits: Limits, ip: str = "") -> Connector: ...


class Assembly:
    """The gateway of one Config: its backends and its Router."""

    def __init__(
        self,
        config: Config,
        protocols: Mapping[str, Protocol],
        policies: Mapping[str, PolicyModule],
        parse_address: ParseAddress,
        connect: Connect,
        clock: Callable[[], float],
        info: ServerInfo,
        is_ready: IsReady,
    ) -> None:
        self._protocols = protocols
        self._policies = policies
        self._parse_address = parse_address
        self._connect = connect
        self._clock = clock
        self.endpoints: dict[tuple[str, Hashable], Endpoint] = {}
        """Those of all backends, by protocol and place, including those that are drained."""
        self._closer = EndpointCloser(self.endpoints)
        self._passing = {each.backend for each in config.routes if each.passthrough}
        """The backends with `passthrough` routes."""
        self.backends = {name: self._backend(name, each) for name, each in config.backends.items()}
        self.probers = [
            Prober(self.backends[name], probes, clock)
            for name, each in config.backends.items()
            if (probes := _probes(each, protocols[each.protocol]))
        ]
        self._backend_sides = {name: self._backend_side(name, each) for name, each in config.backends.items()}
        self.policy_states = list(self._policy_states(config))
        """The policies that keep a state: place, name and state."""
        self.statistics = {each.name: ListenerStatistics(clock) for each in config.listeners if each.metrics_page}
        """The statistics of listeners with a metrics page, by name."""
        switchable = frozenset(each.name for each in config.listeners if each.allow_offline)
        controlling = frozenset(each.name for each in config.listeners if each.allow_control)
        routed = dict.fromkeys(each.backend for each in config.routes)
        self.readiness = BackendReadiness({name: self.backends[name].is_ready for name in routed}, clock)
        """Whether the backends that routes name are ready."""
        readiness = Readiness(is_ready, switchable, partial(self.readiness.why_not, config.ready))
        asks_backends = config.ready != "none" and bool(routed)
        own = server_operations(info, readiness, self.statistics, asks_backends=asks_backends)
        names = {name for listener in config.listeners for name in listener.protocols}
        clients = [protocols[name] for name in sorted(names)]
        routes = [each for each in config.routes if not each.passthrough]
        self.router = self._router(routes, clients, own, info, controlling)
        self.passthrough = Router(
            [self._passthrough(each, config) for each in config.routes if each.passthrough],
            {},
            joined_versions(clients),
        )
        """The Router of requests to routes with `passthrough`."""
        self.discovery = self._discovery(config)
        """What adds and removes endpoints of backends; nothing runs before its `start`."""

    def found_addresses(self) -> list[str]:
        """The addresses of the endpoints of backends with `discovery`, including those that are drained."""
        return [endpoint.address for endpoint in self.endpoints.values()] if self.discovery.is_used else []

    def _discovery(self, config: Config) -> Discovery:
        discovery = Discovery(self._clock)
        for name, each in config.backends.items():
            if each.discovery is not None:
                protocol = self._protocols[each.protocol]
                endpoint = partial(self._endpoint, name=name, protocol=protocol, config=each)
                endpoints = DiscoveredEndpoints(self.backends[name], endpoint, self._closer.release)
                discovery.add(name, each, endpoints, self._parser(protocol))
        return discovery

    def _parser(self, protocol: Protocol) -> Callable[[str], Hashable]:
        return lambda address: self._parse_address(address, protocol)

    def _policy_states(self, config: Config) -> Iterator[tuple[str, str, PolicyState]]:
        places = [(f"backends.{name}", each.policies) for name, each in config.backends.items()]
        places += [(f"routes[{at}]", each.policies) for at, each in enumerate(config.routes)]
        for place, policies in places:
            for name, state in policy_states(place, policies, self._policies):
                yield place, name, state

    def _backend(self, name: str, config: BackendConfig) -> Backend:
        protocol = self._protocols[config.protocol]
        addresses = fixed_addresses(config.endpoints, config.discovery, self._parser(protocol))
        endpoints = [self._endpoint(Found(address), name, protocol, config) for address in addresses]
        limit = protocol.traits.servers.max_in_flight if config.max_in_flight is None else config.max_in_flight
        batch, _ = resolve_batch(protocol, config.batch)
        target = Target(
            name, flavor=config.flavor, batch=batch, limits=config.limits, forward_headers=config.forward_headers
        )
        return Backend(target, protocol, endpoints, limit, _ejection(config))

    def _endpoint(self, found: Found, name: str, protocol: Protocol, config: BackendConfig) -> Endpoint:
        """The Endpoint at this place, shared by all backends of the protocol that name it."""
        place = self._parse_address(found.address, protocol)
        key = protocol.name, (place, found.ip) if found.ip else place
        if key not in self.endpoints:
            connector = self._connect(found.address, protocol, config.limits, found.ip)
            self.endpoints[key] = Endpoint(str(found), connector, self._clock, _ejection(config))
        endpoint = self.endpoints[key]
        if name in self._passing and endpoint.passthrough is None:
            form = protocol.http.passthrough
            assert form is not None
            passing = self._connect(found.address, form, config.limits, found.ip)
            endpoint.passthrough = PassthroughConnector(endpoint, passing)
        return endpoint

    def _backend_side(self, name: str, config: BackendConfig) -> BackendSide:
        backend = self.backends[name]
        protocol = backend.protocol
        _, traits = resolve_batch(protocol, config.batch)
        traits = traits_at_endpoints(traits, config.endpoints)
        if config.trust_metadata:
            traits = replace(traits, models=replace(traits.models, trusted_metadata=True))
        handler = with_policies(backend, config.policies, self._policies)
        responses = (
            stream_with_policies(backend.stream, config.policies, self._policies) if traits.wire.streams else None
        )
        signatures = SignatureCache(handler, traits, self._clock)
        backend.on_recovery(signatures.drop_all)
        window = (lambda: backend.capacity + 1) if backend.max_in_flight else ROWS_AT_ONCE
        return BackendSide(name, protocol.name, traits, handler, signatures, window, responses, config.limits)

    def _router(
        self,
        configs: Sequence[RouteConfig],
        clients: Sequence[Protocol],
        own: Mapping[Operation, Destination],
        info: ServerInfo,
        controlling: frozenset[str],
    ) -> Router:
        routes = [self._route(config, clients) for config in configs]
        models = {name: BackendModels(each.handler, self._clock) for name, each in self._backend_sides.items()}
        for name, each in models.items():
            self.backends[name].on_recovery(each.forget)
        listed = [self._listed(config, clients, models) for config in configs]
        extended = self._extended(configs, clients)
        own_extensions = {client.name: client.traits.servers.own_extensions for client in clients}
        server = {
            **own,
            Operation.MODELS: Destination(Listing(listed, derivative_protocols(clients))),
            Operation.ALL_STATISTICS: Destination(AllStatistics(extended)),
        }
        if any(each.info for each in extended):
            server[Operation.SERVER_METADATA] = Destination(
                ServerExtensions(info, extended, own_extensions, controlling)
            )
        return Router(routes, server, joined_versions(clients), controlling)

    def _extended(self, configs: Iterable[RouteConfig], clients: Iterable[Protocol]) -> list[Extended]:
        """The routes, each with the extensions that the servers behind it may have."""
        infos: dict[str, Remembered[ServerInfo | None]] = {}
        for name, each in self._backend_sides.items():
            if each.traits.servers.extensions:
                infos[name] = Remembered(each.handler, Operation.SERVER_METADATA, None, self._clock)
                self.backends[name].on_recovery(infos[name].forget)
        return [
            Extended(
                conditions(config.match),
                frozenset(client.name for client in _matching_clients(config, clients)),
                config.backend,
                self._backend_sides[config.backend].traits,
                config.rewrite.model,
                config.rewrite.version,
                infos.get(config.backend),
                self._backend_sides[config.backend].handler if config.backend in infos else None,
            )
            for config in configs
        ]

    def _passthrough(self, config: RouteConfig, whole: Config) -> Route:
        """A Route whose messages pass unchanged."""
        backend, policies = self.backends[config.backend], whole.backends[config.backend].policies
        stream = stream_with_policies(partial(backend.stream, passthrough=True), policies, self._policies)
        stream = stream_with_policies(stream, config.policies, self._policies)
        joins = backend.protocol.traits.models.joined_versions
        return Route(
            conditions(config.match), {backend.protocol.name: Destination(stream=stream)}, joins_versions=joins
        )

    def _route(self, config: RouteConfig, clients: Iterable[Protocol]) -> Route:
        backend, settings = self._backend_sides[config.backend], route_settings(config)
        bridges = {client.name: Bridge(settings, client, backend) for client in _matching_clients(config, clients)}

        def destination(handler: Handler, stream: StreamHandler) -> Destination:
            return Destination(
                with_policies(handler, config.policies, self._policies),
                settings,
                stream=stream_with_policies(stream, config.policies, self._policies),
            )

        return route(
            conditions(config.match), bridges, destination, joins_versions=backend.traits.models.joined_versions
        )

    def _listed(self, config: RouteConfig, clients: Iterable[Protocol], models: Mapping[str, BackendModels]) -> Listed:
        backend = self._backend_sides[config.backend]

        async def claims(model: str) -> frozenset[Operation]:
            return (await backend.signatures.get((model, "", ""))).operations

        return Listed(
            conditions(config.match),
            frozenset(client.name for client in _matching_clients(config, clients)),
            models[config.backend],
            config.rewrite.model,
            claims if backend.traits.wire.derivatives else None,
        )


def _ejection(config: BackendConfig) -> Ejection:
    if config.health is None:
        return Ejection()
    keys = config.health.ejection
    return Ejection(keys.failures, keys.seconds, keys.most)


def _probes(config: BackendConfig, protocol: Protocol) -> Probes | None:
    """How the backend is probed; None if it is not."""
    keys = config.health
    if keys is None or keys.probe == "none":
        return None
    operation = Operation(keys.probe) if keys.probe else protocol.traits.servers.probe
    return Probes(operation, keys.interval, keys.timeout, keys.unhealthy, keys.healthy, keys.jitter)


def derivative_protocols(protocols: Iterable[Protocol]) -> frozenset[str]:
    """The names of the protocols that have derivatives as operations: their clients need no companions in lists."""
    return frozenset(protocol.name for protocol in protocols if protocol.traits.wire.derivatives)


def _matching_clients(config: RouteConfig, clients: Iterable[Protocol]) -> list[Protocol]:
    return [client for client in clients if config.match.protocol in (None, client.name)]
