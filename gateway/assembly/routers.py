"""Builds the Routers of a Config for `assembly`. They contain the routes in order, with their policies and Bridges, and
the model graphs, each with its own backend and its own route."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gateway.assembly.environment import Environment
from gateway.assembly.policing import Policing
from gateway.assembly.routes import (
    Answering,
    LazyMapping,
    VersionConditions,
    conditions,
    joined_versions,
    rewritten,
    route,
    route_settings,
    split,
    without_policies,
)
from gateway.assembly.server_operations import server_operations
from gateway.assembly.statistics import ListenerStatistics
from gateway.bridge.backend import ROWS_AT_ONCE, BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.graphs.calls import GRAPH, StepCalls
from gateway.bridge.graphs.model import GRAPH_TRAITS, GraphModel
from gateway.bridge.rewrite import Rewrite
from gateway.bridge.settings import Renames, Renaming, RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.bridge.signatures import RouteSignatures
from gateway.config.keys import Config
from gateway.config.relaying import Relaying, relaying
from gateway.config.routes import RouteConfig
from gateway.core.frozen import replace
from gateway.core.models import ServerInfo
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, without_codec
from gateway.core.transport import Destination, Handler, Select
from gateway.policies.context import OtherBackend
from gateway.routing.activity import Activity
from gateway.routing.backend import Backend
from gateway.routing.branches import Branch, Branches
from gateway.routing.conditions import Conditions
from gateway.routing.extensions import AllStatistics, Extended, ServerExtensions
from gateway.routing.listing import BackendModels, Listed, Listing, Remembered
from gateway.routing.readiness import Readiness
from gateway.routing.router import Route, Router
from gateway.transports.memory import PROCESS_MEMORY

STEPS = without_codec(GRAPH, traits=GRAPH_TRAITS)
"""The client protocol of requests that graphs send."""


class GraphRoutes:
    """The graphs of one Config and the routes to them. `select` finds the destination of a step's request."""

    def __init__(self, config: Config, select: Select, clock: Callable[[], float]) -> None:
        self._clock = clock
        safe = frozenset(
            each.name for each in config.routes if all(config.backends[name].safe for name in each.called_backends)
        )
        self.models: dict[str, GraphModel] = {}
        """The models, by graph name."""
        for name, graph in config.models.items():
            calls = StepCalls(select, lambda destination: destination.route in safe, config.limits.calls_per_request)
            self.models[name] = GraphModel(graph, calls, PROCESS_MEMORY.of_client, clock)
        self._signatures = {name: SignatureCache(each, GRAPH_TRAITS, clock) for name, each in self.models.items()}

    def forget(self) -> None:
        """Query the signatures of all steps again, because a server has recovered and might now have different
        models."""
        for model in self.models.values():
            model.signatures.forget()
        for signatures in self._signatures.values():
            signatures.drop_all()

    def adopt(self, previous: "GraphRoutes") -> None:
        """After a reload, keep the counts of steps that still exist."""
        for name, model in self.models.items():
            before = previous.models.get(name)
            if before is not None:
                kept = {step: each for step, each in before.calls.counts.items() if step in model.graph.steps}
                model.calls.counts = kept

    def routes(self, clients: Iterable[Protocol]) -> Iterator[Route]:
        """Yield one Route to each graph, for all these protocols."""
        by_name = {each.name: each for each in clients}
        for name, model in self.models.items():
            settings = RouteSettings(derivatives=model.graph.keys.derivatives)
            yield self._route(settings, self._side(name, model), by_name)

    def _side(self, name: str, model: GraphModel) -> BackendSide:
        return BackendSide(name, GRAPH, GRAPH_TRAITS, model, self._signatures[name], ROWS_AT_ONCE, model.stream)

    def _route(self, settings: RouteSettings, side: BackendSide, clients: Mapping[str, Protocol]) -> Route:
        bridges = LazyMapping(clients, lambda client: [Bridge(settings, clients[client], side)])

        def destination(*of: Any) -> Destination:
            # The graph has no backends of its own; its steps have their own records.
            return replace(without_policies(*of), route=f"models.{side.name}", backend="")

        return route(Conditions(model=side.name), bridges, destination)

    def listed(self, clients: Iterable[Protocol]) -> Iterator[Listed]:
        """Yield the graphs as entries for model lists."""
        protocols = frozenset(each.name for each in clients)
        for name, model in self.models.items():
            signatures = self._signatures[name]

            async def claims(asked: str, signatures: SignatureCache = signatures) -> frozenset[Operation]:
                return (await signatures.get((asked, "", ""))).operations

            yield Listed(Conditions(model=name), protocols, BackendModels(model, self._clock), None, claims)


class Routers:
    """The Routers of one Config, which exist only after `build`. `readiness` and `statistics` serve requests that the
    gateway handles itself."""

    router: Router
    passthrough: Router
    """The Router for requests to routes with `passthrough`."""

    def __init__(
        self,
        config: Config,
        environment: Environment,
        backends: Mapping[str, Backend],
        sides: Mapping[str, BackendSide],
        policing: Policing,
        activities: Mapping[str, Activity],
        readiness: Readiness,
        statistics: Mapping[str, ListenerStatistics],
    ) -> None:
        self._config = config
        self._environment = environment
        self._backends = backends
        self._sides = sides
        self._policing = policing
        self._activities = activities
        self._readiness = readiness
        self._statistics = statistics
        self.graphs = GraphRoutes(config, lambda request: self.router.select(request), environment.clock)
        """The models that graphs define."""
        self._relays: set[str] = set()
        """The names of protocols with at least one route that relays calls without decoding them."""

    def build(self) -> Iterator[None]:
        """Build the Routers, one route per step, because building thousands of routes in one step would block the event
        loop."""
        config = self._config
        names = {name for listener in config.listeners for name in listener.protocols}
        clients = [self._environment.protocols[name] for name in sorted(names)]
        if config.models:
            clients.append(STEPS)
        configs = [each for each in config.routes if not each.passthrough]
        versions, routes = VersionConditions(configs), list(self.graphs.routes(clients))
        for each in configs:
            routes.append(self._route(each, versions, clients))
            yield
        yield from self._build_router(routes, configs, clients)
        passing = [self._passthrough(each) for each in config.routes if each.passthrough]
        self.passthrough = Router(passing, {}, joined_versions(clients))

    def _build_router(
        self, routes: Sequence[Route], configs: Sequence[RouteConfig], clients: Sequence[Protocol]
    ) -> Iterator[None]:
        """Build the `router`, including the lists and descriptions of these routes' models."""
        info, listeners = self._environment.info, self._config.listeners
        asks_backends = self._config.ready != "none" and any(each.called_backends for each in self._config.routes)
        own = server_operations(info, self._readiness, self._statistics, asks_backends=asks_backends)
        controlling = frozenset(each.name for each in listeners if each.allow_control)
        models = {
            name: BackendModels(each.handler, self._environment.clock, first_wait=self._first_list_seconds(name))
            for name, each in self._sides.items()
        }
        for name, each in models.items():
            self._backends[name].on_other_models(each.forget)
        for backend in self._backends.values():
            backend.on_recovery(self.graphs.forget)
        listed: list[Listed] = list(self.graphs.listed(clients))
        for config in configs:
            listed += self._listed(config, clients, models)
            yield
        extended = self._extended(configs, clients)
        yield
        own_extensions = {client.name: client.traits.servers.own_extensions for client in clients}
        server = {
            **own,
            Operation.MODELS: Destination(Listing(listed, _derivative_protocols(clients))),
            Operation.ALL_STATISTICS: Destination(AllStatistics(extended)),
        }
        if any(each.info for each in extended):
            server[Operation.SERVER_METADATA] = Destination(
                ServerExtensions(info, extended, own_extensions, controlling)
            )
        self.router = Router(routes, server, joined_versions(clients), controlling, frozenset(self._relays))

    def _first_list_seconds(self, name: str) -> float | None:
        """Return the maximum time to wait for a backend's first model list if the gateway must first start a server, in
        seconds."""
        servers = self._config.backends[name].servers
        return None if servers is None else servers.start_timeout

    def _extended(self, configs: Iterable[RouteConfig], clients: Iterable[Protocol]) -> list[Extended]:
        """Return the routes, and for each route, the extensions that its servers might support."""
        infos: dict[str, Remembered[ServerInfo | None]] = {}
        for name, each in self._sides.items():
            if each.traits.servers.extensions:
                infos[name] = Remembered(each.handler, Operation.SERVER_METADATA, None, self._environment.clock)
                self._backends[name].on_recovery(infos[name].forget)
        return [
            Extended(
                conditions(config.match),
                frozenset(client.name for client in _matching_clients(config, clients)),
                name,
                self._sides[name].traits,
                rewritten(config),
                config.rewrite.version,
                infos.get(name),
                self._sides[name].handler if name in infos else None,
            )
            for config in configs
            for name in [config.main_backend]
        ]

    def _passthrough(self, config: RouteConfig) -> Route:
        """Return a Route that relays messages unchanged."""
        name = config.main_backend
        backend, policies = self._backends[name], self._config.backends[name].policies
        own, outer = self._policing.of_backends[name], self._policing.of_route(config)
        activity, passing = self._activities.get(name), partial(backend.stream, passthrough=True)
        counted = passing if activity is None else activity.counted_stream(passing)
        stream = self._policing.around_stream(counted, policies, own)
        stream = self._policing.around_stream(stream, config.policies, outer)
        joins = backend.protocol.traits.models.joined_versions
        return Route(
            conditions(config.match),
            {backend.protocol.name: Destination(stream=stream, route=config.name, backend=name)},
            joins_versions=joins,
        )

    def _route(self, config: RouteConfig, versions: VersionConditions, clients: Iterable[Protocol]) -> Route:
        sides = [self._sides[name] for name in config.backends]
        settings = versions.added_to(route_settings(config), config.match)
        matching = {client.name: client for client in _matching_clients(config, clients)}
        bridges = LazyMapping(matching, lambda name: [Bridge(settings, matching[name], side) for side in sides])
        of_route = self._policing.of_route(config)
        for name in matching.keys() - self._relays:
            if self._relaying(config, matching[name]).relay is not None:
                self._relays.add(name)

        def destination(answering: Sequence[Answering], client: str, companion: Operation | None) -> Destination:
            context = of_route.with_beside(partial(self._beside, settings, matching[client], companion))
            handler, stream = self._joined(config, answering)
            way = self._relaying(config, matching[client])
            if companion is not None:
                way = Relaying(None, f"the companion {companion.value}")
            return Destination(
                self._policing.around(handler, config.policies, context),
                settings,
                stream=self._policing.around_stream(stream, config.policies, context),
                route=config.name,
                backend=config.main_backend,
                relay=way.relay,
                reads=way.reads,
            )

        joins = all(side.traits.models.joined_versions for side in sides)
        return route(conditions(config.match), bridges, destination, joins_versions=joins)

    def _relaying(self, config: RouteConfig, client: Protocol) -> Relaying:
        backends = {name: self._backends[name].protocol for name in config.backends}
        return relaying(config, client, self._config, backends)

    def _beside(
        self, settings: RouteSettings, client: Protocol, companion: Operation | None, other: OtherBackend
    ) -> Handler:
        """Return a Handler that sends a route's requests to another backend.

        If `companion` is not None, the requests are for derivative models of that operation."""
        rename = settings.rename
        there = replace(
            settings,
            model=settings.model if other.model is None else other.model,
            version=settings.version if other.version is None else other.version,
            takes_one_version=settings.takes_one_version or other.version is not None,
            rename=Renames(_renamings(other.inputs, rename.inputs), _renamings(other.outputs, rename.outputs)),
        )
        bridge = Bridge(there, client, self._sides[other.name])
        return bridge if companion is None else bridge.companion(companion)

    def _joined(self, config: RouteConfig, answering: Sequence[Answering]) -> Answering:
        """Combine the route's backends into one pair of Handlers. For a route with one backend, the combination adds no
        cost."""
        if len(answering) == 1:
            return answering[0]
        branches = [
            Branch(name, *each, self._config.backends[name].safe)
            for name, each in zip(config.backends, answering, strict=True)
        ]
        own = len(config.own_backends)
        joined = Branches(branches[:own], split(config), branches[own:])
        return joined, joined.stream

    def _listed(
        self, config: RouteConfig, clients: Iterable[Protocol], models: Mapping[str, BackendModels]
    ) -> list[Listed]:
        """Return the entry of the route's main backend for model lists.

        Also return the entries of its fallback backends, because a model might exist only there."""
        return [self._listed_in(name, config, clients, models) for name in (config.main_backend, *config.fallback)]

    def _listed_in(
        self, name: str, config: RouteConfig, clients: Iterable[Protocol], models: Mapping[str, BackendModels]
    ) -> Listed:
        backend = self._sides[name]
        settings = route_settings(config)
        of_route = RouteSignatures(Rewrite(settings, backend))

        async def claims(model: str) -> frozenset[Operation]:
            if settings.derivatives is not None:
                return await of_route.operations((model, "", ""))
            return (await backend.signatures.get((model, "", ""))).operations

        return Listed(
            conditions(config.match),
            frozenset(client.name for client in _matching_clients(config, clients)),
            models[name],
            rewritten(config),
            claims if backend.traits.wire.derivatives or settings.derivatives is not None else None,
        )


def _renamings(pairs: Sequence[tuple[str, str]] | None, others: tuple[Renaming, ...]) -> tuple[Renaming, ...]:
    """Return `pairs` as Renamings, or `others` if `pairs` is None."""
    return others if pairs is None else tuple(Renaming(*pair) for pair in pairs)


def _derivative_protocols(protocols: Iterable[Protocol]) -> frozenset[str]:
    """Return the names of protocols that have derivatives as operations.

    Model lists for clients of these protocols do not need to contain derivative models."""
    return frozenset(protocol.name for protocol in protocols if protocol.traits.wire.derivatives)


def _matching_clients(config: RouteConfig, clients: Iterable[Protocol]) -> list[Protocol]:
    return [client for client in clients if config.match.protocol in (None, client.name)]
