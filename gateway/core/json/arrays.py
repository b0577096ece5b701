"""Functions that read one rectangular array of numbers, booleans or strings from JSON text. The nesting of the lists
determines the array's shape."""

import re
from enum import Enum
from io import BytesIO
from math import prod

from msgspec import Struct

from gateway.core.errors import DecodeError
from gateway.core.json.bulk_numbers import BLANKS, MAX_DEPTH, Numbers, Text, read_numbers
from gateway.core.json.bulk_strings import Strings, read_string
from gateway.core.tensors import Shape

_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[],"))
_COMMA = ord(",")

_PIECE = 2**20
"""Number of bytes to compare in one call into C.

The call blocks all other threads: for 64 MiB, it would block them for 60 ms."""


class ArrayForm(Enum):
    """The way in which to read the value of a key."""

    ARRAY = "one rectangular array of any rank, or one scalar"
    VECTORS = "a list of vectors of any lengths, each perhaps a scalar"

    # Members are singletons, so comparing and hashing by identity is correct, and keeps cached lookups cheap.
    __hash__ = object.__hash__


class Array(Struct, frozen=True):
    """One rectangular JSON array, or a scalar.

    `shape` is () for a scalar. `values` is a flat, row-major numpy array. Booleans have the type bool, and numbers have
    the type int64. The type is uint64 if a literal is above the range of INT64, and float64 if a literal has a fraction
    or an exponent. An array without elements is int64. If the elements are strings, `values` is their raw format of
    BYTES, in UTF-8."""

    values: Numbers | bytes
    shape: Shape


def read_array(text: Text, values: int, literals: bool) -> Array:
    """Return the array or scalar in `text`, which contains no JSON object.

    Raises:
        DecodeError: the text is not JSON, is ragged or mixed, or contains a value other than a number, boolean or
        string.
    """
    if text.has(b'"'):
        return _read_strings(text, values)
    if not text.begins(b"["):
        return _read_scalar(text, literals)
    numbers = read_numbers(text, values, literals)
    if text.body.find(b"[", text.start + 1, text.end) < 0:
        return Array(numbers, (len(numbers),))
    return Array(numbers, _nesting(_structure(text), len(numbers)))


def nesting(text: bytes, leaves: int) -> Shape:
    """Return the shape of a nested list of `leaves` numbers.

    Raises DecodeError if the list is ragged or nested too deeply."""
    rank, close = text.rfind(b"[") + 1, text.find(b"]")
    if text.startswith(_OPENINGS[:rank]) and len(text) - close == rank <= MAX_DEPTH and text.endswith(_CLOSINGS[:rank]):
        return (*_ONES[: rank - 1], leaves)  # a single row
    return _nesting(text.translate(None, _NOT_STRUCTURE), leaves)


_OPENINGS, _CLOSINGS, _ONES = b"[" * MAX_DEPTH, b"]" * MAX_DEPTH, (1,) * MAX_DEPTH


def read_vectors(text: Text, values: int, literals: bool) -> list[Array]:
    """Return the vectors of a list. A vector is an array without nesting, or a single number.

    Raises:
        DecodeError: same as `read_array`. The error is also raised if the list is nested deeper, or contains more than
        `values` vectors.
    """
    body, close = text.body, text.body.rfind(b"]", text.start, text.end)
    if text.has(b'"'):
        raise DecodeError("a string is not a number")
    if not text.begins(b"["):
        raise DecodeError("expected a list of vectors")
    if close < 0 or body[close + 1 : text.end].strip(BLANKS):
        raise DecodeError("not JSON: the list does not end where it should")
    vectors: list[Array] = []
    if not body[text.start + 1 : close].strip(BLANKS):
        return vectors
    at = text.start + 1
    while at <= close:
        if len(vectors) == values:
            raise DecodeError(f"more than {values} vectors; raise limits.json_values if they are meant")
        vector = _next_vector(body, at, close)
        try:
            vectors.append(read_array(vector, values, literals))
        except DecodeError as error:
            raise DecodeError(f"vector {len(vectors)}: {error}") from error
        at = vector.end + 1
    return vectors


_OPENING = re.compile(rb"[ \t\r\n]*+")
_CLOSING = re.compile(rb"\][ \t\r\n]*+")


def _next_vector(body: bytes, at: int, close: int) -> Text:
    """Return the text of the vector that begins at offset `at`. The text ends before the next comma or the end of the
    list."""
    start = _end_of(_OPENING, body, at, close)
    if not body.startswith(b"[", start, close):
        comma = body.find(b",", start, close)
        return Text(body, start, close if comma < 0 else comma)
    end = body.find(b"]", start, close)
    if end < 0:
        raise DecodeError("not JSON: the end of a vector is missing")
    if body.find(b"[", start + 1, end) >= 0:
        raise DecodeError("nested deeper than a list of vectors")
    end = _end_of(_CLOSING, body, end, close)
    if end < close and not body.startswith(b",", end):
        raise DecodeError("not JSON: no comma between two vectors")
    return Text(body, start, end)


def _end_of(pattern: "re.Pattern[bytes]", body: bytes, at: int, end: int) -> int:
    match = pattern.match(body, at, end)
    return match.end() if match else at


def _read_scalar(text: Text, literals: bool) -> Array:
    scalar = text.bytes.strip(BLANKS)
    if not scalar or any(mark in scalar for mark in b",[]"):
        raise DecodeError("not JSON: expected one value")
    return Array(read_numbers(Text(b"[" + scalar + b"]", 0, len(scalar) + 2), 1, literals), ())


def _structure(text: Text) -> bytes:
    """Return the brackets and commas of a text without strings."""
    if text.end - text.start <= _PIECE:
        return text.bytes.translate(None, _NOT_STRUCTURE)
    structure = BytesIO()  # no other thread could run during a large join
    for at in range(text.start, text.end, _PIECE):
        structure.write(text.body[at : min(at + _PIECE, text.end)].translate(None, _NOT_STRUCTURE))
    return structure.getvalue()


def _nesting(structure: bytes, leaves: int) -> Shape:
    """Return the shape of an array of `leaves` elements. `structure` is the array's text, reduced to brackets and
    commas.

    The structure of a rectangular array is a repetition: three rows `[,,]` give `[[,,],[,,],[,,]]`. Therefore, at each
    level, from the innermost level outward, the first block must repeat the first block of the next inner level.

    Raises:
        DecodeError: the array is ragged, or nested deeper than MAX_DEPTH.
    """
    opened = structure[: MAX_DEPTH + 1]
    rank = len(opened) - len(opened.lstrip(b"["))
    if rank > MAX_DEPTH:
        raise DecodeError(f"nested deeper than {MAX_DEPTH}")
    # the first block of a level begins at the level's bracket and ends before `end`
    end = structure.find(b"]") + 1
    if structure.find(b"[", rank, end) >= 0:
        raise _ragged()
    size = end - (rank - 1)
    shape = [size - 1]
    for inner in range(1, rank):
        start = rank - inner - 1
        # the block ends at the first run of this many closing brackets
        end = structure.find(b"]" * (inner + 1)) + inner + 1
        count = max(1, (end - start - 1) // (size + 1))
        if end - start != count * (size + 1) + 1 or not _is_repeated(structure, start + 1, end - 1, size):
            raise _ragged()
        size = end - start
        shape.insert(0, count)
    if end != len(structure):
        raise _ragged()
    if leaves == 0:
        shape[-1] = 0  # without numbers, `[[1], [2]]` and `[[], []]` look alike
    if leaves != prod(shape):
        raise DecodeError("ragged: its rows differ in length")
    return tuple(shape)


def _is_repeated(structure: bytes, start: int, end: int, size: int) -> bool:
    """Return whether `structure[start:end]` consists of copies of its first `size` bytes, with commas in between."""
    step = size + 1
    if end - start > size and structure[start + size] != _COMMA:
        return False
    # from the second block on, each byte equals the byte one block earlier
    return all(
        structure[at : min(at + _PIECE, end)] == structure[at - step : min(at + _PIECE, end) - step]
        for at in range(start + step, end, _PIECE)
    )


def _ragged() -> DecodeError:
    return DecodeError("ragged: its rows differ in length or depth")


def _read_strings(text: Text, values: int) -> Array:
    if not text.begins(b"["):
        return Array(read_string(text), ())
    strings = Strings(text, values)
    return Array(strings.raw, _nesting(strings.structure, strings.count))
