"""Checks of `models` against the other parts of a configuration: whether the models of steps exist, whether graphs call
themselves, and whether tensors match the signatures that routes declare. Errors within a graph are found when the graph
is parsed (`gateway.bridge.graphs.graph`)."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase

from gateway.bridge.graphs.expressions import references
from gateway.bridge.graphs.graph import Graph, GraphStep
from gateway.bridge.graphs.transforms import GraphError
from gateway.bridge.graphs.types import Types
from gateway.bridge.settings import Renames
from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.keys import Config
from gateway.config.problems import Finding, suggestion
from gateway.config.routes import RouteConfig
from gateway.core.frozen import replace
from gateway.core.globs import wildcards
from gateway.core.models import Signature
from gateway.core.operations import Operation, split_companion

DEEPEST = 8
"""Maximum depth of nested graphs, because the number of calls can grow exponentially with the depth."""


def graph_findings(config: Config) -> list[Finding]:
    """Return all findings of these checks."""
    return [*_hidden_routes(config), *_unrouted(config), *_nested(config.models), *_misfits(config)]


def _hidden_routes(config: Config) -> Iterator[Finding]:
    """Find routes for the name of a graph, which never match."""
    for at, route in enumerate(config.routes):
        if route.match.model in config.models and not route.passthrough:
            yield Finding(
                ("routes", at, "match", "model"),
                f"{VALUE} is a model in `models`, which precedes all routes, so no request takes this route; remove it",
            )


def _calls(graph: Graph) -> Iterator[tuple[Location, GraphStep, str]]:
    """Yield the location, the step and the model name of each model that a graph can call."""
    for step in graph.steps.values():
        above: Location = ("models", graph.name, "steps", step.name)
        yield (*above, "model"), step, step.model
        for at, model in enumerate(step.fallback):
            yield (*above, "fallback", at), step, model


def graph_called(model: str, models: Mapping[str, Graph]) -> str | None:
    """Return the graph that handles a request for `model`: the graph with this name, or the graph with this derivative
    model."""
    if model in models:
        return model
    base = split_companion(model)
    return base[0] if base is not None and base[0] in models else None


def _unrouted(config: Config) -> Iterator[Finding]:
    """Find models of steps that no route matches. Requests from steps have no listener and no client protocol."""
    for graph in config.models.values():
        for location, step, model in _calls(graph):
            is_routed = any(routes_of_step(step, model, config.routes))
            if not is_routed and graph_called(model, config.models) is None:
                known = {each.match.model for each in config.routes if each.match.model}
                names = {*config.models, *(each for each in known if not wildcards(each))} - {graph.name, model}
                text = f"no route matches {VALUE} of a step; add a route without `listener`, `protocol` and `path`"
                yield Finding(location, f"{text}{suggestion(model, names) if names else ''}")


def _takes_steps(route: RouteConfig) -> bool:
    match = route.match
    return (
        match.listener is None
        and match.protocol is None
        and match.path is None
        and match.operation in (None, Operation.INFER)
    )


def _leads(route: RouteConfig, model: str, version: str) -> bool:
    if route.match.version not in (None, version):
        return False
    if route.match.model is None:
        return True
    base = split_companion(model)
    return any(fnmatchcase(each, route.match.model) for each in (model, *(base[:1] if base else ())))


def _nested(models: Mapping[str, Graph]) -> Iterator[Finding]:
    """Find a graph that calls itself, directly or through other graphs; otherwise, find graphs with more than
    DEEPEST nested graphs."""
    called = {name: _graphs_called(graph, models) for name, graph in models.items()}
    heights: dict[str, int] = {}
    while found := [
        name for name, others in called.items() if name not in heights and all(each in heights for each in others)
    ]:
        heights |= {name: 1 + max((heights[each] for each in called[name]), default=0) for name in found}
    circling = {name: others for name, others in called.items() if name not in heights}
    if circling:
        yield _circle(circling)
    for name, height in heights.items():
        if height > DEEPEST:
            yield Finding(("models", name), f"{height} nested models; the maximum is {DEEPEST}", at_key=True)
            return


def graph_warnings(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Find graphs whose requests make too many calls. Conditional steps do not count."""
    most, calls = config.limits.calls_per_request, _calls_of_each(config.models)
    for name, number in calls.items():
        if number > most:
            text = f"a request for all outputs of {name!r} makes {number} calls, but limits.calls_per_request"
            yield Finding(("models", name), f"{text} allows {most}; raise the limit, or make fewer calls", at_key=True)


def _calls_of_each(models: Mapping[str, Graph]) -> Mapping[str, int]:
    """Return the minimum number of calls for one evaluation of each graph, including nested graphs. No graph calls
    itself."""
    waiting = {name: _graphs_called(graph, models).keys() for name, graph in models.items()}
    found: dict[str, int] = {}
    while ready := [name for name, others in waiting.items() if not others & waiting.keys()]:
        for name in ready:
            del waiting[name]
            called = (step.model for step in _always_taken(models[name]))
            found[name] = sum(1 + found.get(model, 0) for model in called)
    return found


def _always_taken(graph: Graph) -> Iterator[GraphStep]:
    """Yield the steps without a condition, and without an input from a conditional step."""
    skipped: set[str] = set()
    steps = dict(graph.steps)
    while more := {
        name
        for name, step in steps.items()
        if step.when is not None
        or any(each.step in skipped for value in step.inputs.values() for each in references(value))
    }:
        skipped |= more
        for name in more:
            del steps[name]
    yield from steps.values()


def _graphs_called(graph: Graph, models: Mapping[str, Graph]) -> dict[str, Location]:
    """Return the graphs that a graph calls, with the location of one call for each."""
    calls = ((graph_called(model, models), location) for location, _, model in _calls(graph))
    return {name: location for name, location in calls if name is not None}


def _circle(circling: Mapping[str, Mapping[str, Location]]) -> Finding:
    """Return the finding for a cycle of graphs that call each other."""
    path = [next(iter(circling))]
    while True:
        name, location = next((name, at) for name, at in circling[path[-1]].items() if name in circling)
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            return Finding(location, f"the model calls itself: {circle}; remove one of these calls")
        path.append(name)


def _misfits(config: Config) -> Iterator[Finding]:
    """Find tensors that do not match the declared signatures of the models in steps. Signatures that servers report are
    checked at runtime."""
    told: dict[str, Signature] = {}
    waiting = {name: _graphs_called(graph, config.models).keys() for name, graph in config.models.items()}
    while ready := [name for name, others in waiting.items() if not others & waiting.keys()]:  # graphs without a cycle
        for name in ready:
            del waiting[name]
            graph = config.models[name]
            types = Types(graph, dict(_declared(graph, config, told)))
            try:
                types.check()
            except GraphError as error:
                yield Finding(("models", name, *error.place), error.in_its_step)
                continue
            with suppress(GraphError):  # an output of unknown type
                told[name] = types.signature()


def _declared(graph: Graph, config: Config, told: Mapping[str, Signature]) -> Iterator[tuple[str, Signature]]:
    """Yield the signatures of steps, if known: `told` contains the signatures of graphs, and routes can declare a
    complete signature."""
    for name, step in graph.steps.items():
        signature = told.get(step.model) if step.model in config.models else _on_route(step, config.routes)
        if signature is not None:
            yield name, signature


def _on_route(step: GraphStep, routes: Iterable[RouteConfig]) -> Signature | None:
    """Return the signature that the route of a step declares. Return None if the route declares only a part of the
    signature, converts the tensors, or depends on the request."""
    route = next(routes_of_step(step, step.model, routes), None)
    if route is None or route.match.header or route.match.input is not None or not _shows_its_signature(route):
        return None
    signature = route.signature
    return signature if signature is not None and signature.inputs and signature.outputs else None


def routes_of_step(step: GraphStep, model: str, routes: Iterable[RouteConfig]) -> Iterator[RouteConfig]:
    """Yield the routes that a call to `model` can match. `model` is the step's own model or one of its `fallback`
    models. The first route applies, unless it has more conditions."""
    version = step.version if model == step.model else ""
    return (each for each in routes if not each.passthrough and _takes_steps(each) and _leads(each, model, version))


def _shows_its_signature(route: RouteConfig) -> bool:
    """Return whether the route shows clients the tensors of its `signature` unchanged."""
    settings = route.translate
    without = replace(settings, rename=Renames(), constants=(), select=(), drop=(), images=None, carry_config=False)
    return settings == without
