"""Reads the value at one position of a body. `reading` calls this module for each leaf of the body's type.

The value is a tensor, a word such as the request id, parameters, a constant, or any JSON.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import field
from gateway.core.json import Json
from gateway.core.models import TensorSpec
from gateway.core.protocol import Limits
from gateway.core.tensors import MAX_RANK, Parameters, ParameterValue, Shape, Tensor
from gateway.protocols.json import plain as json_plain
from gateway.protocols.json.misfit import STRUCTURE, MisfitError
from gateway.protocols.json.plain import read_plain, to_parameter
from gateway.protocols.json.templates import (
    Anything,
    Constant,
    Every,
    EverySpelling,
    ParameterPlace,
    ParametersPlace,
    Slot,
    Spelling,
    TensorPlace,
    Word,
)
from gateway.protocols.json.tensor_form import TensorForm
from gateway.protocols.json.tensor_reading import UnequalTensors, read_tensor, unequal_rows
from gateway.protocols.json.types import Leaf


class BodyContents(Struct, frozen=True):
    """The contents of a body. Words within rows are lists. `texts` are the parameters whose values are the JSON texts
    of lists or objects."""

    tensors: tuple[Tensor, ...] = ()
    words: Mapping[Word, Json] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    unequal: UnequalTensors | None = None
    """Rows of unequal length, which only requests can contain."""
    alternative: int = 0
    """The index of the template's alternative that matched the body."""


class BodyReading:
    """The contents of one body during decoding. `cuts` are the texts that were cut out of the body, by key."""

    def __init__(self, limits: Limits, cuts: Mapping[str, bytes]) -> None:
        self.limits = limits
        self.cuts = cuts
        self.cuts_read = 0
        self.is_marked = False
        """True if NaN and infinities in the text are marked (`plain`)."""
        self.members = 0
        """Number of object members outside the body's type, in parameters, messages and ignored values."""
        self.tensors: list[Tensor] = []
        self.shapes: dict[str, Shape] = {}
        self.names: list[str] | None = None
        self.order: list[int] | None = None
        """The positions of the rows with the `$index` 0, 1, ...; None if the rows are in this order."""
        self.words: dict[Word, Json] = {}
        self.parameters: dict[str, ParameterValue] = {}
        self.texts: dict[str, str] = {}
        self.unequal: UnequalTensors | None = None

    def plain(self, text: Raw) -> Json:
        """Return the value of a JSON text, and count its members. Raise the errors of `read_plain`. Also raise
        DecodeError if the text contains NaN or an infinity."""
        plain = bytes(text)
        if self.is_marked and json_plain.has_marked_literals(plain):
            raise DecodeError("NaN or an infinity outside of a tensor, where JSON does not allow it")
        value, members = read_plain(plain, self.limits.json_values)
        self.members += members
        return value

    def found(self, role: str) -> BodyContents:
        """Return the contents. Raise DecodeError if rows differ in length, except in a request (`role` is input)."""
        if self.unequal is not None and role != "input":
            raise DecodeError(self.unequal.error)
        return BodyContents(tuple(self.tensors), self.words, self.parameters, self.texts, self.unequal)


ReadPlace: TypeAlias = Callable[[Any, BodyReading], None]
"""A function that reads one position of a body. The arguments are the body as a value of its type, and the
BodyReading."""


def reader_of_place(
    leaf: Leaf, specs: Mapping[str, TensorSpec], keys: Mapping[TensorPlace, str], role: str
) -> ReadPlace:
    """Return the function that reads the value at `leaf`. `keys` are the keys of the tensors that can be cut out."""
    match leaf.node:
        case TensorPlace(name, spelling):
            spec = specs.get(name)
            form = TensorForm(leaf.node, name if spec else "", f"{role} {name!r}", spec, leaf.rows)
            if spelling is Spelling.SHAPE:
                return partial(_read_shape, leaf, form)
            return partial(_read_tensor, leaf, form, keys.get(leaf.node))
        case Every(spelling):
            return partial(_EVERY[spelling], leaf, role)
        case Slot(word):
            return partial(_read_index if word is Word.INDEX else _read_word, leaf, word)
        case Constant(value):
            return partial(_compare, leaf, value)
        case Anything():
            return partial(_pass_over, leaf)
        case ParameterPlace(name):
            return partial(_read_parameter, leaf, name)
        case ParametersPlace():
            return partial(_read_parameters, leaf)
    raise TypeError(leaf.node)


# --- tensors ---


def _read_tensor(leaf: Leaf, form: TensorForm, key: str | None, value: Any, reading: BodyReading) -> None:
    given = _in_order(leaf.get(value), leaf, reading)
    if type(given) is bytes:
        text: bytes | None = given
    elif key is not None and key in reading.cuts and given is not UNSET:
        text = reading.cuts[key]
        reading.cuts_read += 1
    else:
        text = bytes(given) if type(given) is Raw else _joined(given, form.label)
    if text is None:
        return
    if not text:
        raise MisfitError(f"not JSON: {form.label} is missing")
    _add_tensor(form, text, reading)


def _add_tensor(form: TensorForm, text: bytes, reading: BodyReading) -> None:
    if reading.is_marked:
        text = json_plain.restore_literals(text)
    shape = reading.shapes.get(form.place.name) if reading.shapes else None
    try:
        tensor = read_tensor(form, text, shape, reading.limits)
    except DecodeError as error:
        rows = unequal_rows(form, text, error, reading.limits)
        known = reading.unequal.rows if reading.unequal else {}
        reading.unequal = UnequalTensors({**known, len(reading.tensors): rows}, str(error))
        tensor = rows[0]
    reading.tensors.append(tensor)


def _joined(given: Any, what: str) -> bytes | None:
    """Return the JSON text of a list of the values in all rows, or None if every row lacks the value. Raise DecodeError
    if only some rows contain the value."""
    if given is UNSET:
        return None
    if type(given) is Raw:
        return bytes(given)
    if given and type(given[0]) is Raw and UNSET not in given:
        return b"[%b]" % b",".join(given)
    texts = [_joined(each, what) for each in given]
    found = [each for each in texts if each is not None]
    if len(found) == len(texts):
        return b"[%b]" % b",".join(found)
    if found:
        raise DecodeError(f"{what} is missing in row {texts.index(None)}, but is in others")
    return None


_decode_shape = msgspec.json.Decoder(list[int]).decode


def _read_shape(leaf: Leaf, form: TensorForm, value: Any, reading: BodyReading) -> None:
    given = leaf.get(value)
    if given is UNSET:
        return
    if bytes(given).count(b",") >= MAX_RANK:
        raise DecodeError(f"{form.label} has a shape of too many sizes, expected up to {MAX_RANK} sizes")
    try:
        shape = _decode_shape(given)
    except msgspec.DecodeError as error:
        raise MisfitError(f"the shape of {form.label}: {error}", STRUCTURE) from error
    if any(each < 0 for each in shape):
        raise DecodeError(f"{form.label} has the shape {shape}, expected sizes of at least 0")
    reading.shapes[form.place.name] = tuple(shape)


# --- all tensors, by name ---


def _every_form(name: str, role: str, rows: int) -> TensorForm:
    return TensorForm(TensorPlace(name), name, f"{role} {name!r}", None, rows)


def _read_members(leaf: Leaf, role: str, value: Any, reading: BodyReading) -> None:
    """Read an object with a member for each tensor, or rows of these objects."""
    given = _in_order(leaf.get(value), leaf, reading)
    if given is UNSET:
        return
    for name in _names(given):
        form = _every_form(name, role, leaf.rows)
        text = _joined(_of_name(given, name), form.label)
        assert text is not None
        _add_tensor(form, text, reading)


def _names(given: Any) -> tuple[str, ...]:
    """Return the member names that all objects in `given` share. `given` is one object, rows of objects, or missing."""
    if given is UNSET:
        return ()
    if type(given) is dict:
        if "" in given:
            raise DecodeError("a member has an empty name, expected the name of a tensor")
        return tuple(given)
    first: tuple[str, ...] = ()
    keys: set[str] = set()
    for at, each in enumerate(given):
        names = _names(each)
        if not at:
            first, keys = names, set(names)
        elif names != first and keys != set(names):
            raise DecodeError(f"row {at} has the members {list(names)[:20]}, but row 0 has {list(first)[:20]}")
    return first


def _of_name(given: Any, name: str) -> Any:
    return given[name] if type(given) is dict else [_of_name(each, name) for each in given]


_decode_names = msgspec.json.Decoder(list[str]).decode


def _read_names(leaf: Leaf, role: str, value: Any, reading: BodyReading) -> None:
    given = leaf.get(value)
    if given is UNSET:
        return
    if bytes(given).count(b",") > reading.limits.json_values:
        text = f"more than {reading.limits.json_values} names of columns (limits.json_values)"
        raise DecodeError(f"{text}; send fewer, or raise the limit")
    try:
        names = _decode_names(given)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MisfitError(f"the names of the {role}s: {error}", STRUCTURE) from error
    if len(set(names)) < len(names) or "" in names:
        raise DecodeError(f"the names of the {role}s are {names[:20]}, expected different names, none of them empty")
    reading.names = names


_decode_table = msgspec.json.Decoder(list[list[Raw]]).decode
_BYTES_OF_CELL, _BYTES_OF_ROW = 128, 144
"""Memory that a table cell takes during decoding, and that a row takes without its cells, in bytes."""


def _read_table(leaf: Leaf, role: str, value: Any, reading: BodyReading) -> None:
    """Read a RowList of cells, in which each column is a tensor."""
    given = leaf.get(value)
    if given is UNSET:
        return
    text, limit = bytes(given), reading.limits.message
    cells, rows_of_cells = text.count(b","), text.count(b"[")
    if cells * _BYTES_OF_CELL + rows_of_cells * _BYTES_OF_ROW > limit:
        why = f"a table of {cells} cells takes more than {limit} bytes (limits.message)"
        raise refusal(Reason.TOO_LARGE, f"{why}; send less, or raise the limit")
    try:
        rows = _decode_table(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MisfitError(f"the table of {role}s: {error}", STRUCTURE) from error
    names = reading.names
    if names is None:
        names = [str(at) for at in range(len(rows[0]) if rows else 0)]
    for at, row in enumerate(rows):
        if len(row) != len(names):
            raise DecodeError(f"row {at} has {len(row)} cells for {len(names)} columns")
    columns: Iterable[Iterable[bytes]] = zip(*rows, strict=True) if rows else [()] * len(names)
    for name, column in zip(names, columns, strict=True):
        _add_tensor(_every_form(name, role, 1), b"[%b]" % b",".join(column), reading)


_EVERY: Mapping[EverySpelling, Callable[[Leaf, str, Any, BodyReading], None]] = {
    EverySpelling.MEMBERS: _read_members,
    EverySpelling.NAMES: _read_names,
    EverySpelling.TABLE: _read_table,
}


# --- words, constants, and the rest ---


def _read_word(leaf: Leaf, word: Word, value: Any, reading: BodyReading) -> None:
    given = leaf.get(value)
    if given is UNSET or given is None:
        return
    if type(given) is Raw:
        given = reading.plain(given)
    known = reading.words.setdefault(word, given)
    if known != given:
        raise DecodeError(f"{word.value} is {given!r} at one place and {known!r} at another")


def _read_index(leaf: Leaf, word: Word, value: Any, reading: BodyReading) -> None:
    """Read the row numbers. Unless the rows are nested in other rows, they can be in any order."""
    given = leaf.get(value)
    if leaf.rows == 1 and type(given) is list and all(type(each) is int for each in given):
        if given != list(range(len(given))):
            if sorted(given) != list(range(len(given))):
                raise DecodeError(f"the rows say that their indices are {_listed(given)}, expected each from 0 on once")
            reading.order = sorted(range(len(given)), key=given.__getitem__)
        return
    for numbers in _innermost(given):
        for at, number in enumerate(numbers):
            if number is not UNSET and number is not None and number != at:
                raise DecodeError(f"row {at} says that its index is {number}: rows must be in order")


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")


def _in_order(given: Any, leaf: Leaf, reading: BodyReading) -> Any:
    """Return the values of all rows, sorted by row number."""
    if reading.order is None or not leaf.rows or type(given) is not list:
        return given
    return [given[at] for at in reading.order]


def _innermost(given: Any) -> Iterator[list[Any]]:
    """Yield the innermost lists of nested lists."""
    if given and type(given[0]) is list:
        for each in given:
            yield from _innermost(each)
    elif given is not UNSET:
        yield given


def _flat(given: Any) -> Iterator[Any]:
    """Yield the values at a position one by one, even if the position is nested in rows."""
    if type(given) is list:
        for each in given:
            yield from _flat(each)
    elif given is not UNSET and given is not None:
        yield given


def _compare(leaf: Leaf, constant: object, value: Any, reading: BodyReading) -> None:
    for given in _flat(leaf.get(value)):
        if given != constant:
            raise MisfitError(f"{given!r}, expected {constant!r}")


def _pass_over(leaf: Leaf, value: Any, reading: BodyReading) -> None:
    for given in _flat(leaf.get(value)):
        reading.plain(given)


def _read_parameter(leaf: Leaf, name: str, value: Any, reading: BodyReading) -> None:
    given = leaf.get(value)
    if given is not UNSET and given is not None:
        _add_parameter(name, given, reading)


def _read_parameters(leaf: Leaf, value: Any, reading: BodyReading) -> None:
    given = leaf.get(value)
    if given is not UNSET and given is not None:
        for name, each in given.items():
            _add_parameter(name, each, reading)


def _add_parameter(name: str, text: Raw, reading: BodyReading) -> None:
    given = reading.plain(text)
    if given is None:
        return
    if name in reading.parameters:
        raise DecodeError(f"parameter {name!r} is at two places; send it once")
    parameter = to_parameter(given)
    reading.parameters[name] = parameter
    if isinstance(parameter, str) and not isinstance(given, str):
        reading.texts[name] = parameter
