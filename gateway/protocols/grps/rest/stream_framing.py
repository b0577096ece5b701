"""Splits streamed bodies, which contain JSON objects without delimiters, with bytes of bin_data between them.

Only the end of an HTTP chunk separates bytes from the data after them. Objects are found by their nesting, independent
of chunks.
"""

import re

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.json import BLANKS
from gateway.core.messages import Buffer

_MAX_BLANKS = 64
"""Maximum number of blanks before an object. A chunk that begins with more blanks counts as bytes."""
_OUTSIDE_STRINGS = re.compile(rb'["{}]')
_IN_STRING = re.compile(rb'["\\]')
_BACKSLASH, _QUOTE, _OPEN = b'\\"{'


class JsonCutter:
    """Splits a body at the end of each JSON object. Data that does not begin like an object counts as bytes, up to the
    end of its chunk."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._follows_object = False
        self._begin_object()

    def _begin_object(self) -> None:
        self._scanned = 0
        self._depth = 0
        self._in_string = False

    def feed(self, data: Buffer) -> list[Buffer]:
        """Return the objects that `data` completes.

        Raise GatewayError (RESOURCE_EXHAUSTED) if an object exceeds the limit."""
        self._buffer += data
        objects: list[Buffer] = []
        while self._begins_with_object() and self._reaches_end():
            objects.append(bytes(self._buffer[: self._scanned]))
            del self._buffer[: self._scanned]
            self._begin_object()
            self._follows_object = True
        if len(self._buffer) > self._limit:
            raise refusal(Reason.TOO_LARGE, f"a message of a stream is over {self._limit} bytes, limits.message")
        return objects

    def boundary(self) -> list[Buffer]:
        """Return the bytes that end with a chunk. An object can continue in the next chunk."""
        if self._begins_with_object() or not self._buffer:
            return []
        message, self._buffer = bytes(self._buffer), bytearray()
        return [message]

    def end(self) -> list[Buffer]:
        """Return the bytes that end with the body. Raise DecodeError if the body ends inside an object."""
        if self._begins_with_object():
            raise DecodeError("the stream ends inside a JSON object")
        return self.boundary()

    def _begins_with_object(self) -> bool:
        if self._depth:
            return True
        if self._follows_object and self._buffer:
            # The C++ server ends each object with a newline, which a proxy can send in a separate chunk.
            if self._buffer[:1] == b"\n":
                del self._buffer[:1]
            self._follows_object = False
        if self._buffer[:1].isspace():
            first = self._buffer[:_MAX_BLANKS]
            rest = first.lstrip(BLANKS)
            if rest[:1] == b"{":
                del self._buffer[: len(first) - len(rest)]
        return self._buffer[:1] == b"{"

    def _reaches_end(self) -> bool:
        """Return whether the object is complete; in that case it ends at `_scanned`."""
        buffer = self._buffer
        while found := (_IN_STRING if self._in_string else _OUTSIDE_STRINGS).search(buffer, self._scanned):
            mark, self._scanned = buffer[found.start()], found.end()
            if mark == _BACKSLASH:
                self._scanned += 1
            elif mark == _QUOTE:
                self._in_string = not self._in_string
            else:
                self._depth += 1 if mark == _OPEN else -1
                if not self._depth:
                    return True
        self._scanned = max(self._scanned, len(buffer))
        return False
