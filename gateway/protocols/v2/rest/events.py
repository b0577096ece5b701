"""Server-sent events, the framing of V2 REST streams: one event per response, and no end mark."""

from gateway.core.messages import Buffer, Headers
from gateway.core.protocol import StreamFraming
from gateway.core.server_sent_events import EventCutter, write_event

_MEDIA_TYPE = "text/event-stream"

FRAMING = StreamFraming(write_event, EventCutter)


def first_event(headers: Headers, body: Buffer) -> Buffer:
    """Return the data of the first event if `body` is a stream of events, otherwise `body`.

    If a streaming request fails before its first response, Triton sends an error status and one event."""
    if not headers.get("content-type").lower().startswith(_MEDIA_TYPE):
        return body
    return next(iter(EventCutter(len(body)).feed(body)), body)
