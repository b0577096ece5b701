"""Server-sent events (`text/event-stream`), a framing for streams of JSON. Each message consists of `data: {json}` and
a blank line.

The writer uses the format of Triton, MLServer and the OpenAI API. The parser follows section 9.2.6 of the WHATWG HTML
standard. Its result does not depend on how the stream is divided into pieces.
"""

from codecs import BOM_UTF8

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.messages import Buffer, Headers
from gateway.core.words import has_byte

# byte for byte what Triton and MLServer send
HEADERS = Headers(((b"content-type", b"text/event-stream; charset=utf-8"),))


def write_event(parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """Return an event whose data is the JSON text in `parts`, line by line; an empty tuple if `parts` is empty."""
    if any(has_byte(each, b"\n") for each in parts):  # the event of a server that is relayed without decoding
        parts = (b"".join(parts).replace(b"\n", b"\ndata: "),)
    return (b"data: ", *parts, b"\n\n") if parts else ()


class EventCutter:
    """Splits a stream of bytes into events, and returns each event's data, which can have at most `limit` bytes.

    The parser skips comments, fields other than `data`, and events without data. An event whose data is `end_mark` ends
    the stream. The parser does not return this event, and rejects later events."""

    def __init__(self, limit: int, end_mark: bytes = b"") -> None:
        self._limit = limit
        self._end_mark = end_mark
        self._has_ended = False
        self._line = bytearray()
        """The current line, whose end has not arrived."""
        self._data: list[bytes] = []
        """The data lines of the current event, whose end has not arrived."""
        self._size = 0
        """The total length of these lines plus one byte per line, which limits the number of empty lines too."""
        self._after_return = False
        """True if the last byte was a carriage return. If a line feed follows, it is part of the same line end."""
        self._begun = False
        """True after the first line, because a byte order mark can only be in the first line."""

    def feed(self, data: Buffer) -> list[Buffer]:
        """Return the events that `data` completes.

        Raises:
            DecodeError: an event follows the end mark.
            GatewayError: RESOURCE_EXHAUSTED if a line or an event exceeds the limit.
        """
        octets = bytes(data)
        if self._after_return and octets:
            octets = octets.removeprefix(b"\n")
            self._after_return = False
        if not octets:
            return []
        self._after_return = octets.endswith(b"\r")
        first, *others = octets.splitlines()  # bytes are split at \r\n, \n and \r only
        if octets.endswith((b"\n", b"\r")):
            others.append(b"")
        self._extend_line(first)
        events: list[Buffer] = []
        for start in others:
            events += self._end_line()
            self._extend_line(start)
        return events

    def boundary(self) -> list[Buffer]:
        """Return nothing, because an event ends at its blank line and not at the end of an HTTP chunk."""
        return []

    def end(self) -> list[Buffer]:
        """Return nothing. Raises DecodeError if the stream ends inside an event."""
        if self._line or self._data:
            raise DecodeError("the stream ends inside an event")
        return []

    def _extend_line(self, piece: bytes) -> None:
        self._line += piece
        if len(self._line) + self._size > self._limit + len(b"data: "):
            raise refusal(
                Reason.TOO_LARGE, f"an event has more than {self._limit} bytes (limits.message); raise the limit"
            )

    def _end_line(self) -> list[Buffer]:
        line = bytes(self._line)
        self._line.clear()
        if not self._begun:
            line, self._begun = line.removeprefix(BOM_UTF8), True
        if not line:
            return self._end_event()
        field, _, text = line.partition(b":")
        if field == b"data":
            self._data.append(text.removeprefix(b" "))
            self._size += len(self._data[-1]) + 1
        return []

    def _end_event(self) -> list[Buffer]:
        event, self._data, self._size = b"\n".join(self._data), [], 0
        if not event:
            return []
        if self._has_ended:
            raise DecodeError(f"an event after {self._end_mark.decode()}, which ends the stream")
        self._has_ended = event == self._end_mark
        return [] if self._has_ended else [event]
