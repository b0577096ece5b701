"""Splits JSON texts into elements or members without decoding them. Also checks that a text is one document.

Texts can contain NaN and infinities, as Python's `json` writes them. msgspec, which checks a text first, rejects these
values.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec
from msgspec import Raw

from gateway.core.errors import DecodeError
from gateway.protocols.json.plain import replaced_outside_strings

DOCUMENTS = msgspec.json.Decoder(Raw)
"""A decoder that checks the grammar without creating values."""
_LIST = msgspec.json.Decoder(list[Raw])
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_LENIENT = json.JSONDecoder()

# Also matches strings, to skip the literals in them. Possessive, so no input causes backtracking.
_LITERAL = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|\b(?:NaN|nan|Infinity|inf)\b', re.DOTALL)


def check_document(text: bytes, what: str) -> None:
    """Raise DecodeError, which refers to the text as `what`, unless `text` is exactly one document. Two documents,
    inserted into another text, could count as two values. The text's reader checks for duplicate members and invalid
    characters in strings."""
    try:
        DOCUMENTS.decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            DOCUMENTS.decode(replaced_outside_strings(_LITERAL, lambda literal: b"0", text))
        except (msgspec.DecodeError, RecursionError) as error:
            raise DecodeError(f"{what} is not one JSON document: {error}") from error


_PIECE = 2**16
"""Number of bytes of elements to cut out in one step. The limit exists because short elements take a hundred times as
much memory when they are Python values."""
_TRIES = 8
_BETWEEN = {b"[": b"],[", b"{": b"},{"}
"""The text between two elements of the same kind, by the first letter of the first element."""


def elements(text: bytes) -> Iterator[list[bytes]]:
    """Yield the texts of the elements of the list in `text`, several at a time. `text` is compact JSON that the gateway
    has written."""
    at, end = 1, len(text) - 1
    try:
        while at < end:
            some, at = _next_elements(text, at, end)
            yield some
    except msgspec.DecodeError:  # the element is NaN
        rest = _elements_with_nan(text[at - 1 :].decode())
        while some := [element.encode() for element in islice(rest, _PIECE // 16)]:
            yield some


def _next_elements(text: bytes, at: int, end: int) -> tuple[list[bytes], int]:
    """Return the elements from `at` on, and the position of the next elements.

    The function detects a cut within an element, because the text before such a cut is not a list."""
    between, size = _BETWEEN.get(text[at : at + 1], b","), _PIECE
    while size < end - at:
        cut = at + size
        for _ in range(_TRIES):
            found = text.find(between, cut, end)
            if found < 0:
                break
            comma = found + len(between) // 2
            try:
                return list(map(bytes, _LIST.decode(b"[%b]" % text[at:comma]))), comma + 1
            except msgspec.DecodeError:
                cut = found + 1
        size *= 2
    return list(map(bytes, _LIST.decode(b"[%b]" % text[at:end]))), end


def _elements_with_nan(text: str) -> Iterator[str]:
    at = 1
    while at < len(text) - 1:
        _, end = _LENIENT.raw_decode(text, at)
        yield text[at:end]
        at = end + 1


def members(text: bytes) -> Mapping[str, bytes]:
    """Return the texts of the members of the object in `text`, which is compact JSON that the gateway has written."""
    try:
        return {key: bytes(value) for key, value in _OBJECT.decode(text).items()}
    except msgspec.DecodeError:
        return {key: value.encode() for key, value in _members_with_nan(text.decode())}


def _members_with_nan(text: str) -> Iterator[tuple[str, str]]:
    at = 1
    while at < len(text) - 1:
        key, colon = _LENIENT.raw_decode(text, at)
        _, end = _LENIENT.raw_decode(text, colon + 1)
        yield key, text[colon + 1 : end]
        at = end + 1
