"""What becomes of a call whose server does not answer as gRPC servers do: the bytes are HTTP/2 by hand."""

import asyncio

import pytest

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.types import Message
from tests.core.http2.by_hand import CONTENT_TYPE, data, endpoint, go_away, head, reset
from tests.limits import GENEROUS
from tests.transports.grpc.toy import ask, connected

OK = (b":status", b"200")
UNREACHABLE = Status.UNAVAILABLE, Reason.UNREACHABLE
MALFORMED = Status.INTERNAL, Reason.INVALID_OUTPUT

REPLIES = {
    "a status in the first head": (
        head(OK, CONTENT_TYPE, (b"grpc-status", b"14"), (b"grpc-message", b"busy"), end=True),
        Message(status=14, parts=(b"busy",)),
    ),
    "a status that gRPC lacks": (
        head(OK, CONTENT_TYPE, (b"grpc-status", b"99"), end=True),
        Message(status=2, parts=(b"",)),
    ),
    "a message and a status": (
        head(OK, CONTENT_TYPE) + data(b"reply") + head((b"grpc-status", b"0"), end=True),
        Message(parts=(b"reply",)),
    ),
}
BROKEN = {
    "closed": (b"", True, UNREACHABLE, True),
    "closed after the head": (head(OK, CONTENT_TYPE), True, UNREACHABLE, True),
    "reset: internal error": (reset(2), False, UNREACHABLE, True),
    "reset: cancelled": (reset(8), False, UNREACHABLE, True),
    # RFC 9113 section 8.7: these two say that nothing was done
    "reset: refused": (reset(7), False, UNREACHABLE, False),
    "gone away before it": (go_away(0), False, UNREACHABLE, False),
    "gone away after it": (go_away(1), True, UNREACHABLE, True),
    "an HTTP proxy's 502": (
        head((b":status", b"502"), (b"content-type", b"text/html"), end=True),
        False,
        UNREACHABLE,
        True,
    ),
    "a web page": (head(OK, (b"content-type", b"text/html"), end=True), False, MALFORMED, True),
    "no status": (head(OK, CONTENT_TYPE) + data(b"reply", end=True), False, MALFORMED, True),
    "a status without a message": (head(OK, CONTENT_TYPE, (b"grpc-status", b"0"), end=True), False, MALFORMED, True),
    "half a message": (
        head(OK, CONTENT_TYPE) + data(b"re", size=5) + head((b"grpc-status", b"0"), end=True),
        False,
        MALFORMED,
        True,
    ),
    "not HTTP/2": (b"HTTP/1.1 400 Bad Request\r\n\r\n", True, UNREACHABLE, True),
}


@pytest.mark.parametrize(("sent", "reply"), REPLIES.values(), ids=REPLIES)
async def test_a_status_is_a_reply(sent: bytes, reply: Message) -> None:
    async with endpoint(sent) as address, connected(address) as connector, asyncio.timeout(GENEROUS):
        assert await connector.exchange(ask(b"question")) == reply


@pytest.mark.parametrize(("reply", "close", "kind", "sent"), BROKEN.values(), ids=BROKEN)
async def test_what_is_no_status_is_an_error_of_the_transport(
    reply: bytes, close: bool, kind: tuple[Status, Reason], sent: bool
) -> None:
    async with endpoint(reply, close=close) as address, connected(address) as connector, asyncio.timeout(GENEROUS):
        with pytest.raises(TransportError) as caught:
            await connector.exchange(ask(b"question"))
    error = caught.value
    assert ((error.status, error.reason), error.sent) == (kind, sent)
    assert error.message
    assert "Stream removed" not in error.message
