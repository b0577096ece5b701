"""A model that the gateway makes of others: steps, each of which calls a model, and values between them.

A graph is read from `models:` of the configuration and is checked as far as it can be without asking any model: names,
circles, what nobody needs, and what may be missing because a step is not taken.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain
from typing import Any, TypeVar

from gateway.bridge.graphs.expressions import Constant, Expression, First, Names, Reference, read, references
from gateway.bridge.graphs.transforms import GraphError
from gateway.core.datatypes import DATATYPES, Datatype, meant_by
from gateway.core.frozen import field, frozen
from gateway.core.types import MAX_RANK, TensorSpec

MOST_STEPS = 1000
"""Steps of a graph."""

STEPS_AT_ONCE = 16
"""Steps of one request that are in flight at once, if a graph does not say."""

T = TypeVar("T")


@frozen
class Condition:
    """What must hold for a step to be taken: `parameter` of the request, or `value` (one element), compared with `to`.
    A parameter or value that there is not is equal to nothing, and neither above nor below anything."""

    parameter: str
    value: Expression | None
    comparison: str
    to: bool | int | float | str

    def holds(self, found: object) -> bool:
        """Whether it holds for what the parameter or the value is; None if there is none."""
        return _COMPARISONS[self.comparison](found, self.to)


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "is": lambda found, to: (type(found) is type(to) and found == to) or (_are_numbers(found, to) and found == to),
    "is_not": lambda found, to: not _COMPARISONS["is"](found, to),
    "above": lambda found, to: _are_numbers(found, to) and found > to,
    "below": lambda found, to: _are_numbers(found, to) and found < to,
}


def _are_numbers(*values: object) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)


@frozen
class Step:
    """One call of a model.

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
    parameters: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    when: Condition | None = None
    fallback: tuple[str, ...] = ()

    @property
    def needs(self) -> Iterator[Reference]:
        """The tensors that its inputs and its condition are made of."""
        for each in self.inputs.values():
            yield from references(each)
        if self.when is not None and self.when.value is not None:
            yield from references(self.when.value)

    @property
    def has_constants(self) -> bool:
        """Whether an input is a constant, which gets the datatype and the rows that the model's signature tells."""
        return any(isinstance(each, Constant) for each in self.inputs.values())


@frozen
class Graph:
    """The whole. `steps` are in an order in which each comes after those that it needs."""

    name: str
    inputs: tuple[TensorSpec, ...]
    steps: Mapping[str, Step]
    outputs: Mapping[str, Expression]
    description: str = ""
    steps_at_once: int = STEPS_AT_ONCE

    def needed(self, expressions: Iterable[Expression]) -> dict[str, Step]:
        """The steps without which these values are not known, in the order of `steps`."""
        wanted = {each.step for expression in expressions for each in references(expression)}
        for name, step in reversed(list(self.steps.items())):
            if name in wanted:
                wanted.update(each.step for each in step.needs)
        return {name: step for name, step in self.steps.items() if name in wanted}


_KEYS = ("inputs", "steps", "outputs", "description", "steps_at_once")
_STEP_KEYS = ("model", "version", "inputs", "parameters", "when", "fallback")
_WHEN_KEYS = ("parameter", "value", *_COMPARISONS)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def read_graph(name: str, data: object) -> Graph:
    """The graph `name` as the configuration has it.

    Raises:
        GraphError: it is none; `place` leads to what is wrong.
    """
    keys = _keys(data, _KEYS, ())
    inputs = tuple(
        read_spec(each, text, ("inputs", each)) for each, text in _map(keys.get("inputs", {}), ("inputs",)).items()
    )
    steps = _map(keys.get("steps", {}), ("steps",))
    if len(steps) > MOST_STEPS:
        raise GraphError(f"{len(steps)} steps; a graph has at most {MOST_STEPS}", "steps")
    calls = {each: value for each, value in steps.items() if isinstance(value, dict) and "model" in value}
    _check_names(inputs, steps)
    names = Names(
        (each.name for each in inputs), iter(calls), {each: steps[each] for each in steps if each not in calls}
    )
    read_steps = {each: _step(each, value, names) for each, value in calls.items()}
    outputs = _map(keys.get("outputs", {}), ("outputs",))
    if not outputs:
        raise GraphError("a model has one output at least", "outputs")
    values = {each: read(value, names, ("outputs", each)) for each, value in outputs.items()}
    graph = Graph(
        name,
        inputs,
        _in_order(read_steps),
        values,
        _text(keys.get("description", ""), ("description",)),
        _count(keys.get("steps_at_once", STEPS_AT_ONCE), ("steps_at_once",)),
    )
    _check_used(graph, steps, names.used_values)
    _check_exist(graph)
    return graph


_SPEC = re.compile(r"\s*([A-Za-z0-9]+)\s*\[\s*((?:-?\d+\s*(?:,\s*-?\d+\s*)*)?)\]\s*")


def read_spec(name: str, text: object, place: tuple[str | int, ...]) -> TensorSpec:
    """The tensor that `FP64 [-1, 2]` stands for. Raises GraphError if `text` is not of this form."""
    found = _SPEC.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise GraphError(f"expected a datatype and a shape, such as FP64 [-1, 2], got {text!r}", *place)
    datatype = DATATYPES.get(found[1])
    if datatype is None:
        meant = meant_by(found[1])
        hint = f"; did you mean {meant.value}?" if meant else f", expected one of {', '.join(Datatype)}"
        raise GraphError(f"no datatype {found[1]!r}{hint}", *place)
    shape = tuple(int(each) for each in found[2].split(",") if each.strip())
    if len(shape) > MAX_RANK or any(not -1 <= each < 2**63 for each in shape):
        raise GraphError(f"at most {MAX_RANK} dimensions, each -1 (any size) or more, got {text!r}", *place)
    return TensorSpec(name, datatype, shape)


def _keys(data: object, known: Iterable[str], place: tuple[str | int, ...]) -> Mapping[str, object]:
    found = _map(data, place)
    for key in found:
        if key not in known:
            close = get_close_matches(key, list(known), 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; expected {', '.join(known)}"
            raise GraphError(f"no key {key!r}{hint}", *place, key)
    return found


def _map(data: object, place: tuple[str | int, ...]) -> Mapping[str, object]:
    if not isinstance(data, dict) or not all(isinstance(each, str) for each in data):
        raise GraphError(f"expected a map, got {data!r}", *place)
    return data


def _text(data: object, place: tuple[str | int, ...]) -> str:
    if not isinstance(data, str):
        raise GraphError(f"expected a text, got {data!r}", *place)
    return data


def _count(data: object, place: tuple[str | int, ...]) -> int:
    if type(data) is not int or data < 1:
        raise GraphError(f"expected 1 or more, got {data!r}", *place)
    return data


def _check_names(inputs: Iterable[TensorSpec], steps: Mapping[str, object]) -> None:
    taken = {each.name for each in inputs}
    for name in steps:
        if not _NAME.fullmatch(name):
            raise GraphError(
                f"{name!r} is no name of a step: letters, digits, _ and -, and no digit first", "steps", name
            )
        if name in taken:
            raise GraphError(f"{name!r} is already an input of the graph", "steps", name)


def _step(name: str, data: object, names: Names) -> Step:
    place = ("steps", name)
    keys = _keys(data, _STEP_KEYS, place)
    inputs = {
        each: read(value, names, (*place, "inputs", each))
        for each, value in _map(keys.get("inputs", {}), (*place, "inputs")).items()
    }
    parameters = _map(keys.get("parameters", {}), (*place, "parameters"))
    for each, value in parameters.items():
        if not isinstance(value, bool | int | float | str):
            raise GraphError(f"expected a number, a text, true or false, got {value!r}", *place, "parameters", each)
    fallback = keys.get("fallback", [])
    listed = [fallback] if isinstance(fallback, str) else fallback
    if not isinstance(listed, list) or not all(isinstance(each, str) and each for each in listed):
        raise GraphError(f"expected names of models, got {fallback!r}", *place, "fallback")
    return Step(
        name,
        _text(keys["model"], (*place, "model")),
        _text(keys.get("version", ""), (*place, "version")),
        inputs,
        parameters,  # type: ignore[arg-type]
        _condition(keys["when"], names, (*place, "when")) if "when" in keys else None,
        tuple(listed),
    )


def _condition(data: object, names: Names, place: tuple[str | int, ...]) -> Condition:
    keys = _keys(data, _WHEN_KEYS, place)
    if ("parameter" in keys) is ("value" in keys):
        raise GraphError("a condition has either `parameter` or `value`", *place)
    compared = [each for each in _COMPARISONS if each in keys]
    if len(compared) != 1:
        raise GraphError(f"a condition has one of {', '.join(_COMPARISONS)}", *place)
    to = keys[compared[0]]
    if not isinstance(to, bool | int | float | str):
        raise GraphError(f"expected a number, a text, true or false, got {to!r}", *place, compared[0])
    if compared[0] in ("above", "below") and not _are_numbers(to):
        raise GraphError(f"expected a number, got {to!r}", *place, compared[0])
    value = read(keys["value"], names, (*place, "value")) if "value" in keys else None
    return Condition(_text(keys.get("parameter", ""), (*place, "parameter")), value, compared[0], to)


def _in_order(steps: Mapping[str, Step]) -> dict[str, Step]:
    """The steps, each after those that it needs. Raises GraphError for a circle."""
    waits_for = {name: {each.step for each in step.needs if each.step} for name, step in steps.items()}
    waiting: dict[str, list[str]] = {}
    for name, others in waits_for.items():
        for other in others:
            waiting.setdefault(other, []).append(name)
    ready = [name for name, others in waits_for.items() if not others]
    ordered: dict[str, Step] = {}
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
    certain: set[str] = {""}
    for name, step in graph.steps.items():
        if step.when is None and all(_exists(each, certain) for each in step.inputs.values()):
            certain.add(name)
    for name, value in graph.outputs.items():
        if not _exists(value, certain):
            unsure = sorted({each.step for each in references(value)} - certain)
            text = f"step {unsure[0]!r} may not be taken; `first` gives the output of another one then"
            raise GraphError(f"output {name!r} may be missing: {text}", "outputs", name)


def _exists(expression: Expression, certain: set[str]) -> bool:
    match expression:
        case Reference():
            return expression.step in certain
        case First():
            return any(_exists(each, certain) for each in expression.arguments)
        case Constant():
            return True
    return all(_exists(each, certain) for each in expression.arguments)
