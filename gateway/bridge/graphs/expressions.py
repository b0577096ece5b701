"""The values in a graph: tensors of the request and the steps, constants, and transforms of tensors.

| YAML | value |
|---|---|
| `$theta` | the input `theta` of the graph, a value of `steps`, or the only output of the step `theta` |
| `$forward.temperature` | the output `temperature` of the step `forward` |
| `[0.1, 0.2]`, `3`, `"text"` | a constant; `"$$x"` is the text `$x` |
| `{sum: [$a.y, $b.y], weights: [1, 2]}` | a transform |
| `{first: [$a.y, $b.y]}` | the first of these values that exists (steps that do not run have no outputs) |
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from difflib import get_close_matches
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from gateway.bridge.graphs.transforms import TRANSFORMS, GraphError, Transform
from gateway.core.frozen import frozen
from gateway.core.tensors import MAX_RANK

DEEPEST = 32
"""The maximum nesting depth of transforms, including transforms in named values."""
MOST_VALUES = 1000
"""The maximum number of values in one value, after all names are expanded. The limit is necessary because a name can
refer to several values, and these values to other names.
"""


@frozen
class Reference:
    """A reference to a tensor of the request (if `step` is empty) or to an output of a step (to its only output if
    `tensor` is empty)."""

    step: str
    tensor: str

    def __str__(self) -> str:
        return f"${'.'.join(each for each in (self.step, self.tensor) if each)}"


@frozen
class ConstantTensor:
    """A tensor in the configuration. Its numbers get the datatype of the step input or argument that the constant
    provides. If the constant has one dimension less than this input or argument, it applies to every row of the
    batch."""

    array: "np.ndarray[Any, Any]"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConstantTensor):
            return NotImplemented
        one, another = self.array, other.array
        return bool(one.dtype == another.dtype) and one.shape == another.shape and bool(np.array_equal(one, another))

    def __str__(self) -> str:
        return f"constant {list(self.array.shape)}"


@frozen
class Transformed:
    """A transform of other values.

    `name` is the transform's name in YAML. `options` contains its options, as text. `place` is the path from the model
    to the transform. `parts` contains the distinct tensors in the transform."""

    name: str
    transform: Transform
    arguments: "tuple[Expression, ...]"
    options: str = ""
    place: tuple[str | int, ...] = ()
    parts: tuple[Reference, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set_parts(self)

    def __str__(self) -> str:
        options = f"; {self.options}" if self.options else ""
        return f"{self.name}({', '.join(map(str, self.arguments))}{options})"


@frozen
class First:
    """The first existing value in a list. For `place` and `parts`, see Transformed."""

    arguments: "tuple[Expression, ...]"
    place: tuple[str | int, ...] = ()
    parts: tuple[Reference, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set_parts(self)

    def __str__(self) -> str:
        return f"first({', '.join(map(str, self.arguments))})"


Expression: TypeAlias = Reference | ConstantTensor | Transformed | First


def _set_parts(value: Transformed | First) -> None:
    parts = dict.fromkeys(chain.from_iterable(map(references, value.arguments)))
    object.__setattr__(value, "parts", tuple(parts))


def references(expression: Expression) -> tuple[Reference, ...]:
    """Return the distinct tensors in a value."""
    match expression:
        case Reference():
            return (expression,)
        case ConstantTensor():
            return ()
    return expression.parts


class Names:
    """The names that expressions in one graph can use: `inputs`, `steps` that call a model, and `values` (YAML)."""

    def __init__(self, inputs: Iterable[str], steps: Iterable[str], values: Mapping[str, object]) -> None:
        self._inputs = frozenset(inputs)
        self._steps = frozenset(steps)
        self._values = values
        self._read: dict[str, Expression] = {}
        self._extents: dict[int, tuple[int, int]] = {}
        """For each transform, by identity, its depth and the number of values in it."""
        self._reading: list[str] = []
        self.used_values: set[str] = set()

    def value(self, name: str, depth: int) -> Expression:
        """Return the value named `name` in `steps`, at nesting depth `depth`. Raise GraphError if the value depends on
        itself."""
        if name not in self._read:
            if name in self._reading:
                circle = " -> ".join([*self._reading[self._reading.index(name) :], name])
                raise GraphError(f"the value needs itself: {circle}", "steps", name)
            self._reading.append(name)
            self._read[name] = read(self._values[name], self, ("steps", name), depth)
            self._reading.pop()
        return self._read[name]

    def check_extent(self, value: Transformed | First) -> None:
        """Raise GraphError if `value` contains too many values. Its arguments must already be checked."""
        extents = [self._extents.get(id(each), (0, 1)) for each in value.arguments]
        depth, values = 1 + max(each for each, _ in extents), 1 + sum(each for _, each in extents)
        if depth > DEEPEST:
            raise GraphError(f"values are nested more than {DEEPEST} levels deep; use fewer levels", *value.place)
        if values > MOST_VALUES:
            raise GraphError(f"{values} values in one, with those behind names; at most {MOST_VALUES}", *value.place)
        self._extents[id(value)] = depth, values

    def reference(self, text: str, place: tuple[str | int, ...], depth: int) -> Expression:
        """Return the value that `$text` refers to. Raise GraphError for an unknown name."""
        step, _, tensor = text.partition(".")
        if text in self._inputs:
            return Reference("", text)
        if step in self._steps:
            return Reference(step, tensor)
        if step in self._values and not tensor:
            self.used_values.add(step)
            return self.value(step, depth)
        if step in self._values:
            raise GraphError(f"'${step}' is one tensor and has no {tensor!r}; remove that", *place)
        known = sorted(self._inputs | self._steps | self._values.keys())
        close = get_close_matches(step, known, 1)
        hint = f"; did you mean '${close[0]}'?" if close else f"; expected one of {', '.join(known)}"
        raise GraphError(f"unknown input or step {step!r}{hint}", *place)


def read(data: object, names: Names, place: tuple[str | int, ...], depth: int = 0) -> Expression:
    """Parse `data`, which is at `place` in the YAML, and return the value.

    Raises:
        GraphError: `data` is not a valid value. The error's `place` is the path to the mistake.
    """
    if depth > DEEPEST:
        raise GraphError(f"values are nested more than {DEEPEST} levels deep; use fewer levels", *place)
    if isinstance(data, str) and data.startswith("$") and not data.startswith("$$"):
        return names.reference(data[1:], place, depth)
    if isinstance(data, dict):
        value = _transformed(data, names, place, depth)
        names.check_extent(value)
        return value
    return ConstantTensor(_array(data, place))


def _transformed(
    data: Mapping[str, object], names: Names, place: tuple[str | int, ...], depth: int
) -> Transformed | First:
    known = (*TRANSFORMS, "first")
    name = next(iter(data), "")
    if name not in known:
        close = get_close_matches(str(name), known, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise GraphError(f"no transform {name!r}{hint}; the first key is one of {', '.join(known)}", *place)
    given = data[name]
    is_list = isinstance(given, list) and (not given or any(isinstance(each, dict | str) for each in given))
    if is_list:
        arguments = tuple(
            read(each, names, (*place, name, at), depth + 1) for at, each in enumerate(_some(given, (*place, name)))
        )
    else:
        arguments = (read(given, names, (*place, name), depth + 1),)
    options = {key: value for key, value in data.items() if key != name}
    if name == "first":
        if options:
            raise GraphError(
                f"remove the option; 'first' has no option {next(iter(options))!r}", *place, next(iter(options))
            )
        return First(arguments, place)
    try:
        transform = TRANSFORMS[name](options)
    except GraphError as error:
        raise GraphError(f"{name!r} {error.message}", *place, *error.place) from error
    if transform.takes is not None and (is_list or len(arguments) != transform.takes):
        raise GraphError(f"{name!r} takes one value here, not a list", *place, name)
    shown = ", ".join(f"{key} {value}" for key, value in options.items())
    return Transformed(name, transform, arguments, shown, place)


def _some(given: object, place: tuple[str | int, ...]) -> list[object]:
    if not isinstance(given, list) or not given:
        raise GraphError("expected a list of values with one at least", *place)
    return given


def _array(data: object, place: tuple[str | int, ...]) -> "np.ndarray[Any, Any]":
    flat = list(_leaves(data, place))
    kinds = {bool if isinstance(each, bool) else str if isinstance(each, str) else float for each in flat}
    if len(kinds) > 1:
        raise GraphError("expected only numbers, only texts, or only true and false in a constant", *place)
    try:
        if kinds == {str}:
            texts = np.array(data, object)
            array = np.empty(texts.shape, object)
            array.reshape(-1)[:] = [_text(each).encode() for each in texts.reshape(-1)]
        else:
            array = np.array(data)
    except ValueError as error:
        raise GraphError(
            "the lists of a constant have different lengths; write lists of the same length", *place
        ) from error
    if array.ndim > MAX_RANK:
        raise GraphError(f"expected at most {MAX_RANK} dimensions", *place)
    if array.dtype == object and kinds != {str}:
        raise GraphError("an integer is outside the range of INT64 and UINT64; write it as a float", *place)
    return array


def _text(written: object) -> str:
    """Unescape the text of a constant: `$$x` becomes `$x`."""
    text = str(written)
    return text[1:] if text.startswith("$$") else text


def _leaves(data: object, place: tuple[str | int, ...]) -> Iterator[object]:
    if isinstance(data, list):
        for at, each in enumerate(data):
            yield from _leaves(each, (*place, at))
    elif isinstance(data, str) and data.startswith("$") and not data.startswith("$$"):
        raise GraphError(f"{data!r} cannot stand in a constant; `concat` and `stack` join tensors", *place)
    elif isinstance(data, bool | int | float | str):
        yield data
    else:
        raise GraphError(f"expected a number, a text, a list or a map, got {data!r}", *place)
