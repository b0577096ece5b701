"""Reads arrays of strings from JSON text in pieces, straight into the raw form of BYTES.

A string of one letter takes four bytes of text and sixty as a Python object: 64 MiB read at once would take gigabytes.

A piece ends at the first comma after the last string that ends within _PIECE bytes. In text without escapes every other
quote closes a string, so counting quotes finds it; in text with escapes a pattern matches whole strings.
"""

import re
from itertools import chain
from typing import Any

import orjson

from gateway.core import bytes_elements
from gateway.core.errors import DecodeError
from gateway.json.bulk_numbers import BLANKS, MAX_DEPTH, Text, describe_mixture

_PIECE = 2**12  # bytes; more is no faster

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_WHOLE_STRINGS = re.compile(rb'(?:[^"]*+"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
_BACKSLASH = ord("\\")
_EDGE = BLANKS + b"[]"
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[],"))


def read_string(text: Text) -> bytes:
    """The raw form of the one string in `text`. Raises DecodeError if it is not a string."""
    string: str = _load(text.bytes)  # called for text with a quote and without brackets: it is a string or invalid
    return bytes_elements.pack([string.encode()])


class Strings:
    """The strings of one array: `raw` is their raw form in UTF-8, `structure` the brackets and commas around them."""

    def __init__(self, text: Text, values: int) -> None:
        """Read the array `text`. Brackets and commas are checked as JSON; whether it is rectangular is not checked.

        Raises:
            DecodeError: not JSON, an element that is not a string, or more nested arrays than strings and `values`
                together.
        """
        self.count = 0
        self._values = values
        self._depth = 0
        self._containers = 0
        pieces: list[bytes] = []
        structure: list[bytes] = []
        at = text.start
        while at < text.end:
            end = _piece_end(text, at)
            raw, between = self._take(text.body[at:end], first=at == text.start, last=end == text.end)
            pieces.append(raw)
            structure.append(between)
            at = end + 1
        self.raw = b"".join(pieces)
        self.structure = b",".join(structure)

    def _take(self, piece: bytes, first: bool, last: bool) -> tuple[bytes, bytes]:
        """The raw form of a piece's strings, and the brackets and commas around them."""
        if (not first and piece.lstrip(BLANKS)[:1] in (b"", b"]")) or (not last and piece.rstrip(BLANKS)[-1:] == b"["):
            raise DecodeError("not JSON: a comma without a value")
        around = _around(piece)
        between = b"".join(around) if around else _structure(piece)
        leaves = _leaves(_load(self._completed(piece, between, last)))
        _refuse_other_than_strings(leaves, self.count)
        self.count += len(leaves)
        self._containers += between.count(b"[")
        if self._containers > self.count + self._values:
            raise DecodeError(
                f"{self._containers} arrays for {self.count} strings; at most limits.json_values, {self._values}, more"
            )
        if around:
            between = (b"," * (len(leaves) - 1)).join(around)
        return bytes_elements.pack(map(str.encode, leaves)), between

    def _completed(self, piece: bytes, between: bytes, last: bool) -> bytes:
        """The piece with brackets added, so that the parser sees a whole array."""
        outer = self._depth
        self._depth += between.count(b"[") - between.count(b"]")
        if (self._depth != 0) if last else (self._depth < 1):
            raise DecodeError("not JSON: the array's brackets do not match")
        if max(outer, self._depth) > MAX_DEPTH:
            raise DecodeError(f"nested deeper than {MAX_DEPTH}")
        return piece if not outer and last else b"%b%b%b" % (b"[" * outer, piece, b"]" * self._depth)


def _piece_end(text: Text, at: int) -> int:
    """The end of the piece that begins at `at`: a comma outside of strings, or the end of the text."""
    body, stop = text.body, at + _PIECE
    if text.end <= stop:
        return text.end
    start = _behind_strings(body, at, stop)
    if start == at:
        start = _behind_next_string(text, at, stop)
    comma = body.find(b",", start, text.end)
    return text.end if comma < 0 else comma


def _behind_next_string(text: Text, at: int, stop: int) -> int:
    """For a piece in which no string ends: the last comma before the next string and `stop`; if there is none, the end
    of that string."""
    quote = text.body.find(b'"', at, text.end)
    comma = text.body.rfind(b",", at, stop if quote < 0 else min(stop, quote))
    if comma >= 0:
        return comma
    end = string_end(text.body, quote) if quote >= 0 else -1
    return end if 0 <= end <= text.end else at


def string_end(body: bytes, start: int) -> int:
    """The end of the string that begins at `start`; negative if there is no string, or it is not closed."""
    if not body.startswith(b'"', start):
        return -1
    at = start + 1
    while (quote := body.find(b'"', at)) >= 0:
        before = quote
        while body[before - 1] == _BACKSLASH:
            before -= 1
        if (quote - before) % 2 == 0:
            return quote + 1
        at = quote + 1
    return -1


def _behind_strings(body: bytes, start: int, stop: int) -> int:
    """The end of the last string that ends before `stop`; `start` if none does."""
    if body.find(b"\\", start, stop) >= 0:
        whole = _WHOLE_STRINGS.match(body, start, stop)
        return whole.end() if whole else start
    # without escapes every other quote closes a string; counting them is far faster than matching
    if body.count(b'"', start, stop) % 2:
        stop = body.rfind(b'"', start, stop)
    return max(start, body.rfind(b'"', start, stop) + 1)


def _around(piece: bytes) -> tuple[bytes, bytes] | None:
    """The brackets before and after the strings of a piece; None if there may be some between them."""
    rest = piece.lstrip(_EDGE)
    strings = rest.rstrip(_EDGE)
    if b"[" in strings or b"]" in strings or not (strings[:1] == strings[-1:] == b'"'):
        return None
    return piece[: -len(rest)].translate(None, BLANKS), rest[len(strings) :].translate(None, BLANKS)


def _structure(piece: bytes) -> bytes:
    """The brackets and commas around the strings of a piece."""
    return _STRING.sub(b"", piece).translate(None, _NOT_STRUCTURE)


def _load(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DecodeError(f"not JSON: {error.msg} in an array of strings") from error


def _leaves(level: list[Any]) -> list[Any]:
    while list in (kinds := set(map(type, level))):
        if len(kinds) > 1:
            raise DecodeError("ragged: scalars beside arrays")
        level = list(chain.from_iterable(level))
    return level


def _refuse_other_than_strings(leaves: list[Any], before: int) -> None:
    """`before` is the number of strings in the pieces before."""
    if not set(map(type, leaves)) <= {str}:
        last = [""] * min(before, 1)
        raise DecodeError(describe_mixture([*last, *leaves], before - len(last)))
