"""Converts an Input, which contains the examples of Classify, Regress and MultiInference, to tensors with one row per
example, and back.

An `Example` contains named features, each a list of strings, floats or integers. The values of one feature in all
examples form a tensor `[examples, values]` of BYTES, FP32 or INT64. Every example must have the same features with the
same number of values. Features of the `context` apply to all examples that do not set them.

If examples have the same layout, and differ only in their values, the gateway reads and writes them column by column.
Most batches are of this kind, because their features contain the same number of floats, strings of one length, or
integers with the same number of bytes. Ten thousand examples take a few milliseconds in columns, and 70 ms one by one.
"""

from collections.abc import Iterator, Sequence
from math import prod
from struct import Struct
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct as Fields

from gateway.core import bytes_elements
from gateway.core.datatypes import BYTES, WIDENINGS, Datatype
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.frozen import replace
from gateway.core.messages import Buffer
from gateway.core.protobuf.fields import FieldCount, MessageAllowance, read_text, write_field, write_text
from gateway.core.protobuf.integers import count_integers, read_integers, write_integers
from gateway.core.protobuf.wire import I32, LENGTH, VARINT, fields, read_tag
from gateway.core.tensors import Tensor
from gateway.core.tensors import tensor as make_tensor
from gateway.protocols.tensorflow_serving.tensor_proto import check_piece

_LIST, _LIST_WITH_CONTEXT = 1, 2
_EXAMPLES, _CONTEXT = 1, 2
"""The field numbers of an Input, and of an ExampleList with or without context."""

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
"""The field numbers of a Feature."""

_DATATYPES = {_BYTES_LIST: BYTES, _FLOAT_LIST: Datatype.FP32, _INT64_LIST: Datatype.INT64}
_NUMBERS = {datatype: number for number, datatype in _DATATYPES.items()}
_SINGLE = {_BYTES_LIST: LENGTH, _FLOAT_LIST: I32, _INT64_LIST: VARINT}
"""The wire type of a value that is not packed."""
_SIZES = {_FLOAT_LIST: Datatype.FP32.size, _INT64_LIST: 0}
"""Sizes of packed values, in bytes; 0 for varints."""
FP32 = Datatype.FP32
_LENGTH = Struct("<I")


class Feature(Fields, frozen=True):
    """The values of a feature in one example: the field number of their list (`kind`), their number, and their bytes.
    Numbers are in wire format, and strings are in the raw form of BYTES."""

    kind: int
    count: int
    values: Buffer


_Features: TypeAlias = dict[str, Feature]


# --- Reading ---


def read_input(message: Buffer, limit: int) -> tuple[tuple[Tensor, ...], int]:
    """Return the tensors of an Input, sorted by name, and the number of examples.

    `limit` is the maximum number of bytes of all tensors.

    Raises:
        DecodeError: the list is empty, an example is malformed, or the examples have different features.
        GatewayError: RESOURCE_EXHAUSTED if tensors or fields exceed the limit.
    """
    count, allowance = FieldCount(limit), MessageAllowance(limit)
    lists, context = _read_lists(message, count)
    if len(lists) == 1 and not context:
        alike = _read_alike(lists[0], allowance)
        if alike is not None:
            return alike
    shared = _read_example(context, "the context", count) if context else {}
    # the examples are not collected in a list, because a view of a message takes more memory than the result of an
    # example without features
    examples = (
        given[each.value : each.end]
        for given in lists
        for each in count.fields(given)
        if each[:2] == (_EXAMPLES, LENGTH)
    )
    rows = [shared | _read_example(each, f"example {at}", count) for at, each in enumerate(examples)]
    if not rows:
        raise DecodeError("Input is empty.")
    return tuple(_column(name, rows, allowance) for name in _common_names(rows)), len(rows)


def _read_lists(message: Buffer, count: FieldCount) -> tuple[list[Buffer], Buffer]:
    """Return the lists of examples, and the context. The context is empty if the message contains none."""
    plain, with_context = (count.values(message, number) for number in (_LIST, _LIST_WITH_CONTEXT))
    if plain and with_context:
        raise DecodeError("Input has both example_list and example_list_with_context; expected one of them")
    contexts = [each for given in with_context for each in count.values(given, _CONTEXT)]
    return [*plain, *with_context], b"".join(contexts)


def _read_example(message: Buffer, what: str, count: FieldCount) -> _Features:
    found: _Features = {}
    for features in count.values(message, 1):
        for entry in count.values(features, 1):
            name = read_text(b"".join(count.values(entry, 1)[-1:]), f"the name of a feature of {what}")
            if name in found:
                raise DecodeError(f"feature {name!r} of {what} occurs twice")
            if not name:
                raise DecodeError(f"a feature of {what} has no name")
            found[name] = _read_feature(count.values(entry, 2), f"feature {name!r} of {what}", count)
    return found


def _read_feature(given: list[Buffer], what: str, count: FieldCount) -> Feature:
    kind = 0
    lists: list[Buffer] = []
    for value in given:
        for number, wire_type, _, start, end in count.fields(value):
            if number not in _DATATYPES or wire_type != LENGTH:
                continue
            if kind and number != kind:
                raise DecodeError(f"{what} has lists of two types; expected one")
            kind = number
            lists.append(value[start:end])
    if not kind:
        raise DecodeError(f"{what} has no values; expected bytes_list, float_list or int64_list")
    return _read_values(kind, lists[0] if len(lists) == 1 else b"".join(lists), what, count)


def _read_values(kind: int, message: Buffer, what: str, count: FieldCount) -> Feature:
    """Return the values of a BytesList, FloatList or Int64List."""
    values: Buffer = b""
    found = 0
    for number, wire_type, _, start, end in count.fields(message):
        if number != 1:
            continue
        if wire_type not in (LENGTH, _SINGLE[kind]):
            raise DecodeError(f"{what}: a value has wire type {wire_type}")
        piece = message[start:end]
        if kind == _BYTES_LIST:
            piece = b"".join((_LENGTH.pack(end - start), piece))
            found += 1
        else:
            check_piece(piece, _SIZES[kind], what)
        values = _appended(values, piece)
    if kind == _FLOAT_LIST:
        found = len(values) // _SIZES[kind]
    elif kind == _INT64_LIST:
        found = count_integers(values)
    return Feature(kind, found, values)


def _appended(values: Buffer, piece: Buffer) -> Buffer:
    """Return `values` followed by `piece`. A list of the pieces would take far more memory than the pieces
    themselves."""
    if not len(values):
        return piece
    joined = values if isinstance(values, bytearray) else bytearray(values)
    joined += piece
    return joined


def _common_names(rows: list[_Features]) -> list[str]:
    """Return the feature names. Raise DecodeError if the examples have different features."""
    first = rows[0]
    if not first:
        raise DecodeError("example 0 has no features")
    for at, row in enumerate(rows):
        if row.keys() != first.keys():
            name = min(row.keys() ^ first.keys())
            has, lacks = (at, 0) if name in row else (0, at)
            raise DecodeError(
                f"example {has} has the feature {name!r} and example {lacks} has not; all examples must have the same"
            )
    return sorted(first)


def _column(name: str, rows: list[_Features], allowance: MessageAllowance) -> Tensor:
    """Return the tensor of a feature's values in all examples."""
    first = rows[0][name]
    datatype, what = _DATATYPES[first.kind], f"feature {name!r}"
    for at, row in enumerate(rows):
        each = row[name]
        if each.kind != first.kind:
            raise DecodeError(f"{what} of example {at} is {_DATATYPES[each.kind]} and that of example 0 {datatype}")
        if each.count != first.count:
            text = f"{what} of example {at} has {each.count} values and that of example 0 {first.count}"
            raise DecodeError(f"{text}; all examples must have as many")
        allowance.spend_tensor(max(each.count * datatype.size, len(each.values)), what)
    shape = (len(rows), first.count)
    values = first.values if len(rows) == 1 else b"".join([row[name].values for row in rows])
    if datatype is Datatype.INT64 and first.count:
        values = read_integers(values, datatype, prod(shape), what)
    return Tensor(name, datatype, shape, values)


# --- Writing ---


def write_input(tensors: tuple[Tensor, ...]) -> bytes:
    """Return an Input with one example for each row of `tensors`.

    Raises:
        GatewayError: INVALID_ARGUMENT if `tensors` is empty, the tensors have no rows or different numbers of rows, or
            a feature cannot have the datatype or the name of a tensor.
    """
    if not tensors:
        raise invalid_input("expected at least one input, a feature of the example")
    rows = tensors[0].shape[0] if tensors[0].shape else 0
    if any(not tensor.shape or tensor.shape[0] != rows for tensor in tensors):
        shapes = ", ".join(f"{each.name!r} {list(each.shape)}" for each in tensors)
        raise invalid_input(f"inputs cannot be examples, one for each row: {shapes}; all must have as many rows")
    kept = [_as_feature(tensor, f"input {tensor.name!r}") for tensor in tensors]
    if rows >= LEAST and all(each.datatype is not BYTES for each in kept):
        first = [replace(each, shape=(1, *each.shape[1:]), data=_first_row(each)) for each in kept]
        alike = _write_alike(_write_examples(first, 1), kept)
        if alike is not None:
            return write_field(_LIST, alike)
    return write_field(_LIST, _write_examples(kept, rows))


def _first_row(tensor: Tensor) -> Buffer:
    """Return the raw form of a tensor's first row of numbers."""
    return memoryview(tensor.data)[: len(tensor.data) // tensor.shape[0]]


def _write_examples(tensors: Sequence[Tensor], rows: int) -> bytes:
    """Return the fields of an ExampleList."""
    columns = [_write_column(tensor) for tensor in tensors]
    return b"".join(
        [write_field(_EXAMPLES, write_field(1, b"".join([column[at] for column in columns]))) for at in range(rows)]
    )


def _write_column(tensor: Tensor) -> list[bytes]:
    """Return the entry of one feature in the map `Features.feature` for each row."""
    named = write_text(1, tensor.name, f"the name of input {tensor.name!r}")
    number, rows, size = _NUMBERS[tensor.datatype], tensor.shape[0], prod(tensor.shape[1:])
    if tensor.datatype is BYTES:
        elements = bytes_elements.unpack(tensor.data)
        lists = [
            b"".join([write_field(1, each) for each in elements[at * size : (at + 1) * size]]) for at in range(rows)
        ]
    else:
        lists = [write_field(1, each) if len(each) else b"" for each in _packed_rows(tensor, rows, size)]
    return [write_field(1, named + write_field(2, write_field(number, each))) for each in lists]


def _packed_rows(tensor: Tensor, rows: int, size: int) -> list[Buffer]:
    """Return the packed list of each row of `size` numbers."""
    if tensor.datatype is Datatype.FP32:
        packed, ends = memoryview(tensor.data), [FP32.size * size * (at + 1) for at in range(rows)]
    else:
        packed = memoryview(write_integers(tensor.data, tensor.datatype))
        last = np.flatnonzero(np.frombuffer(packed, np.uint8) < 0x80) + 1  # the end of each varint
        ends = last[size - 1 :: size].tolist() if size else [0] * rows
    return [packed[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _as_feature(tensor: Tensor, what: str) -> Tensor:
    """Return the tensor in the datatype of a feature, which is BYTES, FP32 or INT64."""
    if not tensor.name:
        raise invalid_input("an input has no name; a feature of an example has one")
    if tensor.datatype in _NUMBERS:
        return tensor
    holding = [each for each in (Datatype.INT64, Datatype.FP32) if each in WIDENINGS[tensor.datatype]]
    if not holding and tensor.datatype is not Datatype.BOOL:
        text = f"{what} is {tensor.datatype}, and a feature of an example is BYTES, FP32 or INT64"
        raise invalid_input(f"{text}; `signature` on the route can say which one is meant")
    wanted = holding[0] if holding else Datatype.INT64
    return make_tensor(tensor.name, tensor.array.astype(np.dtype(wanted.dtype)), wanted)


# --- Examples with the same layout ---

LEAST = 16
"""Minimum number of examples to process in columns. For fewer examples, decoding one by one is faster."""

_EXAMPLE_TAG = 1 << 3 | LENGTH
_Rows: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.uint8]]"


class _ValuePlace(NamedTuple):
    """The position of a feature's values in an example. Each string has its own position."""

    name: str
    kind: int
    start: int
    end: int


def _read_alike(examples: Buffer, allowance: MessageAllowance) -> tuple[tuple[Tensor, ...], int] | None:
    """Return the tensors of an ExampleList's features, sorted by name, and the number of examples.

    Return None if the examples have different layouts or are invalid.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED if the tensors exceed `allowance`.
    """
    try:
        tag, start, step = read_tag(examples, 0)
        if tag != _EXAMPLE_TAG or len(examples) % step or len(examples) < LEAST * step:
            return None
        places = [*_places(examples[:step], start)]
    except (DecodeError, IndexError, UnicodeDecodeError, _OddLayoutError):
        return None
    rows: _Rows = np.frombuffer(examples, np.uint8).reshape(-1, step)
    if not _are_alike(rows, places):
        return None
    named: dict[str, list[_ValuePlace]] = {}
    for place in places:
        named.setdefault(place.name, []).append(place)
    return tuple(_alike_column(named[name], rows, allowance) for name in sorted(named)), len(rows)


class _OddLayoutError(Exception):
    """The gateway must decode the examples one by one, because an example is invalid, or has lists in pieces or
    repeated features."""


def _places(row: Buffer, start: int) -> Iterator[_ValuePlace]:
    """Yield the positions of the values in the only example of `row`, which begins at `start`."""
    names = set()
    example = _inner(row, start, len(row))
    if len(example) != 1:
        raise _OddLayoutError
    for entry in _inner(row, *_message(example[0], 1)):
        pair = _inner(row, *_message(entry, 1))
        if [each[:2] for each in pair] != [(1, LENGTH), (2, LENGTH)]:
            raise _OddLayoutError
        name = str(row[pair[0][2] : pair[0][3]], "utf-8")
        if not name or name in names:
            raise _OddLayoutError
        names.add(name)
        yield from _alike_values(row, name, *pair[1][2:])


_At: TypeAlias = tuple[int, int, int, int]
"""A field's number and wire type, and the start and the end of its value in the row."""


def _inner(row: Buffer, start: int, end: int) -> list[_At]:
    return [(each.number, each.wire_type, start + each.value, start + each.end) for each in fields(row[start:end])]


def _message(field: _At, number: int) -> tuple[int, int]:
    if field[:2] != (number, LENGTH):
        raise _OddLayoutError
    return field[2:]


def _alike_values(row: Buffer, name: str, start: int, end: int) -> Iterator[_ValuePlace]:
    lists = _inner(row, start, end)
    if len(lists) != 1 or lists[0][0] not in (_BYTES_LIST, _FLOAT_LIST, _INT64_LIST) or lists[0][1] != LENGTH:
        raise _OddLayoutError
    kind = lists[0][0]
    values = _inner(row, *lists[0][2:])
    if not values or any(each[:2] != (1, LENGTH) for each in values) or (kind != _BYTES_LIST and len(values) > 1):
        raise _OddLayoutError
    for each in values:
        if kind == _FLOAT_LIST and (each[3] - each[2]) % Datatype.FP32.size:
            raise _OddLayoutError
        if kind == _INT64_LIST and row[each[3] - 1] > 0x7F:
            raise _OddLayoutError
        yield _ValuePlace(name, kind, *each[2:])


def _are_alike(rows: _Rows, places: Sequence[_ValuePlace]) -> bool:
    """Return whether all rows have the structure of the first row, and all integers have the same number of bytes."""
    is_fixed = np.ones(rows.shape[1], np.bool_)
    for place in places:
        is_fixed[place.start : place.end] = False
        if place.kind == _INT64_LIST:
            goes_on = rows[:, place.start : place.end] > 0x7F
            if (goes_on != goes_on[0]).any():
                return False
    fixed = rows[:, is_fixed]
    return bool((fixed == fixed[0]).all())


def _alike_column(places: Sequence[_ValuePlace], rows: _Rows, allowance: MessageAllowance) -> Tensor:
    """Return the tensor of one feature."""
    name, kind, start, end = places[0]
    what, count = f"feature {name!r}", len(rows)
    if kind == _BYTES_LIST:
        size = sum(4 + each.end - each.start for each in places)
        allowance.spend_tensor(count * size, what)
        return Tensor(name, BYTES, (count, len(places)), _texts(places, rows, size))
    values = rows[:, start:end]
    if kind == _FLOAT_LIST:
        allowance.spend_tensor(values.size, what)
        return Tensor(name, Datatype.FP32, (count, (end - start) // Datatype.FP32.size), values.tobytes())
    width = count_integers(values[0].tobytes())
    allowance.spend_tensor(count * width * Datatype.INT64.size, what)
    data = read_integers(values.tobytes(), Datatype.INT64, count * width, what)
    return Tensor(name, Datatype.INT64, (count, width), data)


def _texts(places: Sequence[_ValuePlace], rows: _Rows, size: int) -> bytes:
    raw, at = np.empty((len(rows), size), np.uint8), 0
    for place in places:
        length = place.end - place.start
        raw[:, at : at + 4] = np.array([length], "<u4").view(np.uint8)
        raw[:, at + 4 : at + 4 + length] = rows[:, place.start : place.end]
        at += 4 + length
    return raw.tobytes()


def _write_alike(first: bytes, tensors: Sequence[Tensor]) -> bytes | None:
    """Return the ExampleList of `tensors`, or None if the examples would have different layouts. `first` is the first
    example, written as a field of the list. The tensors contain FP32 numbers, or small INT64 integers."""
    columns = {}
    for tensor in tensors:
        column = _column_bytes(tensor)
        if column is None:
            return None
        columns[tensor.name] = column
    rows = np.empty((tensors[0].shape[0], len(first)), np.uint8)
    rows[:] = np.frombuffer(first, np.uint8)
    try:
        for place in _places(first, read_tag(first, 0)[1]):
            rows[:, place.start : place.end] = columns[place.name]
    except _OddLayoutError:  # a feature without values
        return None
    return rows.tobytes()


def _column_bytes(tensor: Tensor) -> "_Rows | None":
    """Return the packed bytes of each row's values, or None if the rows can have different numbers of bytes."""
    rows = tensor.shape[0]
    if tensor.datatype is Datatype.FP32:
        return np.frombuffer(tensor.data, np.uint8).reshape(rows, -1)
    numbers = np.frombuffer(tensor.data, "<i8")
    if not len(numbers) or numbers.min() < 0 or numbers.max() > 0x7F:
        return None
    return numbers.astype(np.uint8).reshape(rows, -1)
