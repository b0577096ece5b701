"""From a Config to the values that answer requests: backends, bridges, routes. Nothing here opens a socket."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial

from gateway.admin.statistics import Statistics
from gateway.assembly.own_answers import own_answers
from gateway.assembly.policies import wrapped, wrapped_stream
from gateway.assembly.routes import joined_versions, route
from gateway.assembly.settings import conditions, route_settings
from gateway.bridge.bridge import Bridge
from gateway.bridge.signatures import Signatures
from gateway.bridge.upstream import ROWS_AT_ONCE, Upstream
from gateway.config.models import BackendConfig, Config
from gateway.config.routes import RouteConfig
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, Protocol, Target, at_endpoints, by_batch
from gateway.core.transport import Connector, Destination, Handler, StreamHandler
from gateway.core.types import ServerInfo
from gateway.registry import Policy
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Beside, Endpoint
from gateway.routing.extensions import AllStatistics, Extended, ServerExtensions
from gateway.routing.listing import BackendModels, Listed, Listing, Remembered
from gateway.routing.readiness import Backends, Readiness
from gateway.routing.router import Route, Router

Locate = Callable[[str, Protocol], Hashable]
"""Where an endpoint's text points: two that are written differently may be one place."""
Connect = Callable[[str, Protocol, Limits], Connector]
Ready = Callable[[], bool]


class Assembly:
    """The gateway of one Config: its backends and its Router."""

    def __init__(
        self,
        config: Config,
        protocols: Mapping[str, Protocol],
        policies: Mapping[str, Policy],
        locate: Locate,
        connect: Connect,
        clock: Callable[[], float],
        info: ServerInfo,
        ready: Ready,
    ) -> None:
        self._protocols = protocols
        self._policies = policies
        self._locate = locate
        self._connect = connect
        self._clock = clock
        self.endpoints: dict[tuple[str, Hashable], Endpoint] = {}
        self.backends = {name: self._backend(name, each) for name, each in config.backends.items()}
        self._upstreams = {name: self._upstream(name, each) for name, each in config.backends.items()}
        self.statistics = {each.name: Statistics(clock) for each in config.listeners if each.metrics_page}
        """Of the listeners that show them."""
        switchable = frozenset(each.name for each in config.listeners if each.allow_offline)
        controlling = frozenset(each.name for each in config.listeners if each.allow_control)
        routed = dict.fromkeys(each.backend for each in config.routes)
        self.readiness = Backends({name: self.backends[name].is_ready for name in routed}, clock)
        """Of the backends that routes name."""
        readiness = Readiness(ready, switchable, partial(self.readiness.why_not, config.ready))
        asks_backends = config.ready != "none" and bool(routed)
        own = own_answers(info, readiness, self.statistics, asks_backends=asks_backends)
        names = {name for listener in config.listeners for name in listener.protocols}
        clients = [protocols[name] for name in sorted(names)]
        routes = [each for each in config.routes if not each.passthrough]
        self.router = self._router(routes, clients, own, info, controlling)
        self.passthrough = Router(
            [self._passthrough(each, config) for each in config.routes if each.passthrough],
            {},
            joined_versions(clients),
        )
        """Of the requests whose messages pass untouched."""

    def _backend(self, name: str, config: BackendConfig) -> Backend:
        protocol = self._protocols[config.protocol]
        endpoints = [self._endpoint(address, protocol, config) for address in config.endpoints]
        limit = protocol.traits.max_in_flight if config.max_in_flight is None else config.max_in_flight
        batch, _ = by_batch(protocol, config.batch)
        target = Target(
            name, flavor=config.flavor, batch=batch, limits=config.limits, forward_headers=config.forward_headers
        )
        return Backend(target, protocol, endpoints, limit)

    def _endpoint(self, address: str, protocol: Protocol, config: BackendConfig) -> Endpoint:
        """One Endpoint for each (protocol, place), shared by the backends that name it."""
        key = protocol.name, self._locate(address, protocol)
        if key not in self.endpoints:
            self.endpoints[key] = Endpoint(address, self._connect(address, protocol, config.limits), self._clock)
        return self.endpoints[key]

    def _upstream(self, name: str, config: BackendConfig) -> Upstream:
        backend = self.backends[name]
        protocol = backend.protocol
        _, traits = by_batch(protocol, config.batch)
        traits = at_endpoints(traits, config.endpoints)
        traits = replace(traits, trusted_metadata=traits.trusted_metadata or config.trust_metadata)
        handler = wrapped(backend, config.policies, self._policies)
        responses = wrapped_stream(backend.stream, config.policies, self._policies) if traits.streams else None
        signatures = Signatures(handler, traits, self._clock)
        backend.on_recovery(signatures.drop_all)
        window = backend.capacity + 1 if backend.capacity else ROWS_AT_ONCE
        return Upstream(name, protocol.name, traits, handler, signatures, window, responses, config.limits)

    def _router(
        self,
        configs: Sequence[RouteConfig],
        clients: Sequence[Protocol],
        own: Mapping[Operation, Destination],
        info: ServerInfo,
        controlling: frozenset[str],
    ) -> Router:
        routes = [self._route(config, clients) for config in configs]
        models = {name: BackendModels(each.handler, self._clock) for name, each in self._upstreams.items()}
        for name, each in models.items():
            self.backends[name].on_recovery(each.forget)
        listed = [self._listed(config, clients, models) for config in configs]
        extended = self._extended(configs, clients)
        own_extensions = {client.name: client.traits.own_extensions for client in clients}
        server = {
            **own,
            Operation.MODELS: Destination(Listing(listed, one_point(clients))),
            Operation.ALL_STATISTICS: Destination(AllStatistics(extended)),
        }
        if any(each.info for each in extended):
            server[Operation.SERVER_METADATA] = Destination(
                ServerExtensions(info, extended, own_extensions, controlling)
            )
        return Router(routes, server, joined_versions(clients), controlling)

    def _extended(self, configs: Iterable[RouteConfig], clients: Iterable[Protocol]) -> list[Extended]:
        """The routes, and what servers behind them may have beyond their protocol's specification."""
        infos: dict[str, Remembered[ServerInfo | None]] = {}
        for name, each in self._upstreams.items():
            if each.traits.extensions:
                infos[name] = Remembered(each.handler, Operation.SERVER_METADATA, None, self._clock)
                self.backends[name].on_recovery(infos[name].forget)
        return [
            Extended(
                conditions(config.match),
                frozenset(client.name for client in _matched(config, clients)),
                config.backend,
                self._upstreams[config.backend].traits,
                config.rewrite.model,
                config.rewrite.version,
                infos.get(config.backend),
                self._upstreams[config.backend].handler if config.backend in infos else None,
            )
            for config in configs
        ]

    def _passthrough(self, config: RouteConfig, whole: Config) -> Route:
        """A Route whose messages pass between both sides of the backend's protocol."""
        backend, policies = self.backends[config.backend], whole.backends[config.backend].policies
        form = backend.protocol.passthrough
        assert form is not None
        for endpoint in backend.endpoints:
            if endpoint.passthrough is None:
                limits = whole.backends[config.backend].limits
                endpoint.passthrough = Beside(endpoint, self._connect(endpoint.address, form, limits))
        stream = wrapped_stream(partial(backend.stream, passthrough=True), policies, self._policies)
        stream = wrapped_stream(stream, config.policies, self._policies)
        joins = backend.protocol.traits.joined_versions
        return Route(
            conditions(config.match), {backend.protocol.name: Destination(stream=stream)}, joins_versions=joins
        )

    def _route(self, config: RouteConfig, clients: Iterable[Protocol]) -> Route:
        upstream, settings = self._upstreams[config.backend], route_settings(config)
        bridges = {client.name: Bridge(settings, client, upstream) for client in _matched(config, clients)}

        def policed(handler: Handler, stream: StreamHandler) -> Destination:
            return Destination(
                wrapped(handler, config.policies, self._policies),
                settings.translate,
                stream=wrapped_stream(stream, config.policies, self._policies),
            )

        return route(conditions(config.match), bridges, policed, joins_versions=upstream.traits.joined_versions)

    def _listed(self, config: RouteConfig, clients: Iterable[Protocol], models: Mapping[str, BackendModels]) -> Listed:
        upstream = self._upstreams[config.backend]

        async def claims(model: str) -> frozenset[Operation]:
            return (await upstream.signatures.get((model, "", ""))).operations

        return Listed(
            conditions(config.match),
            frozenset(client.name for client in _matched(config, clients)),
            models[config.backend],
            config.rewrite.model,
            claims if upstream.traits.derivatives else None,
        )


def one_point(protocols: Iterable[Protocol]) -> frozenset[str]:
    """The protocols whose clients know derivatives as operations, and need no companions in a list."""
    return frozenset(protocol.name for protocol in protocols if protocol.traits.derivatives)


def _matched(config: RouteConfig, clients: Iterable[Protocol]) -> list[Protocol]:
    return [client for client in clients if config.match.protocol in (None, client.name)]
