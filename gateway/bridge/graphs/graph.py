"""Describes graphs: models that the gateway builds from other models, with steps that call models and values between
the steps.

The keys of `models:` in the configuration (GraphKeys) describe a graph. `make_graph` runs all checks that do not
require queries to models. These checks find unknown names, cycles, unused steps, and values that could be missing
because a step does not run.
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
from gateway.core.models import TensorSpec
from gateway.core.spec_text import read_spec

MOST_STEPS = 1000
"""The maximum number of steps in a graph."""

STEPS_AT_ONCE = 16
"""The default maximum number of steps of one request that run in parallel."""


Scalar: TypeAlias = bool | int | float | str


@frozen
class WhenKeys:
    """The condition of a step, which compares a request parameter or a value. A missing value fails every comparison
    except `differs`."""

    parameter: str | None = None
    """Name of a request parameter."""
    value: object = None
    """A value with one element, such as `$detector.score`, instead of `parameter`."""
    equals: Scalar | None = None
    """The step runs if the parameter or value equals this constant."""
    differs: Scalar | None = None
    """The step runs if the parameter or value differs from this constant, or is missing."""
    above: float | None = None
    """The step runs if the parameter or value is a number above this limit."""
    below: float | None = None
    """The step runs if the parameter or value is a number below this limit."""


@frozen
class StepKeys:
    """A step that calls a model."""

    model: str
    """Name of the model, as clients use it. The call uses only routes without conditions on listeners, protocols and
    paths."""
    version: str = ""
    """Version of the model. By default, the call does not specify a version."""
    inputs: Mapping[str, object] = field(default_factory=dict)
    """`{INPUT: VALUE}`: the value of each model input, such as `$theta`, `$forward.temperature`, a constant or a
    transform."""
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    """Parameters of the call."""
    when: WhenKeys | None = None
    """The step runs only if this condition holds. A step never runs if one of its inputs comes from a step that did not
    run."""
    fallback: tuple[str, ...] = ()
    """Models to call instead, in this order, if the previous model does not exist, is not ready, is overloaded or is
    unreachable. If the previous call might have run (it failed, or received no response), the gateway calls the next
    model only if the route's backends are `safe`."""


@frozen
class GraphKeys:
    """A model that the gateway builds from other models."""

    outputs: Mapping[str, object]
    """`{OUTPUT: VALUE}`: the value of each output, in order."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """`{INPUT: DATATYPE SHAPE}`, in order, such as `{theta: "FP64 [-1, 2]"}`. A first -1 before other dimensions is the
    batch dimension."""
    steps: Mapping[str, StepKeys | object] = field(default_factory=dict)
    """Steps by name, in any order. A step is a model call or a value. Steps that do not depend on each other run in
    parallel."""
    description: str = ""
    """Description of the model in its metadata."""
    steps_at_once: int = STEPS_AT_ONCE
    """Maximum number of steps of one request that run in parallel."""
    derivatives: Derivatives | None = None
    """Finite differences for derivatives that the chain rule cannot compute. For ApplyHessian, the gateway uses
    differences of the graph's gradients if the graph has gradients, otherwise differences of the graph's values. By
    default, these derivatives are not available."""


@frozen
class Condition:
    """The condition of a step, which compares a request `parameter`, or a `value` with one element, to `to`."""

    parameter: str
    value: Expression | None
    comparison: str
    to: Scalar

    def holds(self, found: object) -> bool:
        """Return True if the condition holds for `found`, which is the parameter or value, or None if it is missing."""
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
    """One model call in a graph, routed like a client request.

    - `model`, `version`: The names that a client would use.
    - `inputs`: The value of each model input, by name.
    - `parameters`: The parameters of the call.
    - `when`: The condition, or None. The step runs if the condition holds and all its inputs exist.
    - `fallback`: Models to call, in order, if the previous model cannot respond.
    """

    name: str
    model: str
    version: str
    inputs: Mapping[str, Expression]
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    when: Condition | None = None
    fallback: tuple[str, ...] = ()
    needs: tuple[Reference, ...] = field(init=False)
    """The distinct tensors in the step's inputs and condition."""
    waits_for: frozenset[str] = field(init=False)
    """The steps that return these tensors as outputs."""
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
        """Return the step's name in errors."""
        return f"step {self.name!r} (model {self.model!r})"


@frozen
class Graph:
    """A model that calls other models in steps, with values between the steps.

    In `steps`, each step comes after the steps on which it depends. `keys` is the graph's configuration."""

    name: str
    keys: GraphKeys
    inputs: tuple[TensorSpec, ...]
    steps: Mapping[str, GraphStep]
    outputs: Mapping[str, Expression]
    description: str = ""
    steps_at_once: int = STEPS_AT_ONCE

    def needed(self, expressions: Iterable[Expression]) -> dict[str, GraphStep]:
        """Return the steps that these values depend on, in the order of `steps`."""
        wanted = {each.step for expression in expressions for each in references(expression)}
        for name, step in reversed(list(self.steps.items())):
            if name in wanted:
                wanted.update(each.step for each in step.needs)
        return {name: step for name, step in self.steps.items() if name in wanted}

    def waits_for(self, steps: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the dependencies of each step in `steps`, by step name."""
        return {name: self.steps[name].waits_for for name in steps}


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def make_graph(name: str, keys: GraphKeys) -> Graph:
    """Return the graph `name` that these keys describe.

    Raises:
        GraphError: the configuration is invalid. The error's `place` is the path to the mistake.
    """
    inputs = tuple(_spec(each, text) for each, text in keys.inputs.items())
    if len(keys.steps) > MOST_STEPS:
        raise GraphError(f"{len(keys.steps)} steps; a graph has at most {MOST_STEPS}", "steps")
    if not keys.outputs:
        raise GraphError("expected at least one output", "outputs")
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
        raise GraphError("set exactly one of `parameter` and `value`", *place)
    compared = [each for each in _COMPARISONS if getattr(keys, each) is not None]
    if len(compared) != 1:
        raise GraphError(f"set exactly one of {', '.join(_COMPARISONS)}", *place)
    value = None if keys.value is None else read(keys.value, names, (*place, "value"))
    return Condition(keys.parameter or "", value, compared[0], getattr(keys, compared[0]))


def _in_order(steps: Mapping[str, GraphStep]) -> dict[str, GraphStep]:
    """Sort the steps by dependency: each step comes after the steps on which it depends.

    Raise GraphError for a cycle."""
    waits_for = {name: set(step.waits_for) for name, step in steps.items()}
    waiting: dict[str, list[str]] = {}
    for name, others in waits_for.items():
        for other in others:
            waiting.setdefault(other, []).append(name)
    ready = [name for name, others in waits_for.items() if not others]
    ordered: dict[str, GraphStep] = {}
    for name in ready:  # grows during the loop
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
    """Return a cycle of steps, found by following the dependencies from `start`."""
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
            raise GraphError(f"nothing uses the input {spec.name!r}; remove it", "inputs", spec.name)


def _check_exist(graph: Graph) -> None:
    """Raise GraphError if an output could be missing because it depends on a conditional step."""
    certain = _certain(graph, set())
    choices = [[_certain(graph, {each}) for each in choice] for choice in _choices(graph, certain)]
    for name, value in graph.outputs.items():
        if _exists(value, certain) or any(all(_exists(value, each) for each in choice) for choice in choices):
            continue
        unsure = sorted({each.step for each in references(value)} - certain)
        text = f"step {unsure[0]!r} can be skipped; use `first` to take the output of another step"
        raise GraphError(f"output {name!r} can be missing: {text}", "outputs", name)


def _certain(graph: Graph, taken: set[str]) -> set[str]:
    """Return the steps that always run if the steps in `taken` run."""
    certain = {"", *taken}
    for name, step in graph.steps.items():
        if step.when is None and _has_inputs(step, certain):
            certain.add(name)
    return certain


def _choices(graph: Graph, certain: set[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of steps of which exactly one always runs: the first if a tensor or parameter equals a value, the
    second if it differs."""
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
