"""The gateway's parts, made of a Config: endpoints, backends, bridges and routes. Nothing here opens a socket."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial

from gateway.admin.statistics import ListenerStatistics
from gateway.assembly.routes import (
    conditions,
    joined_versions,
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
from gateway.policies.context import PolicyContext
from gateway.registry import PolicyModule
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint, PassthroughConnector
from gateway.routing.extensions import AllStatistics, Extended, ServerExtensions
from gateway.routing.listing import BackendModels, Listed, Listing, Remembered
from gateway.routing.readiness import BackendReadiness, Readiness
from gateway.routing.router import Route, Router

ParseAddress = Callable[[str, Protocol], Hashable]
"""The place of an endpoint, equal for all ways to write it."""
Connect = Callable[[str, Protocol, Limits], Connector]
IsReady = Callable[[], bool]


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
        self.backends = {name: self._backend(name, each) for name, each in config.backends.items()}
        self._policy_contexts = {
            name: self._policy_context(f"backend {name!r}", name, each) for name, each in config.backends.items()
        }
        """Of the policies of each backend."""
        self._backend_configs = config.backends
        self._backend_sides = {name: self._backend_side(name, each) for name, each in config.backends.items()}
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

    def _backend(self, name: str, config: BackendConfig) -> Backend:
        protocol = self._protocols[config.protocol]
        endpoints = [self._endpoint(address, protocol, config) for address in config.endpoints]
        limit = protocol.traits.servers.max_in_flight if config.max_in_flight is None else config.max_in_flight
        batch, _ = resolve_batch(protocol, config.batch)
        target = Target(
            name, flavor=config.flavor, batch=batch, limits=config.limits, forward_headers=config.forward_headers
        )
        return Backend(target, protocol, endpoints, limit)

    def _policy_context(self, owner: str, name: str, config: BackendConfig) -> PolicyContext:
        """The context of policies around calls to the backend `name`."""
        backend = self.backends[name]
        return PolicyContext(owner, safe=config.safe, endpoints=lambda: len(backend.endpoints), clock=self._clock)

    def _route_context(self, config: RouteConfig) -> PolicyContext:
        """The context of a route's policies."""
        owner = f"the route to backend {config.backend!r}"
        return self._policy_context(owner, config.backend, self._backend_configs[config.backend])

    def _endpoint(self, address: str, protocol: Protocol, config: BackendConfig) -> Endpoint:
        """The Endpoint at this place, shared by all backends of the protocol that name it."""
        key = protocol.name, self._parse_address(address, protocol)
        if key not in self.endpoints:
            self.endpoints[key] = Endpoint(address, self._connect(address, protocol, config.limits), self._clock)
        return self.endpoints[key]

    def _backend_side(self, name: str, config: BackendConfig) -> BackendSide:
        backend = self.backends[name]
        protocol = backend.protocol
        _, traits = resolve_batch(protocol, config.batch)
        traits = traits_at_endpoints(traits, config.endpoints)
        if config.trust_metadata:
            traits = replace(traits, models=replace(traits.models, trusted_metadata=True))
        context = self._policy_contexts[name]
        handler = with_policies(backend, config.policies, self._policies, context)
        responses = (
            stream_with_policies(backend.stream, config.policies, self._policies, context)
            if traits.wire.streams
            else None
        )
        signatures = SignatureCache(handler, traits, self._clock)
        backend.on_recovery(signatures.drop_all)
        window = backend.capacity + 1 if backend.capacity else ROWS_AT_ONCE
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
        form = backend.protocol.http.passthrough
        assert form is not None
        for endpoint in backend.endpoints:
            if endpoint.passthrough is None:
                limits = whole.backends[config.backend].limits
                endpoint.passthrough = PassthroughConnector(endpoint, self._connect(endpoint.address, form, limits))
        own, outer = self._policy_contexts[config.backend], self._route_context(config)
        stream = stream_with_policies(partial(backend.stream, passthrough=True), policies, self._policies, own)
        stream = stream_with_policies(stream, config.policies, self._policies, outer)
        joins = backend.protocol.traits.models.joined_versions
        return Route(
            conditions(config.match), {backend.protocol.name: Destination(stream=stream)}, joins_versions=joins
        )

    def _route(self, config: RouteConfig, clients: Iterable[Protocol]) -> Route:
        backend, settings = self._backend_sides[config.backend], route_settings(config)
        bridges = {client.name: Bridge(settings, client, backend) for client in _matching_clients(config, clients)}
        context = self._route_context(config)

        def destination(handler: Handler, stream: StreamHandler) -> Destination:
            return Destination(
                with_policies(handler, config.policies, self._policies, context),
                settings,
                stream=stream_with_policies(stream, config.policies, self._policies, context),
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


def derivative_protocols(protocols: Iterable[Protocol]) -> frozenset[str]:
    """The names of the protocols that have derivatives as operations: their clients need no companions in lists."""
    return frozenset(protocol.name for protocol in protocols if protocol.traits.wire.derivatives)


def _matching_clients(config: RouteConfig, clients: Iterable[Protocol]) -> list[Protocol]:
    return [client for client in clients if config.match.protocol in (None, client.name)]
