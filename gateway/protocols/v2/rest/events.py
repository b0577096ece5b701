"""Server-sent events, in which V2 REST streams: `data: {json}` and a blank line for each response, as Triton and
MLServer write them. Read as the WHATWG's specification has them, wherever the body is cut.
"""

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.protocol import StreamFraming
from gateway.core.types import Buffer, Headers

# Triton's and MLServer's, to the letter
HEADERS = Headers(((b"content-type", b"text/event-stream; charset=utf-8"),))

_MEDIA_TYPE = "text/event-stream"

_BOM = b"\xef\xbb\xbf"


def wrap(parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """A JSON text, which has no line ends, as an event; nothing for nothing."""
    return (b"data: ", *parts, b"\n\n") if parts else ()


class EventCutter:
    """Cuts the data of events, each of at most `limit` bytes, out of a stream of them.

    Comments, other fields than `data` and events without data are passed over.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()
        """What has come of a line."""
        self._data: list[bytes] = []
        """The lines of the event that is not complete."""
        self._size = 0
        """Of those lines, and a byte for each: without it, there could be any number of empty ones."""
        self._after_return = False
        self._begun = False

    def feed(self, data: Buffer) -> list[Buffer]:
        """The events that `data` completes.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED, a line or an event beyond the limit.
        """
        octets = bytes(data)
        if self._after_return and octets:
            octets = octets.removeprefix(b"\n")
            self._after_return = False
        if not octets:
            return []
        self._after_return = octets.endswith(b"\r")
        first, *rest = octets.splitlines()  # of bytes: at \r\n, \n and \r
        if octets.endswith((b"\n", b"\r")):
            rest.append(b"")
        self._grow(first)
        events: list[Buffer] = []
        for begun in rest:
            events += self._end_line()
            self._grow(begun)
        return events

    def boundary(self) -> list[Buffer]:
        """Nothing: events end by themselves."""
        return []

    def end(self) -> list[Buffer]:
        """Nothing is left. Raises DecodeError where an event is: its rest is lost."""
        if self._line or self._data:
            raise DecodeError("the stream ends inside an event")
        return []

    def _grow(self, piece: bytes) -> None:
        self._line += piece
        if len(self._line) + self._size > self._limit + len(b"data: "):
            raise refusal(Reason.TOO_LARGE, f"an event has more than {self._limit} bytes (limits.message)")

    def _end_line(self) -> list[Buffer]:
        line = bytes(self._line)
        self._line.clear()
        if not self._begun:
            line, self._begun = line.removeprefix(_BOM), True
        if not line:
            return self._end_event()
        field, _, text = line.partition(b":")
        if field == b"data":
            self._data.append(text.removeprefix(b" "))
            self._size += len(self._data[-1]) + 1
        return []

    def _end_event(self) -> list[Buffer]:
        event, self._data, self._size = b"\n".join(self._data), [], 0
        return [event] if event else []


FRAMING = StreamFraming(wrap, EventCutter)


def unwrapped(headers: Headers, body: Buffer) -> Buffer:
    """The data of the first event, if `body` is a whole stream of them: so Triton answers a request that fails before
    its first response, with the status of the error."""
    if not headers.get("content-type").lower().startswith(_MEDIA_TYPE):
        return body
    return next(iter(EventCutter(len(body)).feed(body)), body)
