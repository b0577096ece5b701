"""Functions that read JSON documents of any size.

The module cuts out the texts of arrays and reads them in bulk. The rest of the document is small and plain. `reading`
calls this module for documents that are too large for `small`.

    {"id": "a", "data": [[1, 2], [3, 4]]}   ──▶   {"id": "a", "data": 0}  and  [[1, 2], [3, 4]]

The module scans the text from string to string. After a wanted key, it cuts out any value, up to the next key or `}`,
and writes 0 instead. Therefore, the document is valid JSON if and only if the rest and all cut texts are valid. The
scan also counts the tokens between strings, to limit the size of the rest and the number of cuts.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Container, Mapping
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

import orjson

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen
from gateway.core.json.arrays import Array, ArrayForm, read_array, read_vectors
from gateway.core.json.bulk_numbers import BLANKS, MAX_DEPTH, Text
from gateway.core.json.bulk_strings import string_end

Json: TypeAlias = Any
"""A JSON value as a plain Python object: dict, list, str, int, float, bool or None."""


@frozen
class Wanted:
    """The keys whose values to read as arrays, either at any level or only at `level`."""

    arrays: Mapping[str, ArrayForm]
    level: int | None


_NOTHING: Mapping[str, ArrayForm] = {}


class AllBut(Mapping[str, ArrayForm]):
    """A mapping that maps every key, except the keys in `plain`, to ArrayForm.ARRAY."""

    __slots__ = ("_plain",)

    def __init__(self, plain: Container[str]) -> None:
        self._plain = plain

    def __contains__(self, key: object) -> bool:
        return key not in self._plain

    def __getitem__(self, key: str) -> ArrayForm:
        if key in self._plain:
            raise KeyError(key)
        return ArrayForm.ARRAY

    def __iter__(self) -> NoReturn:
        raise TypeError("its keys have no end")

    def __len__(self) -> NoReturn:
        raise TypeError("its keys have no end")


def _finder(arrays: Mapping[str, ArrayForm]) -> Callable[[bytes], str | None]:
    """Return a function that takes the bytes of a key without escapes. The function returns the key's name if it is in
    `arrays`, otherwise None."""
    if not isinstance(arrays, AllBut):
        return {name.encode(): name for name in arrays}.get

    def find(key: bytes) -> str | None:
        name = key.decode("utf-8", "replace")
        return name if name in arrays else None

    return find


class Walk:
    """Replaces the values of wanted keys in a plain document with arrays, in the order of the text.

    `convert` returns the array for a key and its plain value. `members` and `values` count items outside the arrays.
    `has_large` is True if a float outside the arrays might be an integer that does not fit in 64 bits, which orjson
    turns into a float."""

    __slots__ = ("_convert", "_items", "_wanted", "has_large", "members")

    def __init__(self, wanted: Wanted, convert: Callable[[str, Any], Array | list[Array]]) -> None:
        self._wanted = wanted
        self._convert = convert
        self.members = 0
        self._items = 0
        """Number of values in lists."""
        self.has_large = False

    @property
    def values(self) -> int:
        """The current number of values, including the document itself."""
        return 1 + self.members + self._items

    def document(self, node: Any) -> None:
        """Walk through the document `node`.

        Raises DecodeError if nesting exceeds MAX_DEPTH, or if the document is not an object."""
        if type(node) is not dict:
            raise DecodeError(f"expected a JSON object, found {_NAMES[type(node)]}")
        self._object(node, 1)

    def _object(self, node: dict[str, Any], level: int) -> None:
        if level > MAX_DEPTH:
            raise _too_deep()
        self.members += len(node)
        wanted = self._wanted
        arrays = wanted.arrays if wanted.level is None or wanted.level == level else _NOTHING
        for key, item in node.items():
            kind = type(item)
            if key in arrays:
                array = node[key] = self._convert(key, item)
                if level + (len(array.shape) if type(array) is Array else 2) > MAX_DEPTH:
                    raise DecodeError(f"{key!r}: nested deeper than {MAX_DEPTH}")
            elif kind is dict:
                self._object(item, level + 1)
            elif kind is list:
                self._list(item, level + 1)
            elif kind is float and not -LARGE < item < LARGE:
                self.has_large = True

    def _list(self, node: list[Any], level: int) -> None:
        if level > MAX_DEPTH:
            raise _too_deep()
        self._items += len(node)
        for item in node:
            kind = type(item)
            if kind is dict:
                self._object(item, level + 1)
            elif kind is list:
                self._list(item, level + 1)
            elif kind is float and not -LARGE < item < LARGE:
                self.has_large = True


LARGE = 2.0**63
"""The smallest absolute value of a float that might be an integer in the text, because orjson turns integers that do
not fit in 64 bits into floats."""


def _too_deep() -> DecodeError:
    return DecodeError(f"nested deeper than {MAX_DEPTH}")


_NAMES = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean", type(None): "null"}


def read_document(body: bytes, wanted: Wanted, values: int, literals: bool) -> dict[str, Any]:
    """Return the document in `body`, as described for `gateway.core.json.read`.

    Raises:
        DecodeError: the document is invalid. The message contains the fault and its position.
    """
    rest, cuts = _cut(body, wanted, values)
    document = _load(rest, cuts)
    arrays = [_read_cut(cut, wanted.arrays[cut.key], values, literals) for cut in cuts]
    walk = _put_back(document, wanted, arrays)
    # orjson keeps the last of duplicate keys; the number of colons shows whether the document might contain any
    if walk.has_large or walk.members != rest.count(b":"):
        document = _DECODER.decode(rest.decode())
        walk = _put_back(document, wanted, arrays)
    if walk.values > values:
        raise _too_many(values)
    return document  # type: ignore[no-any-return]


def cut_out(body: bytes, name: bytes, most: int) -> tuple[bytes, list[Text]]:
    """Return `body`, which contains no backslash, with 0 instead of the value of every key `name`, at any level. Also
    return the texts of these values. The function does not validate the JSON: the body is valid if and only if the
    result and all texts are valid.

    Raises:
        DecodeError: the body contains more than `most` such values, or a value contains an object.
    """
    # Without escapes, text that looks like a key is a key: if the quote before it closed a string, the rest would be
    # invalid JSON.
    key = b'"%b"' % name
    pieces, texts, kept, at = [], [], 0, 0
    while (at := body.find(key, at)) >= 0:
        at += len(key)
        colon = _COLON.match(body, at)
        if colon is None:
            continue
        text = _value_at(body, colon.end())
        pieces.append(body[kept : text.start])
        texts.append(text)
        if len(texts) > most:
            raise _too_many(most)
        at = kept = text.end
    return b"0".join([*pieces, body[kept:]]), texts


def _put_back(document: Any, wanted: Wanted, arrays: list[Array | list[Array]]) -> Walk:
    """Replace the values of wanted keys in `document` with `arrays`, and return the Walk, which contains the counts."""
    following = iter(arrays)
    walk = Walk(wanted, lambda key, item: next(following))
    walk.document(document)
    return walk


def _too_many(values: int) -> DecodeError:
    return DecodeError(f"more than {values} JSON values outside tensor data; limits.json_values is the limit")


@frozen
class _Cut:
    """The text of a wanted key's value."""

    key: str
    text: Text


_READ: dict[ArrayForm, Callable[[Text, int, bool], Array | list[Array]]] = {
    ArrayForm.ARRAY: read_array,
    ArrayForm.VECTORS: read_vectors,
}


def _read_cut(cut: _Cut, form: ArrayForm, values: int, literals: bool) -> Array | list[Array]:
    try:
        return _READ[form](cut.text, values, literals)
    except DecodeError as error:
        raise DecodeError(f"{cut.key!r} at byte {cut.text.start}: {error}") from error


_PIECE = 2**16
"""Maximum number of bytes for one match of a pattern. A match blocks all other threads: for 1 MiB of short strings, it
would block them for 20 ms."""

# A string and, if it is a key, its colon. All quantifiers are possessive, so no input causes backtracking.
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"([ \t\r\n]*+:[ \t\r\n]*+)?', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*+:[ \t\r\n]*+")
# Strings and the tokens between them, up to the colon after a key or the end of the object.
_RUN = re.compile(rb'(?:("[^"\\]*+(?:\\.[^"\\]*+)*+")|[^"{}:]++)*+', re.DOTALL)


def _cut(body: bytes, wanted: Wanted, values: int) -> tuple[bytes, list[_Cut]]:
    """Return `body` with 0 instead of the value of every wanted key, and the texts of these values.

    The function does not validate the texts. A cut text contains no string, or is exactly the text between a key's
    colon and the next key or `}`. Therefore, the body is valid JSON if and only if the rest and all cut texts are
    valid."""
    find, match, level = _finder(wanted.arrays), _STRING.match, wanted.level
    counter = _LimitCounter(values)
    pieces, cuts, kept, at = [], [], 0, 0
    while (quote := body.find(b'"', at)) >= 0:
        if quote > at:
            counter.count_between(body, at, quote)
        string = match(body, quote, quote + _PIECE)
        if string is not None and string[2] is not None and string.end() < quote + _PIECE:  # most strings are keys
            key, at = string[1], string.end()
        elif string is not None and body[string.end() : string.end() + 1] in _AFTER_VALUE:
            key, at = None, string.end()
        else:
            end, colon = _string_at(body, quote, string)
            if end < 0:
                break
            key, at = body[quote + 1 : end - 1] if colon >= 0 else None, max(end, colon)
        counter.count_string()
        if key is None or (level is not None and level != counter.level):
            continue
        name = find(_unescape(key))
        if name is not None:
            cuts.append(_Cut(name, _value_at(body, at)))
            pieces.append(body[kept:at])
            at = kept = cuts[-1].text.end
    counter.count_between(body, at, len(body))
    return b"0".join([*pieces, body[kept:]]), cuts


_AFTER_VALUE = frozenset({b",", b"]", b"}"})
"""The bytes that can follow a string that is not a key."""


def _string_at(body: bytes, quote: int, string: "re.Match[bytes] | None") -> tuple[int, int]:
    """Return the end of the string at `quote`.

    If the string is a key, also return the end of the colon and the blanks after it; otherwise, a negative number.
    `string` is the match of `_STRING` in the first _PIECE bytes."""
    end = string.end(1) + 1 if string else string_end(body, quote)
    colon = _COLON.match(body, end) if end >= 0 else None
    return end, colon.end() if colon else -1


class _LimitCounter:
    """Counts strings and the tokens between them, to keep the reader from creating more values than the limit allows.

    The counter also tracks the nesting level."""

    def __init__(self, values: int) -> None:
        self._values = values
        self._nodes = 0
        self._strings = 0
        self.level = 0

    def count_between(self, body: bytes, start: int, end: int) -> None:
        for at in range(start, end, _PIECE):
            piece = body[at : min(at + _PIECE, end)]
            opened, closed, commas = _counts_of_short(piece) if len(piece) <= _SHORT else _counts(piece)
            self.level += opened - closed
            self._nodes += opened + commas
            # every value except the first follows a comma or an opening bracket, and each container is a value itself
            if self._nodes > 2 * self._values:
                raise _too_many(self._values)

    def count_string(self) -> None:
        self._strings += 1
        if self._strings > 2 * self._values:  # a member can have two strings: its key and its value
            raise _too_many(self._values)


def _counts(text: bytes) -> tuple[int, int, int]:
    """Return the numbers of opening brackets, closing brackets and commas."""
    return text.count(b"[") + text.count(b"{"), text.count(b"]") + text.count(b"}"), text.count(b",")


_SHORT = 8
"""Maximum size, in bytes, of a text between two strings for which the counts are cached. Short texts recur often."""

_counts_of_short = lru_cache(256)(_counts)


def _unescape(name: bytes) -> bytes:
    if b"\\" not in name:
        return name
    try:
        return orjson.dumps(orjson.loads(b'"%b"' % name))[1:-1]
    except orjson.JSONDecodeError:
        return name


def _value_at(body: bytes, start: int) -> Text:
    quote = body.find(b'"', start)
    stop = len(body) if quote < 0 else quote
    brace = body.find(b"}", start, stop)
    if brace >= 0:
        end = brace
    elif quote < 0 or _is_key(body, quote):
        end = _without_comma(body, start, stop)
    else:
        return _strings_at(body, start)
    if body.find(b"{", start, end) >= 0:
        raise DecodeError(f"an object at byte {body.find(b'{', start, end)}, expected an array")
    return Text(body, start, end)


def _is_key(body: bytes, quote: int) -> bool:
    return _string_at(body, quote, _STRING.match(body, quote, quote + _PIECE))[1] >= 0


def _strings_at(body: bytes, start: int) -> Text:
    end, last = _run_end(body, start)
    if body.startswith(b"{", end):
        raise DecodeError(f"an object at byte {end}, expected an array")
    if last < 0 or not body.startswith(b":", end):
        return Text(body, start, end)
    return Text(body, start, _without_comma(body, start, last))


def _run_end(body: bytes, at: int) -> tuple[int, int]:
    """Return the end of a run of strings and the tokens between them, and the start of its last string (negative if the
    run contains no string). The pattern matches one piece at a time, because a match blocks other threads."""
    last = -1
    while True:
        run = _RUN.match(body, at, at + _PIECE)
        assert run is not None  # the pattern also matches an empty text
        if run[1] is not None:
            last = run.start(1)
        at, stopped = run.end(), run.end() < at + _PIECE
        if stopped:
            end = string_end(body, at)
            if end < 0:
                return at, last
            at, last = end, at


def _without_comma(body: bytes, start: int, stop: int) -> int:
    """Return the end of the value before a comma and the key at `stop`."""
    comma = body.rfind(b",", start, stop)
    return stop if comma < 0 or body[comma + 1 : stop].strip(BLANKS) else comma


# orjson's error messages for more than 1024 levels, and for hundreds of brackets that are never closed
_TOO_DEEP = frozenset({"depth limit exceeded", "failed to allocate memory"})


def _load(rest: bytes, cuts: list[_Cut]) -> Any:
    """Return the rest of the document as plain values, after a strict check of the grammar."""
    try:
        if not rest.isascii():
            rest.decode()
        return orjson.loads(rest)
    except UnicodeDecodeError as error:
        raise DecodeError(f"not UTF-8: byte {rest[error.start]:#04x} at {_place(error.start, cuts)}") from error
    except orjson.JSONDecodeError as error:
        if error.msg in _TOO_DEEP:
            raise _too_deep() from error
        at = len(error.doc[: error.pos].encode())
        raise DecodeError(f"not JSON: {error.msg} at byte {_place(at, cuts)}") from error


def _place(at: int, cuts: list[_Cut]) -> int:
    """Convert the position `at` in the rest of the document to the position in the body."""
    for cut in cuts:
        if at > cut.text.start:
            at += cut.text.end - cut.text.start - 1
    return at


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        [(repeated, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise DecodeError(f"key {repeated!r} occurs twice in one object")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
"""A decoder that keeps integers exact and rejects duplicate keys. The function is slower than orjson, and is called
only after orjson has checked the grammar."""
