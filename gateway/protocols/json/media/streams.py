"""Splits and writes streams of documents in one body: server-sent events and JSON lines.

OpenAI's API ends a stream of events with the event `[DONE]`. The gateway accepts this event in all event streams, and
writes it if the form's `stream` is `openai`.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from gateway.core.errors import Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.json import BLANKS
from gateway.core.messages import Buffer
from gateway.core.protocol import StreamFraming
from gateway.core.server_sent_events import EventCutter, write_event

END_MARK = b"[DONE]"
"""The data of the event after the last document."""


class LineCutter:
    """Splits a stream of bytes into lines of at most `limit` bytes each. The class implements MessageSplitter of
    `core.protocol`, which the HTTP connector calls.

    The class skips blank lines, because servers send them to keep a connection open. The last line needs no line
    end."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()
        """The beginning of the line whose end has not arrived."""

    def feed(self, data: Buffer) -> list[Buffer]:
        """Return the lines that `data` completes, without their line ends.

        Raise GatewayError (RESOURCE_EXHAUSTED) if a line exceeds the limit."""
        first, *others = bytes(data).split(b"\n")
        lines: list[Buffer] = []
        self._extend(first)
        for start in others:
            lines += self._end_line()
            self._extend(start)
        return lines

    def boundary(self) -> list[Buffer]:
        """Return nothing, because a line can continue in the next HTTP chunk."""
        return []

    def end(self) -> list[Buffer]:
        """Return the line that ends at the end of the body."""
        return self._end_line()

    def _extend(self, piece: bytes) -> None:
        self._line += piece
        if len(self._line) > self._limit + 1:  # `+ 1` for the carriage return before the line end
            raise refusal(
                Reason.TOO_LARGE, f"a line has more than {self._limit} bytes (limits.message); raise the limit"
            )

    def _end_line(self) -> list[Buffer]:
        line = bytes(self._line).strip(BLANKS)
        self._line.clear()
        return [line] if line else []


def write_line(parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """Return a line that contains `parts`, a JSON text without line ends. Return an empty tuple if `parts` is empty."""
    return (*parts, b"\n") if parts else ()


EVENTS = StreamFraming(write_event, partial(EventCutter, end_mark=END_MARK))
LINES = StreamFraming(write_line, LineCutter)


@frozen
class StreamKind:
    """The format of a streamed response: its framing, its media type, and the body of the last message."""

    framing: StreamFraming
    media_type: str
    end: tuple[bytes, ...] = ()


STREAM_KINDS: Mapping[str, StreamKind] = MappingProxyType(
    {
        "sse": StreamKind(EVENTS, "text/event-stream"),
        "openai": StreamKind(EVENTS, "text/event-stream", (END_MARK,)),
        "jsonl": StreamKind(LINES, "application/jsonlines"),
    }
)
"""The values of a form's `stream`. `compiled`, `protocol`, `server` and `openapi` read them."""
