"""A model that the gateway makes of others: steps, each of which calls a model, and values between them.

A graph is made of the keys of `models:` in the configuration (GraphKeys). It is checked as far as it can be without
asking any model: names, circles, what nobody needs, and what may be missing because a step is not taken.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from itertools import chain
from typing import Any, TypeAlias

from gateway.bridge.graphs.expressions import (
    ConstantTensor,
    Expression,
    First,
    Names,
    Reference,
    Transformed,
    read,
    references,
)
from gateway.bridge.graphs.transforms import GraphError
from gateway.bridge.settings import Derivatives
from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen
from gateway.core.spec_text import read_spec
from gateway.core.types import TensorSpec

MOST_STEPS = 1000
"""Steps of a graph."""

STEPS_AT_ONCE = 16
"""Steps of one request that are in flight at once, if a graph does not say."""


Scalar: TypeAlias = bool | int | float | str


@frozen
class WhenKeys:
    """When a step is taken: if a parameter of the request, or a value, compares so. One that there is not is equal to
    nothing, and neither above nor below anything."""

    parameter: str | None = None
    """The name of a parameter of the request."""
    value: object = None
    """A value of one element, such as `$detector.score`, in place of `parameter`."""
    equals: Scalar | None = None
    """The step is taken if it is equal to this."""
    differs: Scalar | None = None
    """The step is taken if it is not equal to this, or if there is none."""
    above: float | None = None
    """The step is taken if it is a number above this."""
    below: float | None = None
    """The step is taken if it is a number below this."""


@frozen
class StepKeys:
    """A call of a model."""

    model: str
    """The model, as a client would name it: it takes the route that requests from anywhere take."""
    version: str = ""
    """The model's version; without it the request names none."""
    inputs: Mapping[str, object] = field(default_factory=dict)
    """`{INPUT: VALUE}`: the value of each of the model's inputs, such as `$theta`, `$forward.temperature`, a constant
    or a transform."""
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    """Parameters of the call."""
    when: WhenKeys | None = None
    """The step is taken only if this holds. It is never taken if one of its inputs is of a step that is not taken."""
    fallback: tuple[str, ...] = ()
    """Models that are asked in order if the one before is not found, not ready, overloaded or cannot be reached; after
    a call that may have run, because it failed or was not answered, only if its route's backends are `safe`."""


@frozen
class GraphKeys:
    """A model that the gateway makes of others."""

    outputs: Mapping[str, object]
    """`{OUTPUT: VALUE}`: the value of each output, in order."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """`{INPUT: DATATYPE SHAPE}`, in order, such as `{theta: "FP64 [-1, 2]"}`. A first -1 before others is the batch."""
    steps: Mapping[str, StepKeys | object] = field(default_factory=dict)
    """The steps, by name, in any order: each a call of a model, or a value. Those that do not wait for each other run
    at once."""
    description: str = ""
    """What clients that ask for metadata are told."""
    steps_at_once: int = STEPS_AT_ONCE
    """Steps of one request that are in flight at once."""
    derivatives: Derivatives | None = None
    """Finite differences for the derivatives that the chain rule does not give: for ApplyHessian of the graph's
    gradients, if it has these, else of its values. Without it they are not offered."""


@frozen
class Condition:
    """The condition under which a step is taken: `parameter` of the request, or `value` (one element), compared with
    `to`."""

    parameter: str
    value: Expression | None
    comparison: str
    to: Scalar

    def holds(self, found: object) -> bool:
        """Whether it holds for the parameter or the value that was found, None if there is none."""
        return _COMPARISONS[self.comparison](found, self.to)


def _are_equal(found: object, to: object) -> bool:
    return (type(found) is type(to) or _are_numbers(found, to)) and found == to


def _are_numbers(*values: object) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "equals": _are_equal,
    "differs": lambda found, to: not _are_equal(found, to),
    "above": lambda found, to: _are_numbers(found, to) and found > to,
    "below": lambda found, to: _are_numbers(found, to) and found < to,
}


@frozen
class GraphStep:
    """One call of a model in a graph, routed like a client's request.

    - `model`, `version`: as a client would name it.
    - `inputs`: the value of each of the model's inputs, by name.
    - `parameters`: those of the call.
    - `when`: the step is taken if this holds and all of its inputs exist; None: if they exist.
    - `fallback`: models that are asked in order if the one before cannot answer.
    """

    name: str
    model: str
    version: str
    inputs: Mapping[str, Expression]
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    when: Condition | None = None
    fallback: tuple[str, ...] = ()
    needs: tuple[Reference, ...] = field(init=False)
    """The tensors that its inputs and its condition are made of, each once."""
    waits_for: frozenset[str] = field(init=False)
    """The steps that these are outputs of."""
    has_transforms: bool = field(init=False)
    has_constants: bool = field(init=False)

    def __post_init__(self) -> None:
        values = tuple(self.inputs.values())
        condition = () if self.when is None or self.when.value is None else references(self.when.value)
        needs = tuple(dict.fromkeys(chain(chain.from_iterable(map(references, values)), condition)))
        for name, value in {
            "needs": needs,
            "waits_for": frozenset(each.step for each in needs if each.step),
            "has_transforms": any(isinstance(each, Transformed) for each in values),
            "has_constants": any(isinstance(each, ConstantTensor) for each in values),
        }.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        """As errors call it."""
        return f"step {self.name!r} (model {self.model!r})"


@frozen
class Graph:
    """A model that calls other models: its steps, each of which calls a model, and the values between the steps.
    `steps` are in an order in which each comes after those that it needs. `keys`: what it was made of."""

    name: str
    keys: GraphKeys
    inputs: tuple[TensorSpec, ...]
    steps: Mapping[str, GraphStep]
    outputs: Mapping[str, Expression]
    description: str = ""
    steps_at_once: int = STEPS_AT_ONCE

    def needed(self, expressions: Iterable[Expression]) -> dict[str, GraphStep]:
        """The steps without which these values are not known, in the order of `steps`."""
        wanted = {each.step for expression in expressions for each in references(expression)}
        for name, step in reversed(list(self.steps.items())):
            if name in wanted:
                wanted.update(each.step for each in step.needs)
        return {name: step for name, step in self.steps.items() if name in wanted}

    def waits_for(self, steps: Iterable[str]) -> dict[str, frozenset[str]]:
        """The steps that each of these needs, by name."""
        return {name: self.steps[name].waits_for for name in steps}


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def make_graph(name: str, keys: GraphKeys) -> Graph:
    """The graph `name` with these keys.

    Raises:
        GraphError: something is wrong; its `place` leads there.
    """
    inputs = tuple(_spec(each, text) for each, text in keys.inputs.items())
    if len(keys.steps) > MOST_STEPS:
        raise GraphError(f"{len(keys.steps)} steps; a graph has at most {MOST_STEPS}", "steps")
    if not keys.outputs:
        raise GraphError("a model has one output at least", "outputs")
    _check_names(inputs, keys.steps)
    calls = {each: value for each, value in keys.steps.items() if isinstance(value, StepKeys)}
    values = {each: value for each, value in keys.steps.items() if each not in calls}
    names = Names((each.name for each in inputs), calls, values)
    steps = _in_order({each: _step(each, value, names) for each, value in calls.items()})
    outputs = {each: read(value, names, ("outputs", each)) for each, value in keys.outputs.items()}
    graph = Graph(name, keys, inputs, steps, outputs, keys.description, keys.steps_at_once)
    _check_used(graph, keys.steps, names.used_values)
    _check_exist(graph)
    return graph


def _spec(name: str, text: object) -> TensorSpec:
    try:
        return read_spec(name, text)
    except DecodeError as error:
        raise GraphError(str(error), "inputs", name) from error


def _check_names(inputs: Iterable[TensorSpec], steps: Mapping[str, object]) -> None:
    taken = {each.name for each in inputs}
    for name in steps:
        if not _NAME.fullmatch(name):
            raise GraphError(
                f"{name!r} is no name of a step: letters, digits, _ and -, and no digit first", "steps", name
            )
        if name in taken:
            raise GraphError(f"{name!r} is already an input of the graph", "steps", name)


def _step(name: str, keys: StepKeys, names: Names) -> GraphStep:
    place = ("steps", name)
    inputs = {each: read(value, names, (*place, "inputs", each)) for each, value in keys.inputs.items()}
    when = None if keys.when is None else _condition(keys.when, names, (*place, "when"))
    return GraphStep(name, keys.model, keys.version, inputs, keys.parameters, when, keys.fallback)


def _condition(keys: WhenKeys, names: Names, place: tuple[str | int, ...]) -> Condition:
    if (keys.parameter is None) is (keys.value is None):
        raise GraphError("a condition has either `parameter` or `value`", *place)
    compared = [each for each in _COMPARISONS if getattr(keys, each) is not None]
    if len(compared) != 1:
        raise GraphError(f"a condition has one of {', '.join(_COMPARISONS)}", *place)
    value = None if keys.value is None else read(keys.value, names, (*place, "value"))
    return Condition(keys.parameter or "", value, compared[0], getattr(keys, compared[0]))


def _in_order(steps: Mapping[str, GraphStep]) -> dict[str, GraphStep]:
    """The steps, each after those that it needs. Raises GraphError for a circle."""
    waits_for = {name: set(step.waits_for) for name, step in steps.items()}
    waiting: dict[str, list[str]] = {}
    for name, others in waits_for.items():
        for other in others:
            waiting.setdefault(other, []).append(name)
    ready = [name for name, others in waits_for.items() if not others]
    ordered: dict[str, GraphStep] = {}
    for name in ready:  # which grows meanwhile
        ordered[name] = steps[name]
        for other in waiting.get(name, ()):
            waits_for[other].discard(name)
            if not waits_for[other]:
                ready.append(other)
    if len(ordered) < len(steps):
        name = next(each for each in steps if each not in ordered)
        raise GraphError(f"the step needs itself: {_circle(name, waits_for)}", "steps", name)
    return ordered


def _circle(start: str, waits_for: Mapping[str, set[str]]) -> str:
    """A circle of steps that wait for each other, found by going on from `start`."""
    path = [start]
    while (step := min(waits_for[path[-1]])) not in path:
        path.append(step)
    return " -> ".join([*path[path.index(step) :], step])


def _check_used(graph: Graph, steps: Mapping[str, object], used_values: set[str]) -> None:
    needed = graph.needed(graph.outputs.values())
    for name in steps:
        if name not in needed and name not in used_values:
            raise GraphError(f"no output needs the step {name!r}; remove it, or use it", "steps", name)
    used = {
        each.tensor
        for each in chain(
            chain.from_iterable(step.needs for step in needed.values()),
            chain.from_iterable(references(each) for each in graph.outputs.values()),
        )
        if not each.step
    }
    for spec in graph.inputs:
        if spec.name not in used:
            raise GraphError(f"nothing uses the input {spec.name!r}", "inputs", spec.name)


def _check_exist(graph: Graph) -> None:
    """Raise GraphError if an output may be missing: a step that it needs may not be taken."""
    certain = _certain(graph, set())
    choices = [[_certain(graph, {each}) for each in choice] for choice in _choices(graph, certain)]
    for name, value in graph.outputs.items():
        if _exists(value, certain) or any(all(_exists(value, each) for each in choice) for choice in choices):
            continue
        unsure = sorted({each.step for each in references(value)} - certain)
        text = f"step {unsure[0]!r} may not be taken; `first` gives the output of another one then"
        raise GraphError(f"output {name!r} may be missing: {text}", "outputs", name)


def _certain(graph: Graph, taken: set[str]) -> set[str]:
    """The steps that are always taken, if these are."""
    certain = {"", *taken}
    for name, step in graph.steps.items():
        if step.when is None and _has_inputs(step, certain):
            certain.add(name)
    return certain


def _choices(graph: Graph, certain: set[str]) -> Iterator[tuple[str, str]]:
    """Pairs of steps of which always one is taken: if the same tensor or parameter equals a value, or differs from
    it."""
    seen: dict[object, tuple[str, str]] = {}
    for name, step in graph.steps.items():
        when = step.when
        if when is None or when.comparison not in ("equals", "differs") or not _has_inputs(step, certain):
            continue
        if when.value is not None and not isinstance(when.value, Reference):
            continue
        about = when.parameter, when.value, type(when.to), when.to
        comparison, other = seen.setdefault(about, (when.comparison, name))
        if comparison != when.comparison:
            yield other, name


def _has_inputs(step: GraphStep, certain: set[str]) -> bool:
    return all(_exists(each, certain) for each in step.inputs.values())


def _exists(expression: Expression, certain: set[str]) -> bool:
    match expression:
        case Reference():
            return expression.step in certain
        case First():
            return any(_exists(each, certain) for each in expression.arguments)
        case ConstantTensor():
            return True
    return all(_exists(each, certain) for each in expression.arguments)
