"""A reader that converts documents to values of a type (a msgspec Struct) in one pass. Arrays stay JSON text (`Raw`).

A TypedReader reads the bodies that common clients and servers write. For a large document, or a document of any other
kind, it raises a DecodeError without a message. The general reader (`read`) then reads the document or reports the
error. Both readers must return the same value.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import UNSET, MsgspecError
from msgspec.json import Decoder, Encoder

from gateway.core.errors import DecodeError
from gateway.core.json.bulk_numbers import Text
from gateway.core.json.document import cut_out
from gateway.core.messages import Buffer

CUT_FROM = 2**11
"""Size of a document, in bytes, above which cutting out the arrays takes less time than letting msgspec skip them."""
_MOST_CUT = 1000
"""Maximum number of arrays to cut out of a document."""
_LARGEST = 2**16
"""Maximum size of a document in bytes, excluding the arrays that were cut out.

The general reader reads larger documents, because it counts the values before it creates objects for them."""
_BACKSLASH = ord("\\")
_ESCAPED_COLON = re.compile(rb"\\u003[aA]")

Body = TypeVar("Body")

_write = Encoder().encode


class TypedReader(Generic[Body]):
    """Reads documents of the type `kind`. Without the arrays that were cut out, a document can have `largest` bytes.
    `entries` returns the objects in a value whose arrays can be cut out."""

    def __init__(
        self, kind: type[Body], *, largest: int = _LARGEST, entries: Callable[[Body], Sequence[Any]] | None = None
    ) -> None:
        self._decode: Callable[[bytes], Body] = Decoder(kind).decode
        self._largest = largest
        self._entries = entries

    def read(self, text: Buffer, values: int, key: bytes = b"") -> Body:
        """Return the value in `text`.

        In a document larger than CUT_FROM bytes, the reader first cuts out the value of each `key`, so msgspec does not
        scan it again. The member's value is then a Text.

        `values` (`limits.json_values`) is the maximum number of values outside these arrays.

        Raises:
            DecodeError: the general reader must read the document.
        """
        if type(text) is not bytes:
            raise DecodeError
        cuts: list[Text] = []
        try:
            if key and len(text) > CUT_FROM and _BACKSLASH not in text:
                text, cuts = cut_out(text, key, _MOST_CUT)
            if len(text) > self._largest or (len(text) > values and _items(text) > values):
                raise DecodeError
            body = self._decode(text)
            # msgspec ignores members without a field, and keeps the last of equal keys. If every member was read, the
            # value, written as JSON again, has as many colons as the document.
            is_whole = _write(body).count(b":") == text.count(b":")
        except (MsgspecError, UnicodeError, RecursionError) as error:
            raise DecodeError from error
        if not is_whole or (_BACKSLASH in text and _ESCAPED_COLON.search(text)):
            raise DecodeError
        if cuts:
            self._put_back(body, key.decode(), cuts)
        return body

    def _put_back(self, body: Body, name: str, cuts: list[Text]) -> None:
        """Set the arrays in the entries to the texts that were cut out."""
        assert self._entries is not None  # a key is passed only in this case
        entries = [each for each in self._entries(body) if getattr(each, name) is not UNSET]
        if len(entries) != len(cuts):
            raise DecodeError
        for entry, cut in zip(entries, cuts, strict=True):
            setattr(entry, name, cut)


def _items(text: bytes) -> int:
    """Return an upper bound for the number of values: each value, except the document itself, follows a comma or an
    opening bracket."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")
