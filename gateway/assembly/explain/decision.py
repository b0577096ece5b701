"""Describes the routing decision for a request: all routes in evaluation order, with the reasons why routes do not
match."""

from collections.abc import Iterator, Sequence

from gateway.assembly.assembly import Assembly
from gateway.assembly.routes import route_settings
from gateway.bridge.graphs.calls import GRAPH
from gateway.bridge.graphs.graph import Graph
from gateway.bridge.rewrite import Rewrite
from gateway.config.keys import Config
from gateway.config.routes import OF_GRAPHS, RouteConfig
from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen, replace
from gateway.core.operations import CALLS, DERIVATIVES, SERVER_OPERATIONS
from gateway.core.requests import Request
from gateway.routing.conditions import RoutingKey
from gateway.routing.router import Reading, Route, Router

ANSWERED_HERE = "the gateway answers this operation itself; it takes no route"


@frozen
class RouteTried:
    """A route, and whether it matches the request.

    `unmet` lists the conditions that the request does not meet. Only the first route without unmet conditions is
    `taken`."""

    route: str
    taken: bool
    unmet: tuple[str, ...] = ()


@frozen
class BackendNames:
    """A backend that might receive the request, and the backend's names for the model.

    `role` is `backend`, `split` with a weight, or `fallback`. `error` is the reason why the backend cannot have this
    model.
    """

    backend: str
    protocol: str
    role: str
    model: str = ""
    version: str = ""
    error: str = ""


@frozen
class StepTaken:
    """A graph step: its model, the values of its inputs (`x = $theta`), and the route and backends of its requests. If
    no route matches, `error` contains the reason."""

    step: str
    model: str
    inputs: tuple[str, ...]
    route: str = ""
    backends: tuple[BackendNames, ...] = ()
    error: str = ""


@frozen
class Decision:
    """The route that a request takes, or the reason why no route matches.

    If the gateway changes the names in the request, `readings` lists their possible interpretations. `error` is the
    message that the client receives if no route matches."""

    listener: str
    protocol: str
    operation: str
    model: str
    version: str
    routes: tuple[RouteTried, ...] = ()
    route: str = ""
    backends: tuple[BackendNames, ...] = ()
    steps: tuple[StepTaken, ...] = ()
    """If the model is a graph, its steps in order."""
    passes_unread: bool = False
    """True if the gateway relays messages of this kind without decoding them, except messages with content that it must
    process."""
    reads: str = ""
    """The first configuration key that requires the gateway to decode the messages."""
    readings: tuple[str, ...] = ()
    note: str = ""
    error: str = ""


def decide(request: Request, config: Config, assembly: Assembly, *, passthrough: bool = False) -> Decision:
    """Return the decision for `request`.

    If `passthrough` is True, evaluate only the routes with `passthrough`; otherwise, evaluate only the other routes. If
    the request is not decoded, evaluate only its names."""
    if request.unread is not None:
        request = replace(request, inputs=(), outputs=(), parameters={}, unread=None)
    decision = Decision(request.listener, request.protocol, request.operation.value, request.model, request.version)
    if request.operation in SERVER_OPERATIONS:
        return replace(decision, note=ANSWERED_HERE)
    router = assembly.passthrough if passthrough else assembly.router
    configs = [each for each in config.routes if each.passthrough == passthrough]
    readings = router.readings(_key(request))
    decision = replace(decision, readings=_readings_texts(readings))
    try:
        destination = router.select(request)
        if request.operation in CALLS:
            decision = replace(decision, passes_unread=destination.relay is not None, reads=destination.reads)
    except GatewayError as error:
        decision = replace(decision, error=error.message)
    graphs = () if passthrough else config.models
    names = [*(f"{OF_GRAPHS}{each}" for each in graphs), *(each.name for each in configs)]
    places = {id(route): name for name, route in zip(names, router.routes, strict=True)}
    tried, taken = _tried(request, router, readings, places)
    decision = replace(decision, routes=tried)
    if taken is None or decision.error:
        return decision
    chosen = next((each for each in configs if each.name == taken), None)
    if chosen is None:
        graph = config.models[taken.removeprefix(OF_GRAPHS)]
        return replace(decision, route=taken, steps=tuple(_steps(graph, request, config, assembly)))
    return replace(decision, route=taken, backends=tuple(_backends(chosen, request, readings[0], assembly)))


def _steps(graph: Graph, request: Request, config: Config, assembly: Assembly) -> Iterator[StepTaken]:
    for step in graph.steps.values():
        inputs = tuple(f"{name} = {value}" for name, value in step.inputs.items())
        for model in (step.model, *step.fallback):
            version = step.version if model == step.model else ""
            asked = replace(request, listener="", protocol=GRAPH, model=model, version=version, principal=None)
            found = decide(asked, config, assembly)
            yield StepTaken(step.name, model, inputs, found.route, found.backends, found.error)


def _key(request: Request) -> RoutingKey:
    return RoutingKey(request.listener, request.protocol, request.model, request.version, request.operation)


def _tried(
    request: Request, router: Router, readings: Sequence[Reading], places: dict[int, str]
) -> tuple[tuple[RouteTried, ...], str | None]:
    """Return all routes that the client has permission to see, and the name of the matching route.

    `places` maps each route's identity to its name."""
    found: list[RouteTried] = []
    taken: str | None = None
    for route, destination in router.tried(_key(request)):
        unmet = tuple(_unmet(route, readings, request, named=destination is not None))
        is_taken = taken is None and not unmet
        if is_taken:
            taken = places[id(route)]
        if is_taken or _may_know(route, request):
            found.append(RouteTried(places[id(route)], is_taken, unmet))
    return tuple(found), taken


def _may_know(route: Route, request: Request) -> bool:
    """Return True if the client has permission to use the route's models, or if the route accepts any model."""
    model, principal = route.conditions.model, request.principal
    if principal is None or model in ("", "*"):
        return True
    return principal.may(request.operation, model, request.listener)


def _unmet(route: Route, readings: Sequence[Reading], request: Request, *, named: bool) -> Iterator[str]:
    if not named:
        texts = [tuple(route.conditions.unmet_names(each.key, each.model, each.operation)) for each in readings]
        yield from texts[0]
        for reading, more in zip(readings[1:], texts[1:], strict=True):
            for each in more:
                if each not in texts[0]:
                    yield f"read as version {reading.key.version!r} of {reading.model!r}: {each}"
        if not any(texts):
            yield "the route does not support this operation"
    yield from route.conditions.unmet(request)


def _readings_texts(readings: Sequence[Reading]) -> tuple[str, ...]:
    texts = []
    for reading in readings:
        text = f"model {reading.model!r}"
        if reading.derivative is not None:
            text = f"{reading.derivative.value} of {text}"
        if len(readings) > 1 and reading.key.version:
            text = f"version {reading.key.version!r} of {text}"
        texts.append(text)
    is_plain = len(readings) == 1 and readings[0].derivative is None
    return () if is_plain else tuple(texts)


def _backends(config: RouteConfig, request: Request, reading: Reading, assembly: Assembly) -> Iterator[BackendNames]:
    weights = {each.backend: each.weight for each in config.split or ()}
    whole = sum(weights.values())
    for name in config.backends:
        side = assembly.backend_sides[name]
        role = "fallback" if name in config.fallback else "backend"
        if name in weights:
            role = f"split, {weights[name]} of {whole}"
        known = BackendNames(name, side.protocol, role)
        rewrite = Rewrite(route_settings(config), side)
        try:
            key = rewrite.key(replace(request, model=reading.model))
        except GatewayError as error:
            yield replace(known, error=error.message)
            continue
        derivative = reading.derivative or (request.operation if request.operation in DERIVATIVES else None)
        if derivative is not None and not side.traits.wire.derivatives:
            key = rewrite.companion(key, derivative)
        yield replace(known, model=key[0], version=key[1])
