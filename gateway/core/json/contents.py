"""Functions that convert one tensor's content from the text of a JSON array to raw data, and back.

In requests and responses, message types (msgspec Structs) keep a tensor's `data` as JSON text. The functions of this
module convert the text in bulk. If a flat list contains only numbers of the datatype's own kind, it is converted
directly to raw data. Any other text becomes an Array, which the caller checks and casts.
"""

from collections.abc import Iterable
from struct import Struct, unpack
from struct import error as StructError  # noqa: N812

import numpy as np
import orjson

from gateway.core.casting import cast
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.json.arrays import Array, nesting, read_array
from gateway.core.json.bulk_numbers import BLANKS, PIECE, Text, flat_pieces, has_fraction, parse_raw
from gateway.core.json.writing import number_pieces
from gateway.core.messages import Buffer
from gateway.core.tensors import Shape

LETTERS = {
    Datatype.INT8: "b", Datatype.INT16: "h", Datatype.INT32: "i", Datatype.INT64: "q",
    Datatype.UINT8: "B", Datatype.UINT16: "H", Datatype.UINT32: "I", Datatype.UINT64: "Q",
    Datatype.FP32: "f", Datatype.FP64: "d",
}  # fmt: skip
"""The format letters of `struct` for the datatypes that `struct` converts correctly.

Like `casting`, `struct` rounds floats to the nearest value, and rejects values that are out of range."""

_FEW_READ = 64
"""Maximum length of a list that orjson and `struct` convert to raw data faster than simdjson and numpy."""
_PACKERS = {
    datatype: [Struct(f"<{count}{letter}").pack for count in range(_FEW_READ + 1)]
    for datatype, letter in LETTERS.items()
    if datatype.size < 8
}
"""The functions that pack numbers, by datatype and by count. The table is necessary because `struct` itself caches only
100 formats for all datatypes together."""
_POINT, _SMALL_E, _OPENING = b".e["  # integers: finding one takes a quarter of the time of a byte string
_FEW_WRITTEN = 64
"""Maximum length of a list that orjson writes faster as Python numbers than as a numpy array."""


def packed(text: Buffer | Text, datatype: Datatype, count: int) -> Buffer | None:
    """Return the raw data of the flat JSON list `text`, which begins with its bracket and contains `count` numbers. For
    an integer datatype, all numbers must be integers.

    Returns None for every other text, and for FP16, BF16, BOOL and BYTES. In these cases, `array` reads the text or
    reports the error. The result is the same as with `array` followed by `cast`. The function allocates memory only for
    as many numbers as the text can contain."""
    letter = LETTERS.get(datatype)
    if letter is None or not count:
        return None
    if isinstance(text, Text):
        text = text.bytes if text.end - text.start <= PIECE else _list_in(text)
    if len(text) > PIECE:
        return _packed_in_pieces(text, datatype, count)
    text = bytes(text)
    is_float, has_point = letter in "fd", _POINT in text
    # `struct` accepts true and false as numbers, and would round integers twice on their way to FP32.
    packers = _PACKERS.get(datatype)
    if packers is not None and count <= _FEW_READ and (has_point or not is_float) and _SMALL_E not in text:
        try:
            return packers[count](*orjson.loads(text))
        except (StructError, OverflowError, TypeError, orjson.JSONDecodeError):
            return None
    # a number takes at least two bytes: a digit, and a comma or the closing bracket; a flat list has one opening
    # bracket
    if 2 * count >= len(text) or text.rfind(_OPENING) != 0:
        return None
    if is_float and (has_point or has_fraction(text)):
        code, numbers = "d", parse_raw(text, "d")
    else:
        code, numbers = "q", parse_raw(text, "i")
        if numbers is None:
            code, numbers = "Q", parse_raw(text, "u")
    if numbers is None or len(numbers) != 8 * count:
        return None
    return numbers if letter == code else _converted(numbers, code, datatype)


def shaped(text: bytes, datatype: Datatype) -> tuple[Buffer, Shape] | None:
    """Return the raw data and the shape of the nested or flat JSON list `text`, which begins with its bracket and
    contains numbers. For an integer datatype, all numbers must be integers.

    Like `packed`, returns None for every other text, and for FP16, BF16, BOOL and BYTES. Raises DecodeError if the list
    is ragged."""
    letter = LETTERS.get(datatype)
    if letter is None or len(text) > PIECE:
        return None
    if letter in "fd" and (b"." in text or has_fraction(text)):
        code, numbers = "d", parse_raw(text, "d")
    else:
        code, numbers = "q", parse_raw(text, "i")
        if numbers is None:
            code, numbers = "Q", parse_raw(text, "u")
    if numbers is None:
        return None
    count = len(numbers) // 8
    shape = nesting(text, count) if text.rfind(b"[") else (count,)
    data = numbers if letter == code else _converted(numbers, code, datatype)
    return None if data is None else (data, shape)


def _list_in(text: Text) -> Buffer:
    """Return the list in `text` without trailing blanks, or empty bytes if the text is not a list."""
    end = text.body.rfind(b"]", text.start, text.end) + 1
    return memoryview(text.body)[text.start : end] if end and not text.body[end : text.end].strip(BLANKS) else b""


def _converted(numbers: bytes, code: str, datatype: Datatype) -> Buffer | None:
    """Convert 8-byte `numbers`, whose `struct` letter is `code`, to `datatype`. Return None if a number is out of
    range."""
    try:
        return cast(np.frombuffer(numbers, _DTYPES[code]), datatype, "").tobytes()
    except DecodeError:
        return None


_DTYPES = {"d": np.dtype("<f8"), "q": np.dtype("<i8"), "Q": np.dtype("<u8")}


def _packed_in_pieces(text: Buffer, datatype: Datatype, count: int) -> Buffer | None:
    if 2 * count >= len(text):
        return None
    raw, at = np.empty(count, datatype.dtype), 0
    try:
        for numbers in flat_pieces(text, datatype.dtype.kind):
            to = at + len(numbers)
            if to > count:
                return None
            raw[at:to] = cast(numbers, datatype, "")
            at = to
    except DecodeError:
        return None
    return raw.view(np.uint8).data if at == count else None


def array(text: Buffer | Text, *, values: int, literals: bool) -> Array:
    """Return the array or scalar in `text`: numbers, booleans or strings, nested or flat.

    `values` and `literals` have the same meaning as in `gateway.core.json.read`.

    Raises:
        DecodeError: the text is not JSON, is ragged or mixed, or is an object.
    """
    if isinstance(text, Text):
        return read_array(text, values, literals)
    body = bytes(text).strip(BLANKS)
    if body.startswith(b"{"):
        raise DecodeError("an object, expected an array")
    return read_array(Text(body, 0, len(body)), values, literals)


_N = ord("n")


def written(data: Buffer, datatype: Datatype, nan: str, what: str) -> Iterable[bytes]:
    """Return the numbers or booleans in the raw `data` as a flat JSON list, in pieces of text.

    For the arguments and errors, see `number_pieces`."""
    letter = LETTERS.get(datatype)
    if letter is not None and len(data) <= _FEW_WRITTEN * datatype.size:
        text = orjson.dumps(unpack(f"<{len(data) // datatype.size}{letter}", data))
        if _N not in text:  # the bytes of null, which represents NaN and infinities
            return (text,)
    return number_pieces(np.frombuffer(data, datatype.dtype), nan, what)


# --- Protocols without datatypes, in which the literals determine the datatype ---

UNTYPED = {"i": Datatype.INT64, "u": Datatype.UINT64, "f": Datatype.FP64, "b": Datatype.BOOL}
"""The datatypes of JSON arrays, by the kind of their numpy dtype."""
_FP64, _INT64, _UINT64 = Datatype.FP64, Datatype.INT64, Datatype.UINT64


def untyped_numbers(text: bytes) -> tuple[Datatype, bytes, Shape]:
    """Return the JSON list of numbers in `text` as raw data.

    The datatype is FP64 if a literal has a fraction or an exponent, UINT64 if a literal is above the range of INT64,
    otherwise INT64. The nesting determines the shape. `contents.array` returns the same result, but takes three times
    as long for a few numbers.

    Raises:
        DecodeError: the text is anything else, is ragged, or contains integers that do not all fit in one type.
    """
    if not text.startswith(b"["):
        raise DecodeError
    if has_fraction(text):
        datatype, data = _FP64, parse_raw(text, "d")
    else:
        datatype, data = _INT64, parse_raw(text, "i")
        if data is None:
            datatype, data = _UINT64, parse_raw(text, "u")
    if data is None:
        raise DecodeError
    count = len(data) // 8
    return datatype, data, nesting(text, count) if text.rfind(b"[") else (count,)
