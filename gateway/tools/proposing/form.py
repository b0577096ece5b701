"""Proposes a form from example requests and responses: determines tensors, rows, constant values and variable values.
`gateway init --example` calls this module, and `text` writes the result as YAML.

| seen | proposed |
|---|---|
| arrays of numbers, strings or booleans | a tensor, `$x` |
| a list of objects | rows, `[{a: $a, b: $b}, ...]` |
| a list of equally long lists, whose columns have different types | rows, `[[$a, $b], ...]` |
| a shape and a flat list | `$x|shape`, `$x|flat` |
| single values, if nothing else is the input or the output | a tensor of one element, `$x|scalar` or `$x|text` |
| single values as inputs and no rows in outputs, or a flat list as input and a single value as output | `batch: each` |
| single values in addition to tensors | parameters in requests, `$_` in responses; constants if always equal |
| `id`, `model`, `version`, `index` and similar | `$id`, `$model`, `$version`, `$index` |
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain, count
from math import prod
from typing import Any, TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen

Place: TypeAlias = tuple[str | int, ...]
Template: TypeAlias = Any
Shape: TypeAlias = tuple[int, ...]

SCALARS = (str, int, float, bool)

_IDS = frozenset({"id", "request_id", "requestid", "requestId", "req_id", "inference_id", "uuid", "puid"})
_MODELS = frozenset({"model", "model_name", "modelName", "model_id", "modelId"})
_VERSIONS = frozenset({"version", "model_version", "modelVersion", "modelVersionId"})
_INDEXES = frozenset({"index", "idx", "i"})
_PARAMETERS = frozenset({"parameters", "params"})
_COLUMN_NAMES = frozenset({"names", "columns", "feature_names", "column_names"})
_KINDS = frozenset({"object", "type", "kind"})
_MAIN = frozenset(
    {
        "input", "inputs", "text", "texts", "prompt", "query", "question", "sentence", "content", "features", "data",
        "x", "image", "instances", "prediction", "predictions", "output", "outputs", "result", "results", "label",
        "score", "answer", "y", "embedding", "embeddings",
    }
)  # fmt: skip
"""Keys whose value is an input if a request contains several single values instead of arrays. If a request has none of
these keys, all its single values are inputs."""
_ASIDE = frozenset(
    {
        "status", "message", "success", "ok", "error", "code", "time", "took", "took_ms", "latency", "latency_ms",
        "duration", "duration_ms", "elapsed", "elapsed_ms", "predict_time", "timestamp", "created", "logs", "log",
        "metrics", "usage", "meta", "metadata", "object", "type", "kind", "version", "finish_reason",
    }
)  # fmt: skip
"""Response keys whose single values are information about the call, not outputs."""


class NoProposalError(ValueError):
    """The examples do not allow a proposal (the message states the position and the reason)."""


class IrregularArrayError(ValueError):
    """The arrays cannot be one tensor (the message gives the reason)."""


@frozen
class SeenArray:
    """The arrays at one position: their datatype, and the shape in each example."""

    datatype: Datatype
    shapes: tuple[Shape, ...]

    @property
    def shape(self) -> Shape:
        """The common shape, with -1 where the shapes differ."""
        return tuple(sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*self.shapes, strict=True))


@frozen
class Example:
    """The decoded bodies of one request and its response."""

    request: Any
    reply: Any


@frozen
class ProposedForm:
    """A form that matches the examples.

    - `tensors`: The datatype and shape of each tensor, by name.
    - `takes_one_row`: The gateway must call the server once for each row (`batch: each`).
    - `notes`: Comments for the user, by position in the templates, such as `("request", "features")`.
    """

    request: Template
    response: Template
    tensors: Mapping[str, tuple[Datatype, Shape]]
    takes_one_row: bool = False
    notes: Mapping[Place, str] = field(default_factory=dict)


def propose(examples: Sequence[Example]) -> ProposedForm:
    """Return a form for the examples.

    Raises:
        NoProposalError: an array is ragged or has mixed types, the examples differ in structure, or a body does not
            contain a tensor.
    """
    taken: set[str] = set()
    request = _Body("request", [each.request for each in examples], taken)
    response = _Body("response", [each.reply for each in examples], taken)
    found, varying = (*request.found, *response.found), _varying(request.found, response.found)
    takes_one_row = _takes_one_row(request.found, response.found)
    tensors = {
        each.name: (each.seen.datatype, each.shape_of_rows if takes_one_row else each.shape(each.name in varying))
        for each in found
    }
    notes = {**request.notes, **response.notes}
    return ProposedForm(request.template, response.template, tensors, takes_one_row, notes)


@frozen
class _Found:
    """A tensor in a body: the arrays at one position in all examples, inside `rows` nested lists of rows. `counts`
    contains the length of the outermost list in each example. `is_single` is True if the tensor always has one
    element."""

    name: str
    seen: SeenArray
    rows: int = 0
    counts: tuple[int, ...] = ()
    is_single: bool = False
    is_list_or_single: bool = False

    def shape(self, varies: bool) -> Shape:
        """Return the proposed shape. `varies` is True if the first dimension counts rows."""
        whole = (*(-1 for _ in range(self.rows)), *self.seen.shape)
        return (-1, *whole[1:]) if varies and whole else whole

    @property
    def shape_of_rows(self) -> Shape:
        """The proposed shape of several rows, if this tensor is one row."""
        return (-1,) if self.is_single else (-1, *self.shape(False))

    @property
    def is_one_row(self) -> bool:
        """True if the tensor is a single value or a flat list, which can be one row."""
        return self.is_single or (not self.rows and not self.is_list_or_single and len(self.seen.shape) == 1)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The first dimension in each example; empty for a single value."""
        if self.is_single:
            return ()
        return self.counts if self.rows else tuple(shape[0] for shape in self.seen.shapes if shape)


def _varying(inputs: Sequence[_Found], outputs: Sequence[_Found]) -> set[str]:
    """Return the names of the tensors whose first dimension counts rows. In all examples, this dimension equals the
    first dimension of a tensor in the other direction."""
    of_inputs, of_outputs = ({each.lengths for each in side if each.lengths} for side in (inputs, outputs))
    return {each.name for each in (*inputs, *outputs) if each.lengths in of_inputs & of_outputs}


def _takes_one_row(inputs: Sequence[_Found], outputs: Sequence[_Found]) -> bool:
    """Return whether a call contains one row: the inputs are single values, or the outputs are single values and the
    inputs are flat lists."""
    of_values = all(each.is_single for each in inputs) and not any(each.rows for each in outputs)
    of_lists = all(each.is_one_row for each in inputs) and all(each.is_single for each in outputs)
    return of_values or of_lists


class _Body:
    """The requests or the responses in the examples. `taken` contains the tensor names that are already in use."""

    def __init__(self, side: str, bodies: Sequence[Any], taken: set[str]) -> None:
        self._side = side
        self._taken = taken
        self._has_arrays = any(map(_has_array, bodies))
        keys = {key for body in bodies for key in _keys_of_scalars(body)}
        self._main = (keys & _MAIN or keys) if side == "request" else (keys - _ASIDE or keys)
        """The keys of single values that are tensors, if the body has no arrays."""
        self._parameters: set[str] = set()
        self._counts: tuple[int, ...] = ()
        """The lengths, in each example, of the outermost list of rows that is being read."""
        self.found: list[_Found] = []
        self.notes: dict[Place, str] = {}
        self.template: Template = self._template(bodies, (side,), 0)
        if not self.found:
            raise NoProposalError(f"{side}: found no tensor: the body has no array, number or text")

    # --- values ---

    def _template(self, values: Sequence[Any], place: Place, rows: int) -> Template:
        """Return the template for the values at `place` in all examples, inside `rows` nested lists of rows."""
        if all(isinstance(each, dict) for each in values):
            return self._object(values, place, rows)
        if all(isinstance(each, list) for each in values):
            return self._list(values, place, rows)
        if all(isinstance(each, SCALARS) for each in values):
            return self._scalar(values, place, rows)
        if all(isinstance(each, SCALARS) or _is_flat_list(each) for each in values):
            return self._items(values, place, rows)
        if all(each is None for each in values):
            return self._anything(place, "null in the examples")
        if self._side == "response" and not any(map(_has_array, values)):
            return self._anything(place, "values of different types; read and dropped")
        text = f"{_shown(place)}: the examples have values of different types here"
        raise NoProposalError(f"{text}; {_WITHOUT_NULL}" if None in values else text)

    def _object(self, values: Sequence[dict[str, Any]], place: Place, rows: int) -> Template:
        if place[-1] in _PARAMETERS and self._side == "request" and not rows:
            self.notes[place] = "the parameters of the request"
            return "$params"
        if flat := _flat(values):
            return self._with_shape(values, flat, place, rows)
        members: dict[str, Template] = {}
        for key in dict.fromkeys(key for each in values for key in each):
            there = [each[key] for each in values if key in each]
            known = len(self.found)
            template = self._template(there, (*place, key), rows)
            is_optional = len(there) < len(values) or self._is_incidental(template, is_new=len(self.found) > known)
            written = key if not key.startswith("$") else f"${key}"
            members[f"{written}?" if is_optional else written] = template
        return self._collapsed(members, place)

    def _collapsed(self, members: dict[str, Template], place: Place) -> Template:
        """Return `$_` for an object in a response if the form drops all its members."""
        if self._side == "response" and len(place) > 1 and all(each == "$_" for each in members.values()):
            return self._anything(place, "read and dropped")
        return members

    def _is_incidental(self, template: Template, *, is_new: bool) -> bool:
        """Return whether an object member can be missing, according to its template. A member that `is_new` has a
        tensor, which cannot be missing."""
        if is_new:
            return False
        return template in ("$_", "$id", "$params") or (isinstance(template, str) and template.startswith("$param."))

    def _with_shape(self, values: Sequence[dict[str, Any]], flat: str, place: Place, rows: int) -> Template:
        """Return the template for an object such as `{shape: [2, 2], values: [1, 2, 3, 4]}`."""
        if rows:
            raise NoProposalError(f"{_shown(place)}: an array with its shape cannot be a part of rows")
        name = self._name(place)
        shapes = tuple(tuple(each["shape"]) for each in values)
        if len({len(each) for each in shapes}) > 1:
            raise NoProposalError(f"{_shown(place)}: the shapes in the examples have different lengths")
        elements = self._seen([each[flat] for each in values], (*place, flat))
        self._add(_Found(name, SeenArray(elements.datatype, shapes)), place)
        return {key: f"${name}|shape" if key == "shape" else f"${name}|flat" for key in values[0]}

    def _list(self, values: Sequence[list[Any]], place: Place, rows: int) -> Template:
        items = [item for each in values for item in each]
        if not items:
            raise NoProposalError(
                f"{_shown(place)}: the list is empty in all examples; add an example in which it has elements"
            )
        if place[-1] in _COLUMN_NAMES and all(each == values[0] for each in values) and not rows:
            self.notes[place] = "column names, equal in all examples"
            return list(map(_constant, values[0]))
        columns = _columns(items)
        if columns or _holds_objects(items):
            return self._rows(values, items, columns, place, rows)
        self._counts_of(values, rows)
        found = _Found(self._name(place), self._seen(values, place), rows, self._counts if rows else ())
        self._add(found, place)
        return f"${found.name}"

    def _items(self, values: Sequence[Any], place: Place, rows: int) -> str:
        """Return the template for a list, or for one element without a list around it."""
        arrays = [each if isinstance(each, list) else [each] for each in values]
        seen = self._seen(arrays, place)
        found = _Found(self._name(place), seen, rows, self._counts if rows else (), is_list_or_single=True)
        self._add(found, place)
        self.notes[place] = "a list, or one element without a list around it"
        return f"${found.name}|items"

    def _rows(
        self, values: Sequence[list[Any]], items: list[Any], columns: int, place: Place, rows: int
    ) -> list[Template]:
        self._counts_of(values, rows)
        where = (*place, 0)
        if not columns:
            return [self._template(items, where, rows + 1), "..."]
        return [[self._template([row[at] for row in items], (*where, at), rows + 1) for at in range(columns)], "..."]

    def _scalar(self, values: Sequence[Any], place: Place, rows: int) -> Template:
        key = place[-1]
        if word := self._word(key, values, rows):
            return word
        is_constant = len(values) > 1 and all(each == values[0] for each in values)
        if rows and key in _KINDS and (is_constant or len(values) == 1) and isinstance(values[0], str):
            return _constant(values[0])
        if rows or len(place) == 1 or (not self._has_arrays and key in self._main):
            return self._single(values, place, rows)
        if is_constant:
            self.notes[place] = "equal in all examples"
            return _constant(values[0])
        return self._parameter(place) if self._side == "request" else self._anything(place, "read and dropped")

    def _word(self, key: str | int, values: Sequence[Any], rows: int) -> str:
        """Return the placeholder for a value with this key, such as `$id`, or an empty string."""
        is_text = all(isinstance(each, str) for each in values)
        if rows:
            return "$index" if key in _INDEXES and all(type(each) is int for each in values) else ""
        if is_text and key in _IDS:
            return "$id"
        if is_text and key in _MODELS:
            return "$model"
        return "$version" if is_text and key in _VERSIONS else ""

    def _single(self, values: Sequence[Any], place: Place, rows: int) -> str:
        """Return the template for a tensor with one element, or with one element per row."""
        name, datatype = self._name(place), self._seen(values, place).datatype
        if rows:
            self._add(_Found(name, SeenArray(datatype, ((),)), rows, self._counts), place)
            return f"${name}"
        self._add(_Found(name, SeenArray(datatype, ((1,),)), is_single=True), place)
        return f"${name}|text" if datatype is Datatype.BYTES else f"${name}|scalar"

    def _parameter(self, place: Place) -> str:
        names = (str(place[-1]), "_".join(map(str, place[1:])))
        name = next(each for each in names if each not in self._parameters or each is names[-1])
        self._parameters.add(name)
        self.notes[place] = "a parameter of the request"
        return f"$param.{name}"

    def _anything(self, place: Place, why: str) -> str:
        self.notes[place] = why
        return "$_"

    # --- tensors ---

    def _seen(self, values: Sequence[Any], place: Place) -> SeenArray:
        try:
            return seen(values)
        except IrregularArrayError as error:
            raise NoProposalError(f"{_shown(place)}: {error}") from error

    def _counts_of(self, values: Sequence[list[Any]], rows: int) -> None:
        if not rows:
            self._counts = tuple(map(len, values))

    def _add(self, found: _Found, place: Place) -> None:
        self.found.append(found)
        elements = {Datatype.BYTES: "texts", Datatype.BOOL: "flags", Datatype.INT64: "whole numbers"}
        what = elements.get(found.seen.datatype, "numbers")
        shapes = dict.fromkeys(" x ".join(map(str, each)) for each in found.seen.shapes if prod(each) != 1)
        where = "in each row" if found.rows else "in the examples"
        if shapes:
            self.notes[place] = f"{', '.join(list(shapes)[:4])} {what} {where}"

    def _name(self, place: Place) -> str:
        """Return a name for the tensor at `place`, derived from the nearest key."""
        keys = [_safe(each) for each in place[1:] if isinstance(each, str)]
        base = keys[-1] if keys else ("x" if self._side == "request" else "y")
        if len(place) > 1 and isinstance(place[-1], int):
            base = f"{base}_{place[-1]}"
        options = [base]
        if self._side == "response":
            options.append(f"{base}_out")
        options += [f"{each}_{base}" for each in keys[-2:-1]]
        further = (f"{base}_{number}" for number in count(2))
        name = next(each for each in chain(options, further) if each not in self._taken)
        self._taken.add(name)
        return name


RESERVED_NAMES = frozenset({"any", "param", "params", "id", "model", "version", "index", "message", "code"})
"""Names that a tensor cannot have in a form, because they have another meaning after the `$`."""


def _safe(key: str) -> str:
    """Return a tensor name derived from `key`."""
    name = "".join("_" if each in "|$* \t\r\n" else each for each in key) or "x"
    return f"{name}_" if name in RESERVED_NAMES else name


def _constant(value: Any) -> Any:
    return f"${value}" if isinstance(value, str) and value.startswith("$") else value


def _shown(place: Place) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return text.removeprefix(".")


def _has_array(value: Any, key: str = "") -> bool:
    """Return whether the value contains a tensor as a list, or rows."""
    if isinstance(value, dict):
        return any(_has_array(each, name) for name, each in value.items() if name not in _PARAMETERS)
    return isinstance(value, list) and bool(value) and key not in _COLUMN_NAMES


def _keys_of_scalars(value: Any) -> Iterator[str]:
    """Yield the keys of single values outside lists."""
    if isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, dict):
                yield from _keys_of_scalars(each)
            elif isinstance(each, SCALARS):
                yield key


def _is_flat_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, SCALARS) for each in value)


def _holds_objects(items: Sequence[Any]) -> bool:
    """Return whether a list contains objects, at any nesting depth."""
    return any(isinstance(each, dict) or (isinstance(each, list) and _holds_objects(each)) for each in items)


def _columns(items: Sequence[Any]) -> int:
    """Return the number of columns if `items` are equally long lists of single values with different types; otherwise,
    return 0."""
    if not all(isinstance(each, list) and each and all(isinstance(one, SCALARS) for one in each) for each in items):
        return 0
    lengths = {len(each) for each in items}
    kinds = {
        "text" if isinstance(one, str) else "flag" if isinstance(one, bool) else "number"
        for each in items
        for one in each
    }
    return lengths.pop() if len(lengths) == 1 and len(kinds) > 1 else 0


def _flat(values: Sequence[dict[str, Any]]) -> str:
    """Return the key of the flat list whose number of elements matches the member `shape`, or an empty string."""
    keys = {frozenset(each) for each in values}
    if len(keys) != 1 or len(values[0]) != 2 or "shape" not in values[0]:
        return ""
    other = next(key for key in values[0] if key != "shape")
    return other if all(_is_flat(each["shape"], each[other]) for each in values) else ""


def _is_flat(shape: Any, elements: Any) -> bool:
    if not isinstance(shape, list) or not shape or not all(type(each) is int and each >= 0 for each in shape):
        return False
    return isinstance(elements, list) and len(elements) == prod(shape)


def seen(arrays: Sequence[Any]) -> SeenArray:
    """Return the common datatype and the shapes of nested lists of scalars. A scalar counts as an array of shape [].

    Raises:
        IrregularArrayError: the arrays are ragged, have different ranks, or mix numbers with strings or null.
    """
    shapes = [_shape(each) for each in arrays]
    full = [each for each in shapes if 0 not in each] or shapes
    ranks = {len(each) for each in full}
    if len(ranks) > 1:
        text = f"the examples have arrays of {' and '.join(map(str, sorted(ranks)))} dimensions"
        raise IrregularArrayError(f"{text}; use examples with one number of dimensions")
    return SeenArray(datatype_of([scalar for each in arrays for scalar in scalars(each)]), tuple(full))


def scalars(array: Any) -> Iterator[Any]:
    """Yield the elements of nested lists, in row-major order."""
    if isinstance(array, list):
        for each in array:
            yield from scalars(each)
    else:
        yield array


def datatype_of(elements: Sequence[Any]) -> Datatype:
    """Return the datatype of elements. Raise IrregularArrayError if they have no common datatype."""
    kinds = {type(each) for each in elements}
    if kinds <= {int}:
        return Datatype.INT64 if kinds else Datatype.FP64
    if kinds <= {int, float}:
        return Datatype.FP64
    if kinds == {bool}:
        return Datatype.BOOL
    if kinds == {str}:
        return Datatype.BYTES
    words = {str: "texts", bool: "true or false", type(None): "null", dict: "objects", int: "numbers", float: "numbers"}
    named = sorted({words.get(each, each.__name__) for each in kinds})
    text = f"{' beside '.join(named)} in one array"
    raise IrregularArrayError(f"{text}; {_WITHOUT_NULL}" if type(None) in kinds else text)


_WITHOUT_NULL = "use an example without null; `translate: {nan: null}` on the route reads null as NaN"


def _shape(array: Any) -> Shape:
    if not isinstance(array, list):
        return ()
    if not array:
        return (0,)
    below = {_shape(each) for each in array}
    if len(below) > 1:
        raise IrregularArrayError("a ragged array, whose rows have different lengths; use examples with equal lengths")
    return (len(array), *below.pop())
