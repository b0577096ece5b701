"""Makes graphs available as models. Each graph has its own backend and its own route."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gateway.assembly.routes import LazyMapping, route, without_policies
from gateway.bridge.backend import ROWS_AT_ONCE, BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.graphs.calls import GRAPH, StepCalls
from gateway.bridge.graphs.model import GRAPH_TRAITS, GraphModel
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.config.keys import Config
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, without_codec
from gateway.core.transport import Destination, Select
from gateway.routing.conditions import Conditions
from gateway.routing.listing import BackendModels, Listed
from gateway.routing.router import Route
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
        """Yield one Route to each graph, for all of these protocols."""
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
