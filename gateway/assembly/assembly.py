"""The gateway's parts, made of a Config: endpoints, backends, bridges and routes. Nothing here opens a socket."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from gateway.admin.statistics import ListenerStatistics
from gateway.assembly.endpoints import ChangedConnectors, EndpointKey, SharedEndpoints
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
from gateway.core.tasks import spawn
from gateway.core.transport import Connector, Destination, Handler, StreamHandler
from gateway.core.types import ServerInfo
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


class RequestsInFlight:
    """Counts requests, and waits for the last one."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def began(self) -> None:
        """Count one more."""
        self._count += 1
        self._none.clear()

    def ended(self) -> None:
        """Count one less."""
        self._count -= 1
        if not self._count:
            self._none.set()

    async def all_ended(self) -> None:
        """Return when there is none."""
        await self._none.wait()


class Assembly:
    """The gateway of one Config: its backends and its Router.

    At a reload a second one is made with the endpoints that both have in common (`shared`) and takes over from the
    `previous` one, which is closed after its last request.
    """

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
        shared: SharedEndpoints | None = None,
        previous: "Assembly | None" = None,
    ) -> None:
        self.streams = RequestsInFlight()
        """Those requests in flight that are messages of streams."""
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """What runs while this is the current Assembly, beside requests: each is started as a task."""
        self._tasks: list[asyncio.Task[None]] = []
        self._previous = previous
        self._shared = SharedEndpoints() if shared is None else shared
        self._changed_connectors = ChangedConnectors()
        self._protocols = protocols
        self._policies = policies
        self._parse_address = parse_address
        self._connect = connect
        self._clock = clock
        self.endpoints: dict[EndpointKey, Endpoint] = {}
        self.backends = {name: self._backend(name, each) for name, each in config.backends.items()}
        self._backend_sides = {name: self._backend_side(name, each) for name, each in config.backends.items()}
        kept: Mapping[str, ListenerStatistics] = {} if previous is None else previous.statistics
        paged = [each.name for each in config.listeners if each.metrics_page]
        self.statistics: Mapping[str, ListenerStatistics] = {
            name: kept.get(name) or ListenerStatistics(clock) for name in paged
        }
        """The statistics of listeners with a metrics page, by name."""
        switchable = frozenset(each.name for each in config.listeners if each.allow_offline)
        controlling = frozenset(each.name for each in config.listeners if each.allow_control)
        routed = dict.fromkeys(each.backend for each in config.routes)
        self.readiness = BackendReadiness({name: self.backends[name].is_ready for name in routed}, clock)
        """Whether the backends that routes name are ready."""
        self._listener_readiness = Readiness(is_ready, switchable, partial(self.readiness.why_not, config.ready))
        asks_backends = config.ready != "none" and bool(routed)
        own = server_operations(info, self._listener_readiness, self.statistics, asks_backends=asks_backends)
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

    def start(self) -> None:
        """Become the current Assembly: take over from the previous one, whose background tasks end, and start those of
        this one."""
        previous, self._previous = self._previous, None
        self._changed_connectors.take_over()
        if previous is not None:
            previous.stop()
            self._listener_readiness.adopt(previous._listener_readiness)
            for name, backend in self.backends.items():
                if name in previous.backends:
                    backend.replace(previous.backends[name])
        self._tasks = [spawn(each()) for each in self.background]

    def stop(self) -> None:
        """End the background tasks. Requests in flight go on."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def close(self) -> None:
        """Leave the endpoints, and return when those that no other Assembly uses are closed. It has no requests in
        flight but abandoned ones, whose servers still compute: their connections are closed after them."""
        self.stop()
        for backend in self.backends.values():
            backend.close()
        await self._shared.release(self.endpoints)

    async def close_unused_connectors(self) -> None:
        """Close the Connectors that this Assembly replaced, or that it made without ever taking over."""
        await self._changed_connectors.close_unused()

    def _backend(self, name: str, config: BackendConfig) -> Backend:
        protocol = self._protocols[config.protocol]
        endpoints = [self._endpoint(address, protocol, config) for address in config.endpoints]
        limit = protocol.traits.servers.max_in_flight if config.max_in_flight is None else config.max_in_flight
        batch, _ = resolve_batch(protocol, config.batch)
        target = Target(
            name, flavor=config.flavor, batch=batch, limits=config.limits, forward_headers=config.forward_headers
        )
        return Backend(target, protocol, endpoints, limit)

    def _endpoint(self, address: str, protocol: Protocol, config: BackendConfig) -> Endpoint:
        """The Endpoint at this place, shared by all backends of the protocol that name it."""
        key = protocol.name, self._parse_address(address, protocol)
        if key not in self.endpoints:
            limits = config.limits

            def made() -> Endpoint:
                return Endpoint(address, self._connect(address, protocol, limits), self._clock)

            shared = self._shared.use(key, limits, made)
            self.endpoints[key] = endpoint = shared.endpoint
            if shared.limits != limits:
                form = protocol.http.passthrough if endpoint.passthrough is not None else None
                passthrough = None if form is None else self._connect(address, form, limits)
                self._changed_connectors.add(shared, limits, self._connect(address, protocol, limits), passthrough)
        return self.endpoints[key]

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


def derivative_protocols(protocols: Iterable[Protocol]) -> frozenset[str]:
    """The names of the protocols that have derivatives as operations: their clients need no companions in lists."""
    return frozenset(protocol.name for protocol in protocols if protocol.traits.wire.derivatives)


def _matching_clients(config: RouteConfig, clients: Iterable[Protocol]) -> list[Protocol]:
    return [client for client in clients if config.match.protocol in (None, client.name)]
