"""Functions that read arrays of strings from JSON text in pieces, directly into the raw format of BYTES.

A string of one letter takes 4 bytes in JSON, and 60 bytes as a Python object. Therefore, reading 64 MiB in one call
would take more than a gigabyte of memory.

A piece ends at the first comma after the last string that ends within _PIECE bytes. In text without escapes, every
second quote closes a string, so counting quotes finds this comma. In text with escapes, a pattern matches complete
strings.
"""

import re
from io import BytesIO
from itertools import chain
from typing import Any

import orjson

from gateway.core import bytes_elements
from gateway.core.errors import DecodeError
from gateway.core.json.bulk_numbers import BLANKS, MAX_DEPTH, Text, describe_mixture

_PIECE = 2**12  # bytes; larger pieces are not faster

_LONG = 2**20
"""Size in bytes above which a string is read in steps.

Reading a string of 64 MiB in one step would block all other threads for 80 ms."""
_ESCAPED = 12
"""Length of the longest escape, in bytes: two halves of a surrogate pair."""
_SECOND_HALF = re.compile(rb"\\u[dD][c-fC-F]")

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_OPENING = re.compile(rb"[ \t\r\n\[]*+")
_WHOLE_STRINGS = re.compile(rb'(?:[^"]*+"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
_BACKSLASH = ord("\\")
_EDGE = BLANKS + b"[]"
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[],"))


def read_string(text: Text) -> bytes:
    """Return the single string in `text` in the raw format. Raises DecodeError if the text is not a string."""
    string: str = _load(text.bytes)  # the text contains a quote and no brackets: a string, or invalid
    return bytes_elements.pack([string.encode()])


class Strings:
    """The strings of one array. `raw` contains the strings in the raw format, in UTF-8, and `structure` contains the
    brackets and commas around them."""

    def __init__(self, text: Text, values: int) -> None:
        """Read the array `text`. The constructor checks brackets and commas according to the JSON grammar, but the
        array can be ragged.

        Raises:
            DecodeError: the text is not JSON, contains an element that is not a string, or has more nested arrays than
                the number of strings plus `values`.
        """
        self.count = 0
        self._values = values
        self._depth = 0
        self._containers = 0
        # BytesIO grows in steps, and returns its value without a copy. No other thread could run during a large join.
        self._strings, structure = BytesIO(), BytesIO()
        at = text.start
        while at < text.end:
            end = _piece_end(text, at)
            is_first, is_last = at == text.start, end == text.end
            between = self._take_long(text.body, at, end, is_last) if end - at > _LONG else None
            if between is None:
                between = self._take(text.body[at:end], is_first, is_last)
            structure.write(between if is_first else b"," + between)
            at = end + 1
        self.raw, self.structure = self._strings.getvalue(), structure.getvalue()

    def _take_long(self, body: bytes, start: int, end: int, last: bool) -> bytes | None:
        """Read a piece that contains one long string. Return the brackets around the string; None if the piece contains
        anything else."""
        long = _long_string(body, start, end)
        if long is None:
            return None
        parts, around = long
        self._nest(around, last)
        self.count += 1
        self._strings.write(bytes_elements.length_prefix(sum(map(len, parts))))
        for part in parts:
            self._strings.write(part)
        return around

    def _take(self, piece: bytes, first: bool, last: bool) -> bytes:
        """Read a piece. Return the brackets and commas around its strings."""
        if (not first and piece.lstrip(BLANKS)[:1] in (b"", b"]")) or (not last and piece.rstrip(BLANKS)[-1:] == b"["):
            raise DecodeError("not JSON: a comma without a value")
        around = _around(piece)
        between = b"".join(around) if around else _structure(piece)
        outer = self._nest(between, last)
        # with added brackets, the piece is a complete array for the parser
        is_complete = not outer and last
        leaves = _leaves(_load(piece if is_complete else b"%b%b%b" % (b"[" * outer, piece, b"]" * self._depth)))
        _refuse_other_than_strings(leaves, self.count)
        self.count += len(leaves)
        self._containers += between.count(b"[")
        if self._containers > self.count + self._values:
            raise DecodeError(
                f"{self._containers} arrays for {self.count} strings; at most limits.json_values, {self._values}, more"
            )
        if around:
            between = (b"," * (len(leaves) - 1)).join(around)
        self._strings.write(bytes_elements.pack(map(str.encode, leaves)))
        return between

    def _nest(self, between: bytes, last: bool) -> int:
        """Count the brackets of a piece. Return the number of arrays that were open before the piece."""
        outer = self._depth
        self._depth += between.count(b"[") - between.count(b"]")
        if (self._depth != 0) if last else (self._depth < 1):
            raise DecodeError("not JSON: the array's brackets do not match")
        if max(outer, self._depth) > MAX_DEPTH:
            raise DecodeError(f"nested deeper than {MAX_DEPTH}")
        return outer


def _piece_end(text: Text, at: int) -> int:
    """Return the end of the piece that begins at `at`. The piece ends at a comma outside strings, or at the end of the
    text."""
    body, stop = text.body, at + _PIECE
    if text.end <= stop:
        return text.end
    start = _behind_strings(body, at, stop)
    if start == at:
        start = _behind_next_string(text, at, stop)
    comma = body.find(b",", start, text.end)
    return text.end if comma < 0 else comma


def _behind_next_string(text: Text, at: int, stop: int) -> int:
    """Return the end of a piece in which no string ends. This is the last comma before both the next string and `stop`.
    If no such comma exists, this is the end of the next string."""
    quote = text.body.find(b'"', at, text.end)
    comma = text.body.rfind(b",", at, stop if quote < 0 else min(stop, quote))
    if comma >= 0:
        return comma
    end = string_end(text.body, quote) if quote >= 0 else -1
    return end if 0 <= end <= text.end else at


def string_end(body: bytes, start: int) -> int:
    """Return the end of the string that begins at `start`; a negative number if no string begins there, or if it is
    incomplete."""
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
    """Return the end of the last string that ends before `stop`; `start` if no string does."""
    if body.find(b"\\", start, stop) >= 0:
        whole = _WHOLE_STRINGS.match(body, start, stop)
        return whole.end() if whole else start
    # without escapes, every second quote closes a string; counting quotes is far faster than matching
    if body.count(b'"', start, stop) % 2:
        stop = body.rfind(b'"', start, stop)
    return max(start, body.rfind(b'"', start, stop) + 1)


def _around(piece: bytes) -> tuple[bytes, bytes] | None:
    """Return the brackets before and after the strings of a piece; None if brackets might also be between the
    strings."""
    rest = piece.lstrip(_EDGE)
    strings = rest.rstrip(_EDGE)
    if b"[" in strings or b"]" in strings or not (strings[:1] == strings[-1:] == b'"'):
        return None
    return piece[: -len(rest)].translate(None, BLANKS), rest[len(strings) :].translate(None, BLANKS)


def _long_string(body: bytes, start: int, end: int) -> tuple[list[bytes], bytes] | None:
    """Read in steps a piece, `body[start:end]`, that contains one long string. Return the parts of the string in UTF-8,
    and the brackets around it; None if the piece contains anything else or is invalid."""
    opening = _OPENING.match(body, start, end)
    assert opening is not None  # the pattern also matches an empty text
    at, stop = opening.end() + 1, body.rfind(b'"', start, end)
    if string_end(body, at - 1) != stop + 1:
        return None
    before, after = body[start : at - 1], body[stop + 1 : end]
    if after.strip(BLANKS + b"]"):
        return None
    found: list[bytes] = []
    while at < stop:
        step = _step_end(body, at, stop)
        if step <= at:
            return None
        try:
            found.append(orjson.loads(b'"%b"' % body[at:step]).encode())
        except orjson.JSONDecodeError:
            return None
        at = step
    return found, (before + after).translate(None, BLANKS)


def _step_end(piece: bytes, at: int, end: int) -> int:
    """Return the end of a step through the content of a string. The end is never within a character or an escape."""
    stop = at + _LONG
    if stop >= end:
        return end
    while stop > at and piece[stop] & 0xC0 == 0x80:  # within a UTF-8 character
        stop -= 1
    last = piece.rfind(b"\\", max(at, stop - _ESCAPED), stop)
    if last < 0:
        return stop
    # Each pair of backslashes is one escape. The step ends before the last escape, which might cross the end.
    run = last + 1 - len(piece[at : last + 1].rstrip(b"\\")) - at
    escape = last if run % 2 else last - 1
    is_second_half = _SECOND_HALF.match(piece, escape) is not None
    return escape - _ESCAPED // 2 if is_second_half else escape


def _structure(piece: bytes) -> bytes:
    """Return the brackets and commas around the strings of a piece."""
    return _STRING.sub(b"", piece).translate(None, _NOT_STRUCTURE)


def _load(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DecodeError(f"not JSON: {error.msg} in an array of strings") from error


def _leaves(level: list[Any]) -> list[Any]:
    while list in (kinds := set(map(type, level))):
        if len(kinds) > 1:
            raise DecodeError("ragged: scalars next to arrays")
        level = list(chain.from_iterable(level))
    return level


def _refuse_other_than_strings(leaves: list[Any], before: int) -> None:
    """Raise DecodeError if an element is not a string. `before` is the number of strings in the previous pieces."""
    if not set(map(type, leaves)) <= {str}:
        last = [""] * min(before, 1)
        raise DecodeError(describe_mixture([*last, *leaves], before - len(last)))
