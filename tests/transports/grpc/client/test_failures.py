"""What becomes of a call whose server does not answer as gRPC servers do: the bytes are HTTP/2 by hand."""

import asyncio

import pytest

from gateway.core.errors import Reason, Status
from gateway.core.messages import Message
from gateway.routing.endpoint import Endpoint
from gateway.routing.health import State
from tests.core.http2.by_hand import (
    CONTENT_TYPE,
    END_HEADERS,
    HEADERS,
    OK,
    Peer,
    data,
    endpoint,
    frame,
    go_away,
    head,
    reset,
)
from tests.skipping_loop import ON_ASYNCIO, skip
from tests.transports.grpc.toy import HEAD, TRAILERS, ask, connected, refused, scripted

UNREACHABLE = Status.UNAVAILABLE, Reason.UNREACHABLE
MALFORMED = Status.INTERNAL, Reason.INVALID_OUTPUT
UNKNOWN = Message(status=2, parts=(b"",))

BUSY = ((b"grpc-status", b"14"), (b"grpc-message", b"busy"))
REPLIES = {
    "a status in the first head": (head(OK, CONTENT_TYPE, *BUSY, end=True), Message(status=14, parts=(b"busy",))),
    "a status that gRPC lacks": (head(OK, CONTENT_TYPE, (b"grpc-status", b"99"), end=True), UNKNOWN),
    "a message and a status": (HEAD + data(b"reply") + TRAILERS, Message(parts=(b"reply",))),
    "beside a status of HTTP": (head((b":status", b"503"), *BUSY, end=True), Message(status=14, parts=(b"busy",))),
}
BROKEN = {
    "closed": (b"", True, UNREACHABLE, True),
    "closed after the head": (HEAD, True, UNREACHABLE, True),
    # RFC 9113 section 8.7: nothing was done
    "gone away before it": (go_away(0), False, UNREACHABLE, False),
    "gone away after it": (go_away(1), True, UNREACHABLE, True),
    "a status without a message": (head(OK, CONTENT_TYPE, (b"grpc-status", b"0"), end=True), False, MALFORMED, True),
    "no status behind a message": (HEAD + data(b"reply") + head((b"x", b"y"), end=True), False, MALFORMED, True),
    "a head that is none": (
        frame(HEADERS, END_HEADERS, 1, b"\x80") + data(b"reply") + TRAILERS,
        False,
        MALFORMED,
        True,
    ),
    "a small block of many fields": (
        frame(HEADERS, END_HEADERS, 1, b"\x88" * 5000) + data(b"reply") + TRAILERS,
        False,
        MALFORMED,
        True,
    ),
    "not HTTP/2": (b"HTTP/1.1 400 Bad Request\r\n\r\n", True, UNREACHABLE, True),
}


@pytest.mark.parametrize(("sent", "reply"), REPLIES.values(), ids=REPLIES)
async def test_a_status_is_a_reply(sent: bytes, reply: Message) -> None:
    async with endpoint(sent) as address, connected(address) as connector:
        assert await connector.exchange(ask(b"question")) == reply


@pytest.mark.parametrize(("reply", "close", "kind", "sent"), BROKEN.values(), ids=BROKEN)
async def test_what_is_no_status_is_an_error_of_the_transport(
    reply: bytes, close: bool, kind: tuple[Status, Reason], sent: bool
) -> None:
    async with endpoint(reply, close=close) as address, connected(address) as connector:
        error = await refused(connector.exchange(ask(b"question")))
    assert ((error.status, error.reason), error.sent) == (kind, sent)
    assert error.message
    assert "Stream removed" not in error.message


HTML, JSON = (b"content-type", b"text/html; charset=utf-8"), (b"content-type", b"application/json")
IS_GRPC = "is this the address of a gRPC server?"
NO_REPLY = "a proxy gets no reply from the server behind it"
# gRPC's doc/http-grpc-status-mapping.md
ANSWERS = {
    "200": (200, [HTML], Status.UNKNOWN, Reason.INVALID_OUTPUT, f" and with a web page (text/html): {IS_GRPC}"),
    "200 without a type": (200, [], Status.UNKNOWN, Reason.INVALID_OUTPUT, f": {IS_GRPC}"),
    "200 of JSON": (200, [JSON], Status.UNKNOWN, Reason.INVALID_OUTPUT, " content-type 'application/json'"),
    "302": (302, [(b"location", b"/log-in")], Status.UNKNOWN, Reason.INVALID_OUTPUT, "it redirects to '/log-in'"),
    "400": (400, [], Status.INTERNAL, Reason.INVALID_OUTPUT, IS_GRPC),
    "401": (401, [], Status.UNAUTHENTICATED, Reason.UNAUTHENTICATED, "`forward_headers` on the backend"),
    "403": (403, [], Status.PERMISSION_DENIED, Reason.PERMISSION_DENIED, "is the caller allowed to call this method?"),
    "404": (404, [HTML], Status.UNIMPLEMENTED, Reason.UNSUPPORTED, IS_GRPC),
    "413": (413, [], Status.UNKNOWN, Reason.TOO_LARGE, "larger than a proxy before the server allows"),
    "418": (418, [], Status.UNKNOWN, Reason.INVALID_OUTPUT, IS_GRPC),
    "429": (429, [(b"retry-after", b"7")], Status.UNAVAILABLE, Reason.OVERLOADED, "try again later"),
    "431": (431, [], Status.INTERNAL, Reason.HEADERS_TOO_LARGE, "headers"),
    "500": (500, [JSON], Status.UNKNOWN, Reason.INVALID_OUTPUT, IS_GRPC),
    "502": (502, [HTML], Status.UNAVAILABLE, Reason.UNREACHABLE, NO_REPLY),
    "503": (503, [(b"retry-after", b"7")], Status.UNAVAILABLE, Reason.UNREACHABLE, NO_REPLY),
    "504": (504, [], Status.UNAVAILABLE, Reason.UNREACHABLE, NO_REPLY),
}
OF_THE_SERVER = (502, 503, 504)
"""What says that the server behind a proxy is not there."""


@pytest.mark.parametrize("ends", [True, False], ids=["without a body", "with a body"])
@pytest.mark.parametrize(("status", "fields", "kind", "reason", "told"), ANSWERS.values(), ids=ANSWERS)
async def test_an_http_status_in_place_of_grpcs_is_an_answer(
    status: int, fields: list[tuple[bytes, bytes]], kind: Status, reason: Reason, told: str, ends: bool
) -> None:
    answer = head((b":status", b"%d" % status), *fields, end=ends)
    async with endpoint(answer) as address, connected(address) as connector:
        place = Endpoint(address, connector)
        error = await refused(place.exchange(ask(b"question")))
    assert (error.status, error.reason, error.sent) == (kind, reason, True)
    assert error.message.startswith(f"HTTP status {status} without a gRPC status")
    assert told in error.message
    assert error.retry_after == (7 if (b"retry-after", b"7") in fields else None)
    assert place.health.state is (State.DEGRADED if status in OF_THE_SERVER else State.UP)


ENDS = {"reset": reset(8), "cancelled": head(OK, CONTENT_TYPE, (b"grpc-status", b"1"), end=True)}


@ON_ASYNCIO
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_a_server_that_cancels_after_the_deadline_was_only_the_first_to_notice_it(end: bytes) -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await skip(10)
        peer.send(end)

    async with scripted(play) as connector:
        error = await refused(connector.exchange(ask(deadline=asyncio.get_running_loop().time() + 5)))
    assert (error.status, error.reason) == (Status.DEADLINE_EXCEEDED, Reason.TIMEOUT)
