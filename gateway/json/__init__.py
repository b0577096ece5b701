"""JSON with numbers in bulk: tensor data goes straight into arrays, everything else into plain Python values.

Refused, since real servers disagree on what they mean or die of them: duplicate keys, nesting beyond 64, ragged arrays,
bytes after the document, and more values outside tensor data than the limit.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import orjson

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.types import Buffer
from gateway.json.arrays import Array, Form, read_array
from gateway.json.bulk_numbers import BLANKS, INT64_MAX, INT64_MIN, MAX_DEPTH, UINT64_MAX, Numbers, Text
from gateway.json.document import AllBut, Wanted, read_document
from gateway.json.small import read_small

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "MAX_DEPTH",
    "UINT64_MAX",
    "Array",
    "Form",
    "Numbers",
    "Pieces",
    "in_document",
    "number_pieces",
    "numbers",
    "read",
    "read_bare",
    "read_members",
    "string_pieces",
    "write",
    "write_numbers",
    "write_parts",
]

Json: TypeAlias = Any

_SMALL = 8192  # bytes; about where cutting the arrays out becomes cheaper than making Python numbers
PIECE = 2**16
"""Numbers. orjson lets no other thread work while it writes: 15 million take 0.4 s, these some ms."""

_JOINED = 64 * 2**10  # bytes of a value up to which joining its text costs nothing
_BOM = b"\xef\xbb\xbf"


def read(
    body: Buffer, arrays: Mapping[str, Form], *, values: int, literals: bool, level: int | None = None
) -> dict[str, Json]:
    """The JSON object in `body`.

    Wherever a key of `arrays` stands, its value is an Array (Form.ARRAY) or a list of them (Form.VECTORS): at any
    level, or at `level` alone (the document's own keys are at 1, those of objects in a list there at 3), so that such
    a key elsewhere is an ordinary one. `values` limits how many values may stand outside those arrays
    (`limits.json_values`), and how many more containers than elements within them. `literals`: NaN, Infinity and
    -Infinity (also `nan`, `inf` and `-inf`, as old UM-Bridge servers print them) are numbers. 1e400 never is one, nor
    an infinity: the text means a finite number that no double holds.

    Raises:
        DecodeError: not JSON, not an object, or one of the things that the module refuses; says where.
    """
    text = (body if isinstance(body, bytes) else bytes(body)).removeprefix(_BOM)
    if not text or text.isspace():
        raise DecodeError("empty body, expected a JSON object")
    wanted = Wanted(arrays, level)
    if len(text) <= _SMALL and b"\\" not in text:
        try:
            return read_small(text, wanted, values)
        except DecodeError:
            pass  # the careful way tells whether it is one, and why
    return read_document(text, wanted, values, literals)


def read_members(body: Buffer, plain: Container[str], *, values: int, literals: bool) -> dict[str, Json]:
    """The JSON object in `body`, of which every member of its own is an Array (of shape () for a scalar), but for those
    named in `plain`. `values` and `literals` are those of `read`.

    Raises:
        DecodeError: as `read`; also a member that is null or an object, or ragged.
    """
    return read(body, AllBut(plain), values=values, literals=literals, level=1)


def read_bare(text: bytes, *, values: int, literals: bool) -> Array:
    """The rectangular array, or the scalar, that the whole of `text` is: numbers, booleans or strings. `values` and
    `literals` are those of `read`.

    Raises:
        DecodeError: it is something else.
    """
    text = text.strip(BLANKS)
    if text.startswith(b"{"):
        raise DecodeError("an object, expected an array")
    return read_array(Text(text, 0, len(text)), values, literals)


def write(document: Json) -> bytes:
    """Compact JSON text of plain Python values (no bare NaN among them)."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return orjson.dumps(_with_large_integers(document))


def _with_large_integers(document: Json) -> Json:
    """`document` with its integers beyond 64 bits as their digits: orjson refuses them, JSON knows no such limit."""
    if isinstance(document, dict):
        return {key: _with_large_integers(each) for key, each in document.items()}
    if isinstance(document, (list, tuple)):
        return [_with_large_integers(each) for each in document]
    if isinstance(document, int) and not INT64_MIN <= document <= UINT64_MAX:
        return orjson.Fragment(b"%d" % document)
    return document


class Pieces:
    """The JSON text of a large value, in pieces: `write_parts` takes it for what it says."""

    __slots__ = ("texts",)

    def __init__(self, texts: Iterable[bytes]) -> None:
        self.texts = tuple(texts)


def write_parts(document: Json) -> tuple[bytes, ...]:
    """As `write`, in parts: the Pieces in `document` stay what they are, and are not joined."""
    found: list[Pieces] = []

    def place(each: Json) -> orjson.Fragment:
        if not isinstance(each, Pieces):
            raise TypeError
        found.append(each)
        return _PLACE

    try:
        text = orjson.dumps(document, place)
    except TypeError:
        found.clear()
        text = orjson.dumps(_with_large_integers(document), place)
    if not found:
        return (text,)
    between = text.split(_MARK)
    parts = [part for gap, pieces in zip(between, found, strict=False) for part in (gap, *pieces.texts)]
    return (*parts, between[-1])


# Nothing else writes this byte: in JSON's strings it is an escape.
_MARK = b"\0"
_PLACE = orjson.Fragment(_MARK)


def numbers(array: "np.ndarray[Any, Any]", nan: str, what: str) -> "orjson.Fragment | Pieces":
    """What `write_numbers` writes, as a value of a document that `write_parts` writes."""
    if array.size <= PIECE:
        return orjson.Fragment(_write_piece(array, nan, what, 0))
    return in_document(tuple(_write_pieces(array, nan, what, 0)))


def in_document(texts: tuple[bytes, ...]) -> "orjson.Fragment | Pieces":
    """The value of which these are the text, in a document that `write_parts` writes."""
    if len(texts) == 1:
        return orjson.Fragment(texts[0])
    return orjson.Fragment(b"".join(texts)) if sum(map(len, texts)) <= _JOINED else Pieces(texts)


def string_pieces(lists: Iterable[list[str]]) -> Iterator[bytes]:
    """The JSON array of the strings in `lists`, in pieces."""
    before = b"["
    for strings in lists:
        if strings:
            yield before + orjson.dumps(strings)[1:-1]
            before = b","
    yield b"]" if before == b"," else b"[]"


def write_numbers(array: "np.ndarray[Any, Any]", nan: str, what: str) -> bytes:
    """The JSON array of `array`, nested as its shape; a bare number for rank 0. Raises as `number_pieces`."""
    return b"".join(number_pieces(array, nan, what))


def number_pieces(array: "np.ndarray[Any, Any]", nan: str, what: str) -> Iterable[bytes]:
    """The JSON array of `array`, nested as its shape, in pieces of about PIECE numbers; a bare number for rank 0.
    Floats are widened to double first, so that every reader gets the same number.

    `nan` says how NaN and infinities are written: `literal` (NaN, Infinity, -Infinity), `null`, `string`, or `error`.

    Raises:
        GatewayError: INVALID_ARGUMENT naming `what`, for `error`.
    """
    return (_write_piece(array, nan, what, 0),) if array.size <= PIECE else _write_pieces(array, nan, what, 0)


def _write_pieces(array: "np.ndarray[Any, Any]", nan: str, what: str, first: int) -> Iterator[bytes]:
    """Of an array that is large, and whose first element is the `first` of all that are written."""
    row = array.size // len(array)
    rows = max(1, PIECE // row)
    before = b"["
    for at in range(0, len(array), rows):
        some, place = array[at : at + rows], first + at * row
        if row > PIECE:
            yield before
            yield from _write_pieces(some[0], nan, what, place)
        else:
            yield before + _write_piece(some, nan, what, place)[1:-1]
        before = b","
    yield b"]"


def _write_piece(array: "np.ndarray[Any, Any]", nan: str, what: str, first: int) -> bytes:
    whole = array.dtype.kind in "biu"
    text = _write_array(array if whole else array.astype(np.float64, copy=False))
    # numbers and booleans are written without an n; whatever is not finite orjson writes as null, without a word
    return text if whole or b"n" not in text else _with_words(text, array, nan, what, first)


def _write_array(array: "np.ndarray[Any, Any]") -> bytes:
    if array.ndim == 0 or array.size == 0:
        return orjson.dumps(array.tolist())
    # orjson takes the array for aligned, which views on a message often are not
    if not (array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative):
        array = np.require(array, array.dtype.newbyteorder("="), ["C", "A"])
    return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)


_WORDS = {
    "literal": (b"NaN", b"Infinity", b"-Infinity"),
    "string": (b'"NaN"', b'"Infinity"', b'"-Infinity"'),
    "null": (b"null", b"null", b"null"),
}


def _with_words(text: bytes, array: "np.ndarray[Any, Any]", nan: str, what: str, first: int) -> bytes:
    """`text` with the words that `nan` wants in place of each null."""
    flat = array.astype(np.float64, copy=False).reshape(-1)
    places = np.flatnonzero(~np.isfinite(flat))
    others = flat[places].tolist()
    if nan not in _WORDS:
        raise invalid_input(
            f"{what}: element {first + places[0]} is {others[0]}, for which JSON has no number; "
            "`translate: {nan: literal}` (or null, or string) would write it"
        )
    not_a_number, above, below = _WORDS[nan]
    words = [not_a_number if other != other else above if other > 0 else below for other in others]
    return b"".join(chain.from_iterable(zip(text.split(b"null"), [*words, b""], strict=True)))
