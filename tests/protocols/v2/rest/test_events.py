from gateway.core.messages import Headers
from gateway.protocols.v2.rest.events import first_event


def test_reads_an_error_sent_as_one_event() -> None:
    events = Headers(((b"content-type", b"text/event-stream; charset=utf-8"),))
    assert first_event(events, b'data: {"error":"no"}\n\n') == b'{"error":"no"}'
    assert first_event(events, b"no event") == b"no event"
    assert first_event(Headers(), b"data: 1\n\n") == b"data: 1\n\n"
