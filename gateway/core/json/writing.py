"""Functions that write JSON. orjson does most of the work. This module adds NaN, integers that do not fit in 64 bits,
and large values in pieces."""

from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from math import isfinite, prod
from typing import Any

import msgspec
import numpy as np
import orjson
from msgspec import Raw

from gateway.core import bytes_elements
from gateway.core.errors import ElementError
from gateway.core.json.bulk_numbers import INT64_MIN, UINT64_MAX
from gateway.core.json.document import Json
from gateway.core.messages import STEP
from gateway.core.tensors import Shape

PIECE = 2**14
"""Number of elements that one call of orjson writes.

The call blocks all other threads for 0.4 ms. A call for 15 million elements would block them for 0.4 s. With small
pieces, the next call can also reuse the memory of the text."""

_FEW = 64
"""Maximum length of a list that orjson writes faster as Python numbers than as a numpy array."""

_JOINED = 64 * 2**10
"""Maximum size in bytes of a value whose pieces the writer joins.

Up to this size, copying costs less than handling several parts."""


def write(document: Json) -> bytes:
    """Return compact JSON text of plain Python values. NaN and infinities become `null`."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return orjson.dumps(_with_large_integers(document))


def _with_large_integers(document: Json) -> Json:
    """Return `document` with raw digits instead of each integer that does not fit in 64 bits, because orjson cannot
    write these integers."""
    if isinstance(document, dict):
        return {key: _with_large_integers(each) for key, each in document.items()}
    if isinstance(document, (list, tuple)):
        return [_with_large_integers(each) for each in document]
    if isinstance(document, int) and not INT64_MIN <= document <= UINT64_MAX:
        return orjson.Fragment(b"%d" % document)
    return document


class Pieces:
    """The JSON text of a large value, in pieces that `write_message` does not join."""

    __slots__ = ("texts",)

    def __init__(self, texts: Iterable[bytes]) -> None:
        self.texts = tuple(texts)


def write_message(message: Any) -> tuple[bytes, ...]:
    """Return compact JSON text of a message (msgspec Structs or plain Python values) that can contain results of
    `placed`. The result consists of several parts to send in order, because the writer does not join large values."""
    try:
        return (_encode(message),)
    except TypeError:
        pass  # the message contains Pieces, or values that JSON cannot represent
    found: list[Pieces] = []

    def place(each: Any) -> Raw:
        if not isinstance(each, Pieces):
            raise TypeError(f"{type(each).__name__} has no JSON form")
        found.append(each)
        return _RAW_PLACE

    return _with_pieces(msgspec.json.encode(message, enc_hook=place), found)


_encode = msgspec.json.Encoder().encode


def placed(texts: Iterable[bytes]) -> "Raw | Pieces":
    """Return a value for a message of `write_message`. `texts` contains the pieces of the value's JSON text."""
    texts = tuple(texts)
    if len(texts) == 1:
        return Raw(texts[0])
    return Raw(b"".join(texts)) if sum(map(len, texts)) <= _JOINED else Pieces(texts)


def _with_pieces(text: bytes, found: list[Pieces]) -> tuple[bytes, ...]:
    """Return `text` in parts, with the next item of `found` instead of each mark."""
    between = text.split(_MARK)
    parts = [part for gap, pieces in zip(between, found, strict=False) for part in (gap, *pieces.texts)]
    return (*parts, between[-1])


# Marks the position of Pieces while the rest is written. The byte 0 cannot occur elsewhere, because JSON strings
# contain it only as an escape.
_MARK = b"\0"
_RAW_PLACE = Raw(_MARK)


def numbers(array: "np.ndarray[Any, Any]", nan: str, what: str) -> "Raw | Pieces":
    """Return `array` as a value in a message for `write_message`.

    For the arguments and errors, see `number_pieces`."""
    if array.size <= _FEW and array.dtype.kind in "biuf":
        plain: list[Any] = array.tolist()
        if array.ndim == 1 and isfinite(sum(plain)):
            return Raw(orjson.dumps(plain))
    return placed(number_pieces(array, nan, what))


def string_pieces(lists: Iterable[list[str]]) -> Iterator[bytes]:
    """Yield one JSON array of all strings in `lists`, with one piece per list."""
    before = b"["
    for strings in lists:
        if strings:
            # one copy by one call, and other threads can run between calls
            yield b"".join((before, memoryview(orjson.dumps(strings))[1:-1]))
            before = b","
    yield b"]" if before == b"," else b"[]"


def utf8_pieces(lists: Iterable[list[bytes]]) -> Iterator[bytes]:
    """Yield one JSON array of all elements in `lists` as strings, like `string_pieces`. Long elements are written in
    steps.

    Raises:
        UnicodeDecodeError: an element is not UTF-8.
    """
    before = b"["
    for elements in lists:
        if max(map(len, elements), default=0) > STEP:
            for element in elements:
                yield before + b'"'
                yield from (orjson.dumps(text)[1:-1] for text in bytes_elements.texts(element))
                yield b'"'
                before = b","
        elif elements:
            yield b"".join((before, memoryview(orjson.dumps(list(map(bytes.decode, elements))))[1:-1]))
            before = b","
    yield b"]" if before == b"," else b"[]"


def nested_string_pieces(lists: Iterable[list[str]], shape: Shape) -> Iterator[bytes]:
    """Yield the strings of all `lists` as a JSON array nested according to `shape` (of rank 1 or more), in pieces of
    about PIECE strings. Python lists of all rows would take 100 bytes of memory for 2 bytes of JSON."""
    yield (yield from _nested_pieces(_Strings(lists), shape, b""))


def string_rows(lists: Iterable[list[str]], shape: Shape) -> list[bytes]:
    """Return each row of the array that `nested_string_pieces` writes, as JSON text."""
    strings, rows, size = _Strings(lists), shape[0], prod(shape[1:])
    if size > PIECE:
        return [b"".join(nested_string_pieces(strings.lists(size), shape[1:])) for _ in range(rows)]
    step, texts = PIECE // max(1, size), list[bytes]()
    for at in range(0, rows, step):
        count = min(step, rows - at)
        texts += [kept(orjson.dumps(row)) for row in _nested(strings.take(count * size), (count, *shape[1:]))]
    return texts


class _Strings:
    """The strings of several lists. The caller takes the strings in groups whose sizes can differ from the sizes of the
    lists."""

    def __init__(self, lists: Iterable[list[str]]) -> None:
        self._lists = iter(lists)
        self._rest: list[str] = []

    def take(self, count: int) -> list[str]:
        """Return the next `count` strings."""
        found = self._rest
        while len(found) < count:
            found = found + next(self._lists)
        self._rest = found[count:]
        return found[:count]

    def lists(self, count: int) -> Iterator[list[str]]:
        """Yield the next `count` strings, in lists of at most PIECE strings."""
        for at in range(0, count, PIECE):
            yield self.take(min(PIECE, count - at))


def _nested_pieces(strings: _Strings, shape: Shape, before: bytes) -> Generator[bytes, None, bytes]:
    """Yield the pieces of the array. The first piece begins with `before`. Return the end of the array, which belongs
    to the next piece."""
    rows, size = shape[0], prod(shape[1:])
    before += b"["
    if size > PIECE:  # each row consists of several pieces
        for _ in range(rows):
            before = (yield from _nested_pieces(strings, shape[1:], before)) + b","
    else:
        step = PIECE // max(1, size)
        for at in range(0, rows, step):
            count = min(step, rows - at)
            text = orjson.dumps(_nested(strings.take(count * size), (count, *shape[1:])))
            yield b"".join((before, memoryview(text)[1:-1]))
            before = b","
    return (before[:-1] if rows else before) + b"]"


def _nested(strings: list[str], shape: Shape) -> Any:
    if len(shape) == 1:
        return strings
    flat = np.empty(len(strings), object)
    flat[:] = strings
    return flat.reshape(shape).tolist()


_LONG = 1024


def kept(text: bytes) -> bytes:
    """Return a text that orjson wrote, without its unused memory, because many of these texts are stored.

    The function copies short texts, because orjson allocates at least a kilobyte. Without the copy, the unused part
    would stay allocated as long as the text exists."""
    return text if len(text) > _LONG else bytes(memoryview(text))


def write_numbers(array: "np.ndarray[Any, Any]", nan: str, what: str) -> bytes:
    """Return the text of `number_pieces` as one piece."""
    return b"".join(number_pieces(array, nan, what))


def number_pieces(array: "np.ndarray[Any, Any]", nan: str, what: str) -> Iterable[bytes]:
    """Return `array` (booleans, integers or floats) as a JSON array nested according to its shape, in pieces of about
    PIECE numbers. For rank 0, the result is a plain number. Floats are first widened to double, so every reader reads
    the same number.

    `nan` selects the representation of NaN and infinities: `literal` (NaN, Infinity, -Infinity), `null`, `string` (the
    same words in quotes), or `error`.

    Raises:
        GatewayError: INVALID_ARGUMENT if `nan` is `error` and an element is not finite. The message contains `what` and
            the element.
    """
    return (_write_piece(array, nan, what, 0),) if array.size <= PIECE else _write_pieces(array, nan, what, 0)


def number_rows(text: bytes, rank: int) -> list[bytes]:
    """Return the rows of a JSON array of numbers. A row ends where `rank - 1` brackets close and open again."""
    closing, opening = b"]" * (rank - 1), b"[" * (rank - 1)
    rows = text[rank : len(text) - rank].split(closing + b"," + opening)
    return [opening + row + closing for row in rows] if rank > 1 else rows


def _write_pieces(array: "np.ndarray[Any, Any]", nan: str, what: str, first: int) -> Iterator[bytes]:
    """Yield the JSON of a part of an array, in pieces. The part starts at element `first` of the entire array, and has
    more than PIECE numbers."""
    row = array.size // len(array)
    rows = max(1, PIECE // row)
    before = b"["
    for at in range(0, len(array), rows):
        some, place = array[at : at + rows], first + at * row
        if row > PIECE:
            yield before
            yield from _write_pieces(some[0], nan, what, place)
        else:
            # one copy, as in string_pieces
            yield b"".join((before, memoryview(_write_piece(some, nan, what, place))[1:-1]))
        before = b","
    yield b"]"


def _write_piece(array: "np.ndarray[Any, Any]", nan: str, what: str, first: int) -> bytes:
    is_exact = array.dtype.kind in "biu"
    text = _write_array(array if is_exact else array.astype(np.float64, copy=False))
    # orjson writes NaN and infinities as null, and no finite number contains the letter n
    return text if is_exact or b"n" not in text else _replace_nulls(text, array, nan, what, first)


def _write_array(array: "np.ndarray[Any, Any]") -> bytes:
    if array.ndim == 0 or array.size == 0:
        return orjson.dumps(array.tolist())
    # orjson expects aligned memory, which views of a message often are not
    if not (array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative):
        array = np.require(array, array.dtype.newbyteorder("="), ["C", "A"])
    return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)


REFUSED = "refused"
"""A value of `nan` with the same effect as `error`, for text that is not for JSON."""
_NOT_FINITE = {
    "literal": (b"NaN", b"Infinity", b"-Infinity"),
    "string": (b'"NaN"', b'"Infinity"', b'"-Infinity"'),
    "null": (b"null", b"null", b"null"),
}


def _replace_nulls(text: bytes, array: "np.ndarray[Any, Any]", nan: str, what: str, first: int) -> bytes:
    """Return `text`, which was written from `array`, with each null replaced according to `nan`."""
    flat = array.astype(np.float64, copy=False).reshape(-1)
    places = np.flatnonzero(~np.isfinite(flat))
    others = flat[places].tolist()
    if nan not in _NOT_FINITE:
        why = "which the route refuses" if nan == REFUSED else "for which JSON has no number"
        raise ElementError(
            f"{what}: element {first + places[0]} is {others[0]}, {why}; "
            "`translate: {nan: literal}` (or null, or string) would write it"
        )
    not_a_number, above, below = _NOT_FINITE[nan]
    words = [not_a_number if other != other else above if other > 0 else below for other in others]
    return b"".join(chain.from_iterable(zip(text.split(b"null"), [*words, b""], strict=True)))
