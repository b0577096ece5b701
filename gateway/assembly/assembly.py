"""The gateway's parts, made of a Config: endpoints, backends, bridges and routes. Nothing here opens a socket."""

import asyncio
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf

from gateway.assembly.discovery import DiscoveredEndpoints, Discovery, EndpointCloser, fixed_addresses
from gateway.assembly.endpoints import ChangedConnectors, EndpointKey, SharedEndpoints
from gateway.assembly.guard import Access, Guard
from gateway.assembly.own_addresses import why_own
from gateway.assembly.part import WHOLE, GatewayPart
from gateway.assembly.routes import (
    Answering,
    MadeWhenAsked,
    VersionConditions,
    conditions,
    joined_versions,
    policy_states,
    reach_of_messages,
    rewritten,
    route,
    route_settings,
    split,
    stream_with_policies,
    with_policies,
)
from gateway.assembly.server_operations import server_operations
from gateway.assembly.servers import Fleets, Wiring
from gateway.assembly.statistics import ListenerStatistics
from gateway.bridge.backend import ROWS_AT_ONCE, BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import Renames, Renaming, RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.config.keys import BackendConfig, BackendTlsConfig, Config
from gateway.config.models_apart import backend_of_model
from gateway.config.routes import RouteConfig
from gateway.config.servers import ServersConfig
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, Protocol, Target, resolve_batch, traits_at_endpoints
from gateway.core.transport import Connector, Destination, Handler
from gateway.core.types import ServerInfo
from gateway.discovery.source import Found
from gateway.policies.cache import Cache
from gateway.policies.context import KnownModels, MessageReach, OtherBackend, PolicyContext
from gateway.policies.gather import Gather
from gateway.policies.mirror import Mirror
from gateway.policies.places import PolicyState
from gateway.registry import PolicyModule
from gateway.routing.activity import Activity
from gateway.routing.backend import Backend
from gateway.routing.balancing import Weights, strategy
from gateway.routing.branches import Branch, Branches
from gateway.routing.endpoint import Endpoint, PassthroughConnector
from gateway.routing.extensions import AllStatistics, Extended, ServerExtensions
from gateway.routing.health import Ejection
from gateway.routing.listing import BackendModels, Listed, Listing, Remembered
from gateway.routing.on_demand import CountedEndpoint, OnDemandBackend
from gateway.routing.per_model import PerModelBackend
from gateway.routing.probing import Prober, Probes
from gateway.routing.queue import QueueSettings
from gateway.routing.readiness import BackendReadiness, Readiness
from gateway.routing.router import Route, Router

ParseAddress = Callable[[str, Protocol], Hashable]
"""The place of an endpoint, equal for all ways to write it."""
IsReady = Callable[[], bool]


class Connect(typing.Protocol):
    """Makes a Connector to an address, and if `ip` is not empty to this one of its host's IP addresses."""

    def __call__(self, address: str, protocol: Protocol, limits: Limits, ip: str = "") -> Connector: ...


ConnectOverTls = Callable[[BackendTlsConfig], Connect]
"""What makes the Connectors of a backend that has `tls`."""


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
    `previous` one, which is closed after its last request. Thousands of routes take seconds to build: with `in_steps`
    there are no routers until the steps of `build_routes` were done, so that requests can be answered in between.
    """

    router: Router

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
        connect_over_tls: ConnectOverTls | None = None,
        part: GatewayPart = WHOLE,
        fleets: Fleets | None = None,
        own_addresses: Callable[[], Iterable[str]] = tuple,
        *,
        in_steps: bool = False,
    ) -> None:
        self.config = config
        self._own_addresses = own_addresses
        self._fleets = fleets
        self._part = part
        self.streams = RequestsInFlight()
        """Those requests in flight that are messages of streams."""
        self._previous = previous
        self._shared = SharedEndpoints() if shared is None else shared
        self._changed_connectors = ChangedConnectors()
        self._protocols = protocols
        self._policies = policies
        self._parse_address = parse_address
        self._connect = connect
        self._connect_over_tls = connect_over_tls
        self._clock = clock
        self.access: Access = Access(config, clock, None if previous is None else previous.access)
        """Who may do what."""
        self.guards = {
            each.name: Guard(each.name, self.access, self.access.authenticator(each.auth))
            for each in config.listeners
            if each.auth is not None
        }
        """What finds out who clients are, of the listeners that ask for it."""
        self.asked_by_admin = (
            None
            if config.admin is None or config.admin.auth is None
            else (self.access.authenticator(config.admin.auth), self.access.wait_for_keys)
        )
        """What finds out who clients of the status API are; None if they are not asked."""
        self.asked_for_metrics = (
            None
            if config.health is None or config.health.auth is None
            else (self.access.authenticator(config.health.auth), self.access.wait_for_keys)
        )
        """The same, of clients that want the page of metrics."""
        self._safe = {name: each.safe for name, each in config.backends.items()}
        self.endpoints: dict[EndpointKey, Endpoint] = {}
        self._closer = EndpointCloser(self.endpoints, self._has, self._shared.release)
        before = {} if previous is None else previous.activities
        counted = () if config.scaler is None else config.backends
        self.activities: Mapping[str, Activity] = {name: before.get(name) or Activity(clock) for name in counted}
        """The calls of each backend, by its name; counted for the scaler only. Those of the previous Assembly go on."""
        self._passing = {each.main_backend for each in config.routes if each.passthrough}
        """The backends with `passthrough` routes."""
        self._weights: dict[str, dict[Hashable, float]] = {}
        """For each backend the weights of its endpoints, and of its addresses as they are written."""
        self.backends = {name: self._backend(name, each) for name, each in config.backends.items()}
        for name, backend in self.backends.items():
            if isinstance(backend, PerModelBackend):
                backend.models = self._models_of(name)
        self.probers = [
            Prober(self.backends[name], probes, clock)
            for name, each in config.backends.items()
            if (probes := _probes(each, protocols[each.protocol]))
        ]
        self._policy_contexts = {
            name: self._policy_context(f"backend {name!r}", name, safe=safe) for name, safe in self._safe.items()
        }
        """Of the policies of each backend."""
        self._backend_sides = {name: self._backend_side(name, each) for name, each in config.backends.items()}
        self.policy_states = list(self._policy_states(config))
        """The policies that keep a state: place, name and state."""
        kept: Mapping[str, ListenerStatistics] = {} if previous is None else previous.statistics
        paged = [each.name for each in config.listeners if each.metrics_page]
        self.statistics: Mapping[str, ListenerStatistics] = {
            name: kept.get(name) or ListenerStatistics(clock) for name in paged
        }
        """The statistics of listeners with a metrics page, by name."""
        self._info = info
        switchable = frozenset(each.name for each in config.listeners if each.allow_offline)
        self._routed = dict.fromkeys(name for each in config.routes for name in each.called_backends)
        self.readiness = BackendReadiness({name: self.backends[name].is_ready for name in self._routed}, clock)
        """Whether the backends that routes name are ready."""
        self.listener_readiness = Readiness(is_ready, switchable, partial(self.readiness.why_not, config.ready))
        self._places = {id(each): f"routes[{at}]" for at, each in enumerate(config.routes)}
        """What records call each route."""
        self.router: Router
        self.passthrough: Router
        """The Router of requests to routes with `passthrough`."""
        if not in_steps:
            for _ in self.build_routes():
                pass
        self.discovery = self._discovery(config)
        """What adds and removes endpoints of backends; nothing runs before its `start`."""

    def build_routes(self) -> Iterator[None]:
        """Make the Routers, one route in each step: thousands take longer than the event loop may be kept."""
        config = self.config
        names = {name for listener in config.listeners for name in listener.protocols}
        clients = [self._protocols[name] for name in sorted(names)]
        configs = [each for each in config.routes if not each.passthrough]
        versions, routes = VersionConditions(configs), []
        for each in configs:
            routes.append(self._route(each, versions, clients))
            yield
        yield from self._build_router(routes, configs, clients)
        passing = [self._passthrough(each, config) for each in config.routes if each.passthrough]
        self.passthrough = Router(passing, {}, joined_versions(clients))

    def _discovery(self, config: Config) -> Discovery:
        discovery = Discovery(self._clock, self._own_addresses)
        for name, each in config.backends.items():
            if each.discovery is not None:
                protocol = self._protocols[each.protocol]
                endpoint = partial(self._endpoint, name=name, protocol=protocol, config=each)
                endpoints = DiscoveredEndpoints(self.backends[name], endpoint, partial(self._release, name))
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

    def start(self) -> None:
        """Become the current Assembly: take over from the previous one, whose background tasks end, and start those of
        this one."""
        previous, self._previous = self._previous, None
        self._changed_connectors.take_over()
        self.access.begin()  # before the previous one stops: the keys that both use are kept up to date throughout
        if previous is not None:
            previous.stop()
            self.listener_readiness.adopt(previous.listener_readiness)
            for name, backend in self.backends.items():
                if name in previous.backends:
                    backend.replace(previous.backends[name])
            self.discovery.inherit_leases(previous.discovery)
            self._adopt_policy_states(previous)
        if self._fleets is not None:
            self._fleets.take_over(self.config.backends, self._served())
        for prober in self.probers if self._part.probes else ():
            prober.start()

    def _served(self) -> dict[str, tuple[OnDemandBackend, Wiring, Target]]:
        """The backends whose servers the gateway starts, with what their fleets need."""
        found = {}
        for name, backend in self.backends.items():
            if isinstance(backend, OnDemandBackend):
                config = self.config.backends[name]
                target = Target(name, flavor=config.flavor, limits=config.limits)
                found[name] = backend, self._wiring(name, config, backend.protocol), target
        return found

    def _models_of(self, name: str) -> dict[str, Backend]:
        """The backends that have the servers of one model each, by the model's name."""
        prefix = backend_of_model(name, "")
        others = self.backends.items()
        return {other.removeprefix(prefix): each for other, each in others if other.startswith(prefix)}

    def _wiring(self, name: str, config: BackendConfig, protocol: Protocol) -> Wiring:
        def why_not(address: str) -> str:
            try:
                return why_own(self._parse_address(address, protocol), self._own_addresses())
            except ValueError as error:
                return str(error)

        return Wiring(
            lambda address: self._endpoint(Found(address), name, protocol, config),
            partial(self._release, name),
            lambda address: self._connecting(config)(address, protocol, config.limits),
            why_not,
        )

    def _connecting(self, config: BackendConfig) -> Connect:
        if config.tls is not None and self._connect_over_tls is not None:
            return self._connect_over_tls(config.tls)
        return self._connect

    def _adopt_policy_states(self, previous: "Assembly") -> None:
        """Let policies that count go on with the counts of those that stood at their places, and caches with their
        answers where nothing has changed that these depend on."""
        for place, _, state in self.policy_states:
            for place_before, _, before in previous.policy_states:
                if place_before != place:
                    continue
                if isinstance(state, Mirror) and isinstance(before, Mirror):
                    state.take_over(before)
                if isinstance(state, Gather) and isinstance(before, Gather):
                    state.take_over(before)
                if isinstance(state, Cache) and isinstance(before, Cache):
                    is_unchanged = self._place_config(place) == previous._place_config(place)
                    if is_unchanged:
                        state.take_over(before)

    def _place_config(self, place: str) -> object:
        """What the answers at the place of a list of policies depend on: the backend's configuration, or the route's
        with those of its backends."""
        kind, _, name = place.partition(".")
        if kind == "backends":
            return self.config.backends[name]
        route = self.config.routes[int(place.removeprefix("routes[").removesuffix("]"))]
        return route, [self.config.backends[each] for each in route.backends]

    @property
    def caches(self) -> list[tuple[str, Cache]]:
        """The places and states of all policies `cache`."""
        return [(place, state) for place, _, state in self.policy_states if isinstance(state, Cache)]

    @property
    def mirrors(self) -> list[Mirror]:
        """The states of all policies `mirror`."""
        return [state for _, _, state in self.policy_states if isinstance(state, Mirror)]

    @property
    def counted_policies(self) -> list[tuple[str, str, PolicyState]]:
        """Place, name and state of the policies that metrics count by their states."""
        return [each for each in self.policy_states if isinstance(each[2], Cache | Gather)]

    def stop(self) -> None:
        """End the background tasks. Requests in flight go on."""
        self.access.end()
        self.discovery.stop()
        for prober in self.probers:
            prober.cancel()

    async def end(self, seconds: float = inf) -> None:
        """End the background tasks, and what policies keep open. No request may be in flight; calls that policies make
        beside requests have `seconds` to end."""
        self.stop()
        for prober in self.probers:
            await prober.stop()
        await asyncio.gather(*(state.close(seconds) for _, _, state in self.policy_states))

    async def close(self) -> None:
        """Leave the endpoints, and return when those that no other Assembly uses are closed. It has no requests in
        flight but abandoned ones, whose servers still compute: their connections are closed after them."""
        await self.end()
        for backend in self.backends.values():
            backend.close()
        keys = tuple(self.endpoints)
        self.endpoints.clear()  # whoever removes one later does not give it up again
        await self._shared.release(keys)

    async def close_unused_connectors(self) -> None:
        """Close the Connectors that this Assembly replaced, or that it made without ever taking over."""
        await self._changed_connectors.close_unused()

    def _backend(self, name: str, config: BackendConfig) -> Backend:
        protocol = self._protocols[config.protocol]
        self._weights[name] = {each.address: each.weight for each in config.endpoints}
        addresses = fixed_addresses(config.addresses, config.discovery, self._parser(protocol))
        endpoints = [self._endpoint(Found(address), name, protocol, config) for address in addresses]
        limit = protocol.traits.servers.max_in_flight if config.max_in_flight is None else config.max_in_flight
        batch, _ = resolve_batch(protocol, config.batch)
        target = Target(
            name, flavor=config.flavor, batch=batch, limits=config.limits, forward_headers=config.forward_headers
        )
        weights = self._weights[name]
        new = self._part.backend if config.servers is None else _kind(config.servers)
        return new(
            target,
            protocol,
            endpoints,
            limit,
            _ejection(config),
            strategy=strategy(config.balance, Weights(weights, config.slow_start, self._clock)),
            queue=QueueSettings(
                config.queue.length,
                config.queue.timeout,
                config.queue.wait_for_endpoints,
                config.queue.order,
                config.queue.passed_over,
            ),
            clock=self._clock,
            has_tls=config.tls is not None,
        )

    def _policy_context(self, owner: str, name: str, *, safe: bool) -> PolicyContext:
        """The context of policies around calls to the backend `name`."""
        reach = reach_of_messages(self.config, [name], self._protocols)
        return self._context(owner, [name], safe, reach)

    def _context(self, owner: str, names: Sequence[str], safe: bool, reach: MessageReach) -> PolicyContext:
        """The context of policies around calls to these backends, of which the first gets most."""
        backends = [self.backends[name] for name in names]

        def on_new_models(watcher: Callable[[], None]) -> None:
            for each in backends:
                each.on_recovery(watcher)

        return PolicyContext(
            owner,
            safe=safe,
            endpoints=lambda: len(backends[0].endpoints),
            clock=self._clock,
            reach=reach,
            on_new_models=on_new_models,
        )

    def _route_context(self, config: RouteConfig) -> PolicyContext:
        """The context of a route's policies. Its calls may be repeated if every backend that may get them allows it."""
        name, safe = config.main_backend, all(self._safe[each] for each in config.called_backends)
        names = [name, *(each for each in config.called_backends if each != name)]
        reach = replace(reach_of_messages(self.config, names, self._protocols), is_unfitted=True)
        return self._context(f"the route to backend {name!r}", names, safe, reach)

    def _endpoint(self, found: Found, name: str, protocol: Protocol, config: BackendConfig) -> Endpoint:
        """The Endpoint at this place, shared by all backends of the protocol that name it."""
        place = self._parse_address(found.address, protocol)
        key = protocol.name, (place, found.ip, config.tls) if found.ip or config.tls else place
        connect = self._connecting(config)
        new = self._part.endpoint if config.servers is None else CountedEndpoint
        if key not in self.endpoints:
            limits = config.limits

            def made() -> Endpoint:
                connector = connect(found.address, protocol, limits, found.ip)
                return new(str(found), connector, self._clock, _ejection(config))

            shared = self._shared.use(key, limits, made)
            self.endpoints[key] = shared.endpoint
            if shared.limits != limits:
                form = protocol.http.passthrough if shared.endpoint.passthrough is not None else None
                passthrough = None if form is None else self._connect(found.address, form, limits, found.ip)
                connector = connect(found.address, protocol, limits, found.ip)
                self._changed_connectors.add(shared, limits, connector, passthrough)
        endpoint = self.endpoints[key]
        if name in self._passing and endpoint.passthrough is None:
            form = protocol.http.passthrough
            assert form is not None
            passing = connect(found.address, form, config.limits, found.ip)
            endpoint.passthrough = PassthroughConnector(endpoint, passing)
        weight = self._weights[name].get(found.address, 1.0)
        if weight != 1:
            self._weights[name][endpoint] = weight
        return endpoint

    @property
    def backend_sides(self) -> Mapping[str, BackendSide]:
        """The backends as bridges call them, by name."""
        return self._backend_sides

    def side(self, backend: str) -> BackendSide:
        """The backend of this name as bridges call it."""
        return self._backend_sides[backend]

    def _has(self, endpoint: Endpoint) -> bool:
        """Whether a backend has this endpoint."""
        return any(endpoint in backend.endpoints for backend in self.backends.values())

    def _release(self, name: str, endpoint: Endpoint) -> None:
        """Close an endpoint that a backend no longer has, unless another one has it."""
        self._weights[name].pop(endpoint, None)
        self._closer.release(endpoint)

    def _backend_side(self, name: str, config: BackendConfig) -> BackendSide:
        backend = self.backends[name]
        protocol = backend.protocol
        _, traits = resolve_batch(protocol, config.batch)
        traits = traits_at_endpoints(traits, config.addresses)
        if config.trust_metadata:
            traits = replace(traits, models=replace(traits.models, trusted_metadata=True))
        context = self._policy_contexts[name]
        context.models = KnownModels(
            lambda model, version: self._backend_sides[name].signatures.get((model, version, "")),
            traits.wire.rows,
            Operation.CONFIG in traits.servers.extensions,
            config.forward_headers,
            config.limits,
        )
        activity = self.activities.get(name)
        call: Handler = backend if activity is None else activity.counted(backend)
        stream = backend.stream if activity is None else activity.counted_stream(backend.stream)
        handler = with_policies(call, config.policies, self._policies, context)
        responses = (
            stream_with_policies(stream, config.policies, self._policies, context) if traits.wire.streams else None
        )
        signatures = SignatureCache(handler, traits, self._clock, backend.count_joined)
        backend.on_recovery(signatures.drop_all)
        window = (lambda: backend.capacity + 1) if backend.max_in_flight else ROWS_AT_ONCE
        return BackendSide(name, protocol.name, traits, handler, signatures, window, responses, config.limits)

    def _build_router(
        self, routes: Sequence[Route], configs: Sequence[RouteConfig], clients: Sequence[Protocol]
    ) -> Iterator[None]:
        """Make the `router`: what lists and describes the models of these routes."""
        info, listeners = self._info, self.config.listeners
        asks_backends = self.config.ready != "none" and bool(self._routed)
        own = server_operations(info, self.listener_readiness, self.statistics, asks_backends=asks_backends)
        controlling = frozenset(each.name for each in listeners if each.allow_control)
        models = {
            name: BackendModels(each.handler, self._clock, first_wait=self._first_list_seconds(name))
            for name, each in self._backend_sides.items()
        }
        for name, each in models.items():
            self.backends[name].on_recovery(each.forget)
        listed: list[Listed] = []
        for config in configs:
            listed += self._listed(config, clients, models)
            yield
        extended = self._extended(configs, clients)
        yield
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
        self.router = Router(routes, server, joined_versions(clients), controlling)

    def _first_list_seconds(self, name: str) -> float | None:
        """How long to wait for a backend's first list of models, if its first server has to be started for it."""
        servers = self.config.backends[name].servers
        return None if servers is None else servers.start_timeout

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
                name,
                self._backend_sides[name].traits,
                rewritten(config),
                config.rewrite.version,
                infos.get(name),
                self._backend_sides[name].handler if name in infos else None,
            )
            for config in configs
            for name in [config.main_backend]
        ]

    def _passthrough(self, config: RouteConfig, whole: Config) -> Route:
        """A Route whose messages pass unchanged."""
        name = config.main_backend
        backend, policies = self.backends[name], whole.backends[name].policies
        own, outer = self._policy_contexts[name], self._route_context(config)
        activity, passing = self.activities.get(name), partial(backend.stream, passthrough=True)
        counted = passing if activity is None else activity.counted_stream(passing)
        stream = stream_with_policies(counted, policies, self._policies, own)
        stream = stream_with_policies(stream, config.policies, self._policies, outer)
        joins = backend.protocol.traits.models.joined_versions
        return Route(
            conditions(config.match),
            {backend.protocol.name: Destination(stream=stream, route=self._places[id(config)], backend=name)},
            joins_versions=joins,
        )

    def _route(self, config: RouteConfig, versions: VersionConditions, clients: Iterable[Protocol]) -> Route:
        sides = [self._backend_sides[name] for name in config.backends]
        settings = versions.added_to(route_settings(config), config.match)
        matching = {client.name: client for client in _matching_clients(config, clients)}
        bridges = MadeWhenAsked(matching, lambda name: [Bridge(settings, matching[name], side) for side in sides])
        of_route = self._route_context(config)

        def destination(answering: Sequence[Answering], client: str, companion: Operation | None) -> Destination:
            context = of_route.with_beside(partial(self._beside, settings, matching[client], companion))
            handler, stream = self._joined(config, answering)
            return Destination(
                with_policies(handler, config.policies, self._policies, context),
                settings,
                stream=stream_with_policies(stream, config.policies, self._policies, context),
                route=self._places[id(config)],
                backend=config.main_backend,
            )

        joins = all(side.traits.models.joined_versions for side in sides)
        return route(conditions(config.match), bridges, destination, joins_versions=joins)

    def _beside(
        self, settings: RouteSettings, client: Protocol, companion: Operation | None, other: OtherBackend
    ) -> Handler:
        """The way of a route's requests, those for models or for one companion of theirs, to another backend."""
        rename = settings.rename
        there = replace(
            settings,
            model=settings.model if other.model is None else other.model,
            version=settings.version if other.version is None else other.version,
            takes_one_version=settings.takes_one_version or other.version is not None,
            rename=Renames(_renamings(other.inputs, rename.inputs), _renamings(other.outputs, rename.outputs)),
        )
        bridge = Bridge(there, client, self.side(other.name))
        return bridge if companion is None else bridge.companion(companion)

    def _joined(self, config: RouteConfig, answering: Sequence[Answering]) -> Answering:
        """How the route's backends answer together. A route with one backend costs nothing more."""
        if len(answering) == 1:
            return answering[0]
        branches = [
            Branch(name, *each, self._safe[name]) for name, each in zip(config.backends, answering, strict=True)
        ]
        own = len(config.own_backends)
        joined = Branches(branches[:own], split(config), branches[own:])
        return joined, joined.stream

    def _listed(
        self, config: RouteConfig, clients: Iterable[Protocol], models: Mapping[str, BackendModels]
    ) -> list[Listed]:
        """The route as it matters for lists: with its main backend and, if a model may be in a fallback alone, those
        too."""
        return [self._listed_in(name, config, clients, models) for name in (config.main_backend, *config.fallback)]

    def _listed_in(
        self, name: str, config: RouteConfig, clients: Iterable[Protocol], models: Mapping[str, BackendModels]
    ) -> Listed:
        backend = self._backend_sides[name]

        async def claims(model: str) -> frozenset[Operation]:
            return (await backend.signatures.get((model, "", ""))).operations

        return Listed(
            conditions(config.match),
            frozenset(client.name for client in _matching_clients(config, clients)),
            models[name],
            rewritten(config),
            claims if backend.traits.wire.derivatives else None,
        )


def _renamings(pairs: Sequence[tuple[str, str]] | None, others: tuple[Renaming, ...]) -> tuple[Renaming, ...]:
    """The renamings of these pairs; without any, the `others`."""
    return others if pairs is None else tuple(Renaming(*pair) for pair in pairs)


def _kind(servers: ServersConfig) -> type[Backend]:
    """The kind of a backend whose servers the gateway starts."""
    return PerModelBackend if servers.per == "model" else OnDemandBackend


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
