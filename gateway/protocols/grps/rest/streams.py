"""A streamed HTTP body: JSON objects one behind the other without a delimiter, and raw bytes in between, which nothing
tells apart but where HTTP's chunks end."""

import re

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.protocol import StreamFraming
from gateway.core.types import Buffer

_BLANKS = b" \t\r\n"
_MOST_BLANKS = 64  # before an object; what begins with more is bytes
_OUTSIDE_STRINGS = re.compile(rb'["{}]')
_IN_STRING = re.compile(rb'["\\]')


class JsonCutter:
    """Cuts at the end of each JSON object. Whatever begins otherwise is bytes, up to the end of a chunk."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._is_behind_object = False
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._scanned = 0
        self._depth = 0
        self._in_string = False

    def feed(self, data: Buffer) -> list[Buffer]:
        """The objects that `data` completes. Raises GatewayError, RESOURCE_EXHAUSTED, for one beyond the limit."""
        self._buffer += data
        objects: list[Buffer] = []
        while self._begins_object() and self._reaches_end():
            objects.append(bytes(self._buffer[: self._scanned]))
            del self._buffer[: self._scanned]
            self._start_afresh()
            self._is_behind_object = True
        if len(self._buffer) > self._limit:
            raise refusal(Reason.TOO_LARGE, f"a message of a stream is over {self._limit} bytes, limits.message")
        return objects

    def boundary(self) -> list[Buffer]:
        """The bytes that end with a chunk; an object may go on in the next."""
        if self._begins_object() or not self._buffer:
            return []
        message, self._buffer = bytes(self._buffer), bytearray()
        return [message]

    def end(self) -> list[Buffer]:
        """The bytes that end with the body. Raises DecodeError within an object."""
        if self._begins_object():
            raise DecodeError("the stream ends inside a JSON object")
        return self.boundary()

    def _begins_object(self) -> bool:
        if self._depth:
            return True
        if self._is_behind_object and self._buffer:
            # The C++ server ends each with a newline, which a proxy may have put into a chunk of its own.
            if self._buffer[:1] == b"\n":
                del self._buffer[:1]
            self._is_behind_object = False
        if self._buffer[:1].isspace():
            first = self._buffer[:_MOST_BLANKS]
            rest = first.lstrip(_BLANKS)
            if rest[:1] == b"{":
                del self._buffer[: len(first) - len(rest)]
        return self._buffer[:1] == b"{"

    def _reaches_end(self) -> bool:
        """Whether the object is complete; `_scanned` is then where it ends."""
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


_BACKSLASH, _QUOTE, _OPEN = b'\\"{'


def _as_they_are(parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    return parts


CONCATENATED = StreamFraming(wrap=_as_they_are, cutter=JsonCutter)


class _Pieces:
    """Cuts nothing: each piece of the body as it comes; one of no bytes where there is none, to tell that the reply has
    come."""

    _has_come = False

    def feed(self, data: Buffer) -> list[Buffer]:
        """The piece itself."""
        self._has_come = self._has_come or len(data) > 0
        return [data] if len(data) else []

    def boundary(self) -> list[Buffer]:
        """Nothing is left."""
        return []

    def end(self) -> list[Buffer]:
        """Of a body without bytes the one piece."""
        return [] if self._has_come else [b""]


PIECES = StreamFraming(wrap=_as_they_are, cutter=lambda limit: _Pieces(), keeps_coding=True)
