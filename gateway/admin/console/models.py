"""`/api/models` and `/api/graphs`: the backend models and their signatures, as their servers report them, and the
diagrams of model graphs, with the number of calls of each step.

The gateway queries servers when a user opens the page, and stores their responses for a minute. Client requests do not
wait for these queries."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import BaseModel

from gateway.assembly.routes import rewritten
from gateway.bridge.backend import BackendSide
from gateway.bridge.graphs.calls import CALLS_COUNTED, CANCELLED, ERRORS, SECONDS
from gateway.bridge.graphs.graph import Graph
from gateway.bridge.graphs.model import GraphModel
from gateway.bridge.graphs.picture import WIDTH, PictureLayout, box_lines, picture
from gateway.config.keys import Config
from gateway.config.routes import RouteConfig
from gateway.config.unreachable import RouteIndex, takes_all
from gateway.core.errors import GatewayError, Status
from gateway.core.frozen import replace
from gateway.core.globs import backend_name, client_name, wildcards
from gateway.core.models import ModelEntry, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.routing.listing import SECONDS_WAITED, BackendModels

ASKED_AT_ONCE = 32
MOST_MODELS = 5000
"""Maximum number of listed models."""
MOST_COMPARISONS = 200_000
"""Maximum number of comparisons between routes for one list. This many comparisons take a fraction of a second. Above
this limit, the list contains every route to a model, including routes whose requests an earlier route takes."""
MOST_ROUTES = 20
"""Maximum number of listed routes for a model, and maximum number of a backend's globs to compare with model names."""


class ReachedBy(BaseModel):
    """A route that leads to a model."""

    route: str
    name: str
    """The name that clients use on this route."""


class ListedModel(BaseModel):
    """A backend model, or a model graph."""

    backend: str
    """The backend's name; empty for a model graph."""
    name: str
    """The model's name on the server."""
    version: str
    state: str
    """The state that the server reports; empty if the server reports none."""
    reason: str
    source: Literal["server", "configuration", "graph"]
    """`server`: the server lists the model. `configuration`: a route names the model, but the server does not list it,
    or did not respond. `graph`: the model is in `models`."""
    reached_by: list[ReachedBy]
    """The routes that lead to the model, except routes whose requests an earlier route takes."""


class BackendWithoutList(BaseModel):
    """A backend whose server could not be queried for its models."""

    backend: str
    why: str


class ListedModels(BaseModel):
    """All backend models, and the model graphs."""

    models: list[ListedModel]
    without_list: list[BackendWithoutList]
    """Backends whose servers could not be queried. For these backends, `models` contains the models from the last
    successful response, if any, and the models that routes name."""
    is_complete: bool
    """False if the list omits models because it would be too long."""


class TensorOfModel(BaseModel):
    """An input or output. In its shape, -1 is a dimension of any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelSignature(BaseModel):
    """The known signature of a model."""

    inputs: list[TensorOfModel]
    outputs: list[TensorOfModel]
    operations: list[str]
    versions: list[str]
    platform: str
    route: str | None
    """The route whose `signature` replaces the server's signature, or null."""
    unknown: str
    """The reason why only the inputs are known; empty if the outputs are also known."""


class ModelLists:
    """The model lists of the backends in use, cached for a minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lists: dict[str, tuple[BackendSide, BackendModels]] = {}
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)

    async def read(self, config: Config, sides: Mapping[str, BackendSide]) -> ListedModels:
        """Return all backend models. For a backend that does not respond quickly, return the models that routes
        name."""
        lists = self._renewed(sides)
        entries = await asyncio.gather(*map(self._ask, lists))
        without = [
            BackendWithoutList(backend=name, why=why)
            for name, models in zip(sides, lists, strict=True)
            if (why := _why_without(models))
        ]
        return await asyncio.to_thread(_models, config, dict(zip(sides, entries, strict=True)), without)

    def _renewed(self, sides: Mapping[str, BackendSide]) -> list[BackendModels]:
        """Return the model lists of these backends. Keep the cached lists of unchanged backends."""
        before, self._lists = self._lists, {}
        for name, side in sides.items():
            kept = before.get(name)
            is_same = kept is not None and kept[0] is side
            self._lists[name] = kept if kept and is_same else (side, BackendModels(side.handler, self._clock))
        return [models for _, models in self._lists.values()]

    async def _ask(self, models: BackendModels) -> tuple[ModelEntry, ...]:
        async with self._asking:
            return await models.get()


def _why_without(models: BackendModels) -> str:
    if models.is_asking:
        return f"no answer within {SECONDS_WAITED:g} s"
    if models.error is None or models.error.status is Status.UNIMPLEMENTED:  # the protocol has no model lists
        return ""
    return models.error.message


async def signature(config: Config, side: BackendSide, model: str, version: str) -> ModelSignature:
    """Return the signature of the model that the server calls `model`. If routes declare a signature, return the
    tensors that the first of these routes declares.

    Raises:
        GatewayError: the backend's error, including NOT_FOUND.
    """
    found = await side.signatures.get((model, version, ""))
    route = next(_stating(config, side.name, model), None)
    if route is not None:
        own = route.signature
        assert own is not None
        found = replace(found, inputs=own.inputs or found.inputs, outputs=own.outputs or found.outputs)
    return _described(found, None if route is None else route.name)


async def graph_signature(model: GraphModel) -> ModelSignature:
    """Return the signature of a model graph: the configured inputs, and, if available, the outputs and other fields
    from its models' metadata."""
    try:
        answer = await model(Request(Operation.METADATA, model.graph.name))
    except GatewayError as error:
        return _described(Signature(model.graph.inputs), None, error.message)
    assert isinstance(answer, Signature)
    return _described(answer, None)


def _described(found: Signature, route: str | None, unknown: str = "") -> ModelSignature:
    return ModelSignature(
        inputs=list(map(_tensor, found.inputs)),
        outputs=list(map(_tensor, found.outputs)),
        operations=sorted(each.value for each in found.operations),
        versions=list(found.versions),
        platform=found.platform,
        route=route,
        unknown=unknown,
    )


def _tensor(spec: TensorSpec) -> TensorOfModel:
    return TensorOfModel(name=spec.name, datatype=spec.datatype.value, shape=list(spec.shape))


def _stating(config: Config, backend: str, model: str) -> Iterator[RouteConfig]:
    """Yield the routes to this model that declare a `signature`."""
    for route in config.routes:
        if route.signature is not None and backend in route.backends and _reaching(route, model) is not None:
            yield route


def _models(
    config: Config, entries: Mapping[str, Sequence[ModelEntry]], without: list[BackendWithoutList]
) -> ListedModels:
    found = [
        ListedModel(
            backend="", name=name, version="", state="", reason="", source="graph",
            reached_by=[ReachedBy(route=f"models.{name}", name=name)],
        )
        for name in config.models
    ]  # fmt: skip
    shadows = _Shadows(config)
    for name, listed in entries.items():
        routes = [(at, route) for at, route in enumerate(config.routes) if name in route.backends]
        found += _of_backend(name, listed, routes, shadows)
        if len(found) > MOST_MODELS:
            break
    return ListedModels(models=found[:MOST_MODELS], without_list=without, is_complete=len(found) <= MOST_MODELS)


class _Shadows:
    """Finds routes that receive no requests for a model name, because an earlier route takes those requests."""

    def __init__(self, config: Config) -> None:
        self._routes, self._graphs = config.routes, config.models
        self._index = RouteIndex(config.routes)
        self._left = MOST_COMPARISONS

    def has(self, at: int, name: str) -> bool:
        """Return True if a graph or an earlier route takes all requests for the model `name` that match the route at
        index `at`."""
        route = self._routes[at]
        if name in self._graphs and not route.passthrough:
            return True
        earlier = self._index.earlier(at, name)
        self._left -= len(earlier)
        if not earlier or self._left < 0:
            return False
        wanted = route.match.model_copy(update={"model": name})
        return any(takes_all(self._routes[each].match, wanted) for each in earlier)


def _of_backend(
    backend: str, listed: Sequence[ModelEntry], routes: Sequence[tuple[int, RouteConfig]], shadows: _Shadows
) -> Iterator[ListedModel]:
    exact: dict[str, list[ReachedBy]] = {}
    for at, route in routes:
        name = route.match.model
        if name is not None and not wildcards(name):
            reached = exact.setdefault(backend_name(rewritten(route), name), [])
            if not shadows.has(at, name):
                reached.append(ReachedBy(route=route.name, name=name))
    globs = [(at, route) for at, route in routes if route.match.model is None or wildcards(route.match.model)]
    globs = globs[:MOST_ROUTES]
    known = {each.name for each in listed}
    pairs = [(each, "server") for each in listed]
    pairs += [(ModelEntry(name), "configuration") for name in exact if name not in known]
    for entry, source in pairs[: MOST_MODELS + 1]:
        reached = list(exact.get(entry.name, ()))
        for at, route in globs:
            name = _reaching(route, entry.name)
            if name is not None and not shadows.has(at, name):
                reached.append(ReachedBy(route=route.name, name=name))
        yield ListedModel(
            backend=backend,
            name=entry.name,
            version=entry.version,
            state=entry.state,
            reason=entry.reason,
            source="server" if source == "server" else "configuration",
            reached_by=reached[:MOST_ROUTES],
        )


def _reaching(route: RouteConfig, model: str) -> str | None:
    """Return the name that clients use for the backend's `model` on this route; None if the model is unreachable or the
    name is unknown."""
    wanted, names = route.match.model, rewritten(route)
    if wanted is not None and not wildcards(wanted):
        return wanted if backend_name(names, wanted) == model else None
    name = client_name(names, model)
    return name if name is not None and (wanted is None or fnmatchcase(name, wanted)) else None


class DrawnBox(BaseModel):
    """An input, a step or an output, with its position in pixels. `lines` contains the lines of text in the box; the
    first line is the name."""

    name: str
    kind: Literal["input", "step", "output"]
    lines: list[str]
    x: int
    y: int
    width: int
    height: int


class DrawnArrow(BaseModel):
    """A tensor's arrow. `points` contains its start, the points where it enters and leaves each crossed column, and its
    end."""

    label: str
    points: list[tuple[int, int]]


class DrawnGraph(BaseModel):
    """The diagram of one model graph."""

    name: str
    description: str
    width: int
    height: int
    boxes: list[DrawnBox]
    arrows: list[DrawnArrow]


class CountedCalls(BaseModel):
    """The calls of one step since the configuration was last loaded: the numbers of completed, failed and cancelled
    calls, and the total duration in seconds. A call is cancelled if the client disconnects or another step fails."""

    calls: int
    errors: int
    cancelled: int
    seconds: float


class DrawnGraphs(BaseModel):
    """The diagrams of all graphs."""

    graphs: list[DrawnGraph]


class GraphTraffic(BaseModel):
    """The calls by graph and step, without steps that have no calls."""

    steps: dict[str, dict[str, CountedCalls]]


def drawn_graphs(graphs: Mapping[str, Graph]) -> DrawnGraphs:
    """Return the diagrams of `graphs`."""
    return DrawnGraphs(graphs=[_drawn(each) for each in graphs.values()])


def _drawn(graph: Graph) -> DrawnGraph:
    whole = picture(graph)
    layout = PictureLayout(whole)
    boxes = [
        DrawnBox(name=box.name, kind=box.kind, lines=list(box_lines(box)), x=x, y=y, width=WIDTH, height=height)
        for key, box in whole.boxes.items()
        for x, y, height in [layout.places[key]]
    ]
    arrows = [DrawnArrow(label=each.label, points=layout.points(at)) for at, each in enumerate(whole.arrows)]
    return DrawnGraph(
        name=graph.name,
        description=graph.description,
        width=layout.width,
        height=layout.height,
        boxes=boxes,
        arrows=arrows,
    )


def graph_traffic(counted: Mapping[tuple[str, str], Mapping[str, float]]) -> GraphTraffic:
    """Return the calls of steps. `counted` contains the counts by graph and step."""
    steps: dict[str, dict[str, CountedCalls]] = {}
    for (graph, step), counts in counted.items():
        steps.setdefault(graph, {})[step] = CountedCalls(
            calls=int(counts[CALLS_COUNTED]),
            errors=int(counts[ERRORS]),
            cancelled=int(counts[CANCELLED]),
            seconds=counts[SECONDS],
        )
    return GraphTraffic(steps=steps)
