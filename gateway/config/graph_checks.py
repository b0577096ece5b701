"""Checks of `models` against the rest of a configuration: whether the models of steps can be found, and whether graphs
call themselves. What is wrong within one graph is found when it is read (`gateway.bridge.graphs.graph`)."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from gateway.bridge.graphs.graph import Graph, GraphStep
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.keys import Config
from gateway.config.problems import Finding, suggestion
from gateway.config.routes import RouteConfig
from gateway.core.globs import wildcards
from gateway.core.operations import Operation, split_companion

DEEPEST = 8
"""Graphs within graphs: each may call several, each of which calls several."""


def graph_findings(config: Config) -> list[Finding]:
    """All findings of these checks."""
    return [*_hidden_routes(config), *_unrouted(config), *_nested(config.models)]


def _hidden_routes(config: Config) -> Iterator[Finding]:
    """Routes for a model that is a graph."""
    for at, route in enumerate(config.routes):
        if route.match.model in config.models and not route.passthrough:
            yield Finding(
                ("routes", at, "match", "model"),
                f"{VALUE} is a model of `models`, which comes before all routes, so no request takes this route",
            )


def _calls(graph: Graph) -> Iterator[tuple[Location, GraphStep, str]]:
    """Each model that a graph may call: its place in the file, the step and the name."""
    for step in graph.steps.values():
        above: Location = ("models", graph.name, "steps", step.name)
        yield (*above, "model"), step, step.model
        for at, model in enumerate(step.fallback):
            yield (*above, "fallback", at), step, model


def _graph_called(model: str, models: Mapping[str, Graph]) -> str | None:
    """The graph that a request for `model` is answered by: the one of this name, or the one whose derivative it is."""
    if model in models:
        return model
    base = split_companion(model)
    return base[0] if base is not None and base[0] in models else None


def _unrouted(config: Config) -> Iterator[Finding]:
    """Models of steps that no route leads to. Requests of steps come from no listener and in no client's protocol."""
    routes = [each for each in config.routes if not each.passthrough and _takes_steps(each)]
    for graph in config.models.values():
        for location, step, model in _calls(graph):
            version = step.version if model == step.model else ""
            if _graph_called(model, config.models) is None and not any(_leads(each, model, version) for each in routes):
                known = {each.match.model for each in config.routes if each.match.model}
                names = {*config.models, *(each for each in known if not wildcards(each))} - {graph.name, model}
                text = f"no route leads to {VALUE} of a step, which comes from no listener and in no client's protocol"
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
    """A graph that calls itself, perhaps through others; else one with more than DEEPEST graphs within one another."""
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
            yield Finding(("models", name), f"{height} models within one another; at most {DEEPEST}", at_key=True)
            return


def _graphs_called(graph: Graph, models: Mapping[str, Graph]) -> dict[str, Location]:
    """The graphs that a graph calls, each with the place of a call."""
    calls = ((_graph_called(model, models), location) for location, _, model in _calls(graph))
    return {name: location for name, location in calls if name is not None}


def _circle(circling: Mapping[str, Mapping[str, Location]]) -> Finding:
    """The finding for a circle among graphs of which each calls another one."""
    path = [next(iter(circling))]
    while True:
        name, location = next((name, at) for name, at in circling[path[-1]].items() if name in circling)
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            return Finding(location, f"the model calls itself: {circle}")
        path.append(name)
