"""Splits JSON texts without decoding them: into elements or members. Also checks that a text is one document.

Texts can contain NaN and infinities, as Python's `json` writes them. msgspec, which refuses those, checks a text first.
"""

import json
import re
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Raw

from gateway.core.errors import DecodeError
from gateway.protocols.json.literals import replaced

DOCUMENTS = msgspec.json.Decoder(Raw)
"""Checks the grammar without making values."""
_LIST = msgspec.json.Decoder(list[Raw])
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_LENIENT = json.JSONDecoder()

# Strings too, so that the words in them are passed over. Possessive: no input makes the matching backtrack.
_LITERAL = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|\b(?:NaN|nan|Infinity|inf)\b', re.DOTALL)


def check_document(text: bytes, what: str) -> None:
    """Raise DecodeError with the name `what` unless `text` is exactly one document. Two documents within another text
    could count as two values. The reader of the text checks duplicate members and the characters of strings."""
    try:
        DOCUMENTS.decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            DOCUMENTS.decode(replaced(_LITERAL, lambda literal: b"0", text))
        except (msgspec.DecodeError, RecursionError) as error:
            raise DecodeError(f"{what} is not one JSON document: {error}") from error


def elements(text: bytes) -> list[bytes]:
    """Return the texts of the elements of the list in `text`, compact JSON from the gateway itself."""
    try:
        return list(map(bytes, _LIST.decode(text)))
    except msgspec.DecodeError:
        return [element.encode() for element in _elements(text.decode())]


def _elements(text: str) -> Iterator[str]:
    at = 1
    while at < len(text) - 1:
        _, end = _LENIENT.raw_decode(text, at)
        yield text[at:end]
        at = end + 1


def members(text: bytes) -> Mapping[str, bytes]:
    """Return the texts of the members of the object in `text`, compact JSON from the gateway itself."""
    try:
        return {key: bytes(value) for key, value in _OBJECT.decode(text).items()}
    except msgspec.DecodeError:
        return {key: value.encode() for key, value in _members(text.decode())}


def _members(text: str) -> Iterator[tuple[str, str]]:
    at = 1
    while at < len(text) - 1:
        key, colon = _LENIENT.raw_decode(text, at)
        _, end = _LENIENT.raw_decode(text, colon + 1)
        yield key, text[colon + 1 : end]
        at = end + 1
