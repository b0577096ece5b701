"""Functions that read arrays of numbers and booleans from JSON text with simdjson, in pieces, without Python objects.

Because of the pieces, the parser's own memory (14 bytes for each byte of text) fits in the processor's cache. For each
piece, the module tries these methods in order, from fast to slow:

1. simdjson reads numbers as int64, uint64 or double.
2. Booleans: simdjson reads the text after 1 and 0 have replaced the booleans.
3. NaN and infinities, if allowed: simdjson reads the text after unusual doubles have replaced them. The module then
   replaces these doubles with NaN and infinities.
4. Python's json, for at most _SLOW_LIMIT bytes, reads integers of any size, and raises errors that identify the
   element.

Finally, the module joins the pieces to one array, whose type depends on the literals in all pieces.
"""

import json
import threading
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Literal, TypeAlias

import numpy as np
import simdjson
from msgspec import Struct

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen
from gateway.core.messages import Buffer

MAX_DEPTH = 64
INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1
BLANKS = b" \t\r\n"

PIECE = 2**18  # bytes; 64 KiB to 1 MiB are equally fast; above 1 MiB, the parser's memory exceeds the cache
_SLOW_LIMIT = 2**24  # bytes of one array; Python's json takes half a second for them

Numbers: TypeAlias = np.ndarray[Any, Any]


class Text(Struct, frozen=True, gc=False):
    """The text of one JSON value, `body[start:end]`. Blanks can follow the value."""

    body: bytes
    start: int
    end: int

    def has(self, piece: bytes) -> bool:
        """Return whether the text contains `piece`."""
        return self.body.find(piece, self.start, self.end) >= 0

    def begins(self, piece: bytes) -> bool:
        """Return whether the text begins with `piece`."""
        return self.body.startswith(piece, self.start, self.end)

    @property
    def bytes(self) -> bytes:
        """A copy of the text."""
        return self.body[self.start : self.end]


def read_numbers(text: Text, values: int, literals: bool) -> Numbers:
    """Return the numbers or booleans of an array as a flat array of int64, uint64, float64 or bool (see `Array`).

    The function checks brackets and commas according to the JSON grammar, but the array can be ragged.

    Raises:
        DecodeError: the text is not JSON, mixes numbers with booleans, contains a number out of range, or has more
            nested arrays than the number of elements plus `values`.
    """
    if text.end - text.start <= PIECE:  # true for most texts: one piece, with numbers only
        whole = text.bytes
        numbers = _parse_numbers(whole)
        # an array takes at least two bytes
        if numbers is not None and (len(whole) <= 2 * values or _occurrences(whole, b"[") <= numbers.size + values):
            return numbers
    return _ArrayReader(values, literals).read(text)


def _parse_numbers(text: bytes) -> Numbers | None:
    return _simd.parse(text, *(("d",) if has_fraction(text) else ("i", "u")))


def flat_pieces(text: Buffer, kind: str) -> Iterator[Numbers]:
    """Yield the numbers of the JSON list `text`, which has no nesting, in pieces. The numpy `kind` of the pieces is `f`
    (float64), `i` (int64) or `u` (uint64).

    Raises:
        DecodeError: the text is anything else, or a number is out of the kind's range. For `f`, the error is also
            raised if no number has a fraction or an exponent, because converting integers to a smaller float would
            round them twice.
    """
    code, is_certain = _CODES[kind], kind != "f"
    for piece in _flat_texts(memoryview(text)):
        numbers = _simd.parse(piece, code) if piece.find(b"[", 1) < 0 else None
        if numbers is None or not len(numbers):
            raise DecodeError("not a list of such numbers")
        is_certain = is_certain or has_fraction(piece)
        yield numbers
    if not is_certain:
        raise DecodeError("integers, expected floats")


def _flat_texts(view: memoryview) -> Iterator[bytearray]:
    """Split the text of a list without nesting into pieces of about PIECE bytes, which are lists themselves."""
    if view[0] != _OPENING or view[-1] != _CLOSING:
        raise DecodeError("not a list")
    at, end = 1, len(view) - 1
    while at <= end:
        size = min(PIECE, end - at)
        text = bytearray(size + 2)
        with memoryview(text) as place:
            place[1 : size + 1] = view[at : at + size]
        if at + size < end:
            size = text.rfind(b",") - 1
            if size < 0:
                raise DecodeError(f"{PIECE} bytes of an array without a comma")
            del text[size + 2 :]
        text[0], text[-1] = _OPENING, _CLOSING
        yield text
        at += size + 1


_OPENING, _CLOSING = b"[]"


class _Parser(threading.local):
    """One parser per thread, because the arrays that a parser returns are views of its memory."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser()

    def parse(self, text: Buffer, *codes: "Code") -> Numbers | None:
        """Return the numbers in the array `text` as a flat array of the first type in `codes` that can represent all of
        them; None if no type can, or if the text is not an array of numbers."""
        try:
            array: Any = self.parser.parse(text)
        except (ValueError, RuntimeError):
            # simdjson refuses to reuse a parser while anything, even a traceback, refers to its results.
            self.parser = simdjson.Parser()
            return None
        for code in codes:
            try:
                return np.frombuffer(array.as_buffer(of_type=code), _DTYPES[code])
            except (TypeError, ValueError):
                continue
        return None

    def parse_raw(self, text: bytes, code: "Code") -> bytes | None:
        """Return the same numbers as `parse`, but as the bytes of one type. For a few numbers, this takes half the
        time."""
        try:
            array: Any = self.parser.parse(text)
            return bytes(array.as_buffer(of_type=code))
        except (TypeError, ValueError, RuntimeError):
            self.parser = simdjson.Parser()
            return None


Code: TypeAlias = Literal["i", "u", "d"]

_DTYPES: dict[Code, np.dtype[Any]] = {"i": np.dtype("<i8"), "u": np.dtype("<u8"), "d": np.dtype("<f8")}
_CODES: dict[str, Code] = {"i": "i", "u": "u", "f": "d"}
_simd = _Parser()
parse_raw = _simd.parse_raw


@frozen
class _Piece:
    """The numbers of one piece of the text.

    `beyond` is an error message, which is set if the piece's integers do not all fit in one 64-bit type. The error
    applies only if all literals of the entire array are integers. Otherwise, the array becomes float64."""

    numbers: Numbers
    beyond: str = ""


class _ArrayReader:
    """Reads the elements of one array, piece by piece."""

    def __init__(self, values: int, literals: bool) -> None:
        self._values = values
        self._literals = literals
        self._pieces: list[_Piece] = []
        self._count = 0
        self._depth = 0
        self._containers = 0
        self._slow = 0

    def read(self, text: Text) -> Numbers:
        at = text.start
        while at < text.end:
            end = _piece_end(text, at)
            self._take(text.body[at:end], first=at == text.start, last=end == text.end)
            at = end + 1
        return _join([piece for piece in self._pieces if piece.numbers.size] or self._pieces)

    def _take(self, text: bytes, first: bool, last: bool) -> None:
        """Read the piece between two commas. Added brackets make the piece a complete array for the parser."""
        outer = self._depth
        opened = _occurrences(text, b"[")
        self._depth += opened - _occurrences(text, b"]")
        if (self._depth != 0) if last else (self._depth < 1 or text.rstrip(BLANKS)[-1:] in (b"", b"[", b",")):
            raise DecodeError("not JSON: the array's brackets or commas do not match")
        if not first and text.lstrip(BLANKS)[:1] in (b"", b"]", b","):
            raise DecodeError("not JSON: a comma without a value")
        if max(outer, self._depth) > MAX_DEPTH:
            raise DecodeError(f"nested deeper than {MAX_DEPTH}")
        whole = text if first and last else b"%b%b%b" % (b"[" * outer, text, b"]" * self._depth)
        piece = self._parse(whole)
        self._count += piece.numbers.size
        self._containers += opened
        if self._containers > self._count + self._values:
            raise DecodeError(
                f"{self._containers} arrays for {self._count} elements; at most limits.json_values, {self._values}, "
                "more than elements"
            )
        self._pieces.append(piece)

    def _parse(self, text: bytes) -> _Piece:
        numbers = _parse_numbers(text)
        if numbers is None:
            numbers = _parse_booleans(text)
        if numbers is None and self._literals:
            numbers = _parse_literals(text)
        return self._parse_slowly(text) if numbers is None else _Piece(numbers)

    def _parse_slowly(self, text: bytes) -> _Piece:
        """Read a piece with Python's json, which reads integers of any size. The errors of this method identify the
        element."""
        self._slow += len(text)
        if self._slow > _SLOW_LIMIT:
            raise DecodeError(f"more than {_SLOW_LIMIT} bytes of numbers, some of them beyond 64 bits")
        leaves = list(_flatten(_load(text, self._literals)))
        kinds = set(map(type, leaves))
        if not kinds <= {int, float, _Constant}:
            raise DecodeError(describe_mixture(leaves, self._count))
        if kinds == {int}:
            return _integers(leaves, self._count)
        return _Piece(_doubles(leaves, self._count))


def _piece_end(text: Text, at: int) -> int:
    if text.end - at <= PIECE:
        return text.end
    comma = text.body.rfind(b",", at, at + PIECE)
    if comma < 0:
        raise DecodeError(f"{PIECE} bytes of an array without a comma")
    return comma


def _occurrences(text: bytes, mark: bytes) -> int:
    """Return the number of times that the byte `mark` occurs in `text`.

    Usually, the byte occurs once or never. Finding a byte takes a twentieth of the time of `bytes.count`. Counting
    several occurrences with numpy takes a fifth of the time of `bytes.count`."""
    first = text.find(mark)
    if first < 0:
        return 0
    if text.find(mark, first + 1) < 0:
        return 1
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == mark[0]))


def has_fraction(text: bytes | bytearray) -> bool:
    """Return whether any literal has a fraction or an exponent."""
    return _POINT in text or _SMALL_E in text or _CAPITAL_E in text


_POINT, _SMALL_E, _CAPITAL_E = b".eE"  # integers: finding one takes a quarter of the time of a byte string


def _parse_booleans(text: bytes) -> Numbers | None:
    if b"u" not in text and b"s" not in text:
        return None
    count = text.count(b"true") + text.count(b"false")
    # the blanks keep `1true` from becoming the number 11
    numbers = _simd.parse(text.replace(b"true", b" 1 ").replace(b"false", b" 0 "), "i")
    return numbers.astype(np.bool_) if numbers is not None and numbers.size == count else None


# For each literal, this table contains its spellings with a byte that occurs only in this spelling (finding a byte is
# fast), the double that replaces the literal while the text is parsed, and the literal's value. `-Infinity` comes
# before `Infinity`, because it contains this word.
_LITERALS = (
    (((b"-Infinity", b"I"), (b"-inf", b"f")), -2.718281828459045e301, -np.inf),
    (((b"Infinity", b"I"), (b"inf", b"f")), 2.718281828459045e301, np.inf),
    (((b"NaN", b"N"), (b"nan", b"a")), 2.718281828459045e-301, np.nan),
)


def _parse_literals(text: bytes) -> Numbers | None:
    counts = []
    for spellings, stand_in, _ in _LITERALS:
        present = [spelling for spelling, mark in spellings if mark in text]
        counts.append(sum(text.count(spelling) for spelling in present))
        for spelling in present:
            # the blanks keep `1NaN` from becoming a number
            text = text.replace(spelling, b" %r " % stand_in)
    numbers = _simd.parse(text, "d") if any(counts) else None
    if numbers is None:
        return None
    places = [numbers == stand_in for _, stand_in, _ in _LITERALS]
    if [np.count_nonzero(place) for place in places] != counts:
        return None  # the text itself contains one of these doubles
    for place, (_, _, meaning) in zip(places, _LITERALS, strict=True):
        numbers[place] = meaning
    return numbers


def _load(text: bytes, literals: bool) -> Any:
    if literals:
        text = text.replace(b"nan", b"NaN").replace(b"inf", b"Infinity")
    try:
        return (_LENIENT if literals else _STRICT).decode(text.decode("ascii"))
    except UnicodeDecodeError as error:
        raise DecodeError(f"not JSON: unexpected byte {text[error.start]:#04x} in an array") from error
    except json.JSONDecodeError as error:
        near = error.doc[error.pos : error.pos + 20]
        raise DecodeError(f"not JSON: {error.msg} near {near!r} in an array") from error
    except RecursionError as error:
        raise DecodeError(f"nested deeper than {MAX_DEPTH}") from error
    except ValueError as error:  # Python's own limit, sys.get_int_max_str_digits()
        raise DecodeError("an integer of thousands of digits is out of the range of a double") from error


def _refuse_constant(name: str) -> float:
    raise DecodeError(f"{name} is not JSON; expected a finite number")


class _Constant(float):
    """The value of the literal NaN, Infinity or -Infinity. An infinite float that is not of this class was a finite
    number in the text."""


_STRICT = json.JSONDecoder(parse_constant=_refuse_constant)
_LENIENT = json.JSONDecoder(parse_constant=_Constant)


def _flatten(nested: list[Any], level: int = 1) -> Iterator[Any]:
    if level > MAX_DEPTH:
        raise DecodeError(f"nested deeper than {MAX_DEPTH}")
    for item in nested:
        if isinstance(item, list):
            yield from _flatten(item, level + 1)
        else:
            yield item


_NAMES: dict[type, str] = {
    bool: "a boolean",
    str: "a string",
    dict: "an object",
    list: "an array",
    **dict.fromkeys((int, float, _Constant), "a number"),
}


def describe_mixture(leaves: list[Any], base: int) -> str:
    for at, leaf in enumerate(leaves, base):
        if leaf is None:
            return f"element {at}: null is not a number; it might mean NaN or an infinity, which JSON cannot represent"
    first = _NAMES[type(leaves[0])]
    for at, leaf in enumerate(leaves, base):
        if _NAMES[type(leaf)] != first:
            return f"element {at}: {_NAMES[type(leaf)]} next to {first}; expected elements of one type"
    return f"element {base}: {first}, expected a number or a string"


def _integers(leaves: list[int], base: int) -> _Piece:
    low, high = min(leaves), max(leaves)
    if low >= INT64_MIN and high <= INT64_MAX:
        return _Piece(np.array(leaves, np.int64))
    if low >= 0 and high <= UINT64_MAX:
        return _Piece(np.array(leaves, np.uint64))
    lowest, highest = (INT64_MIN, INT64_MAX) if low < 0 else (0, UINT64_MAX)
    at, leaf = next((at, leaf) for at, leaf in enumerate(leaves, base) if not lowest <= leaf <= highest)
    return _Piece(_doubles(leaves, base), _describe_beyond(at, leaf))


def _describe_beyond(at: int, leaf: int) -> str:
    if INT64_MAX < leaf <= UINT64_MAX:
        return f"element {at}: {leaf} is above INT64, next to negative integers"
    digits = str(leaf)
    return f"element {at}: {digits if len(digits) < 50 else digits[:47] + '...'} is an integer beyond 64 bits"


def _doubles(leaves: list[Any], base: int) -> Numbers:
    try:
        numbers = np.array([float(leaf) for leaf in leaves])
    except OverflowError:
        numbers = np.array([_to_double(leaf) for leaf in leaves])
    for at in np.flatnonzero(~np.isfinite(numbers)).tolist():
        if type(leaves[at]) is not _Constant:
            raise DecodeError(f"element {base + at} is out of the range of a double")
    return numbers


def _to_double(leaf: int | float) -> float:
    try:
        return float(leaf)
    except OverflowError:
        return np.inf if leaf > 0 else -np.inf


def _join(pieces: list[_Piece]) -> Numbers:
    """Return the pieces as one array, whose type depends on the literals in all pieces."""
    if len(pieces) == 1 and not pieces[0].beyond:
        return pieces[0].numbers
    kinds = {piece.numbers.dtype.kind for piece in pieces if not piece.beyond}
    if "b" in kinds and (len(kinds) > 1 or any(piece.beyond for piece in pieces)):
        raise DecodeError(_describe_boolean(pieces))
    if "f" not in kinds:
        _refuse_beyond(pieces, kinds)
    dtype = _DTYPES["d"] if "f" in kinds else _DTYPES["u"] if "u" in kinds else pieces[0].numbers.dtype
    return np.concatenate([piece.numbers for piece in pieces], dtype=dtype, casting="unsafe")


def _describe_boolean(pieces: list[_Piece]) -> str:
    first = pieces[0].numbers.dtype.kind == "b"
    at = sum(
        piece.numbers.size for piece in takewhile(lambda piece: (piece.numbers.dtype.kind == "b") == first, pieces)
    )
    one, other = ("a number", "a boolean") if first else ("a boolean", "a number")
    return f"element {at}: {one} next to {other}; expected elements of one type"


def _refuse_beyond(pieces: list[_Piece], kinds: set[str]) -> None:
    for piece in pieces:
        if piece.beyond:
            raise DecodeError(piece.beyond)
    if "u" not in kinds:
        return
    base = 0
    negative = any(piece.numbers.dtype.kind == "i" and (piece.numbers < 0).any() for piece in pieces)
    for piece in pieces:
        above = piece.numbers > INT64_MAX
        if negative and above.any():
            at = int(np.argmax(above))
            raise DecodeError(_describe_beyond(base + at, int(piece.numbers[at])))
        base += piece.numbers.size
