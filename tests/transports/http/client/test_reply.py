from collections.abc import Iterator

import pytest

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.protocol import Limits
from gateway.core.types import Message
from gateway.transports.http.client.reply import ReplyReader

LIMITS = Limits(message=200_000, headers=200)
LARGE = bytes(range(256)) * 400

# bytes, status, body, whether the connection can be used again
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REPLIES = [
    (SIZED, 200, b"ok", True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", True),
    (b"HTTP/1.1 500 Oh no\r\ncOnTent-LENGTH: 2\r\n\r\nok", 500, b"ok", True),
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", True),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n", 200, b"ok", True),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n2\r\nok\r\n0\r\nTrailer: x\r\n\r\n", 200, b"ok", True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b"", False),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: </x>\r\n\r\n" + SIZED, 200, b"ok", True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 102400\r\n\r\n" + LARGE, 200, LARGE, True),
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 102400\r\n\r\n" + LARGE, 200, LARGE, False),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n19000\r\n" + LARGE + b"\r\n0\r\n\r\n", 200, LARGE, True),
]
UNTIL_CLOSE = [
    (b"HTTP/1.1 200 OK\r\n\r\n", b""),
    (b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nok", b"ok"),
    (b"HTTP/1.1 200 OK\r\n\r\n" + LARGE, LARGE),
]
MALFORMED = [
    (b"HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\nok", "the status 0"),
    (b"HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok", "the status 99"),
    (b"garbage\r\n\r\n", "not HTTP/1.1"),
    (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", "not HTTP/1.1"),
    (b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/2.0, expected HTTP/1.1"),
    (b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/0.9, expected HTTP/1.1"),
    (b"HTTP/1.1 2x0 OK\r\n\r\n", "not HTTP/1.1"),
    (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "not HTTP/1.1"),
    (b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "switched protocols"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "Content-Length"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok", "Content-Length"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", "Content-Length"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", "Content-Length"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", "'gzip', expected chunked"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "'gzip, chunked', expected"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "not HTTP/1.1"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 200001\r\n\r\n", r"200001 bytes, at most 200000 .*limits\.message"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n", "Content-Length"),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n30d41\r\n" + bytes(200_001),
        r"more than 200000 bytes, .*limits\.message",
    ),
    (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(200_001), r"more than 200000 bytes, .*limits\.message"),
    (
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300 + b"\r\nContent-Length: 0\r\n\r\n",
        r"200 bytes of headers .limits\.headers",
    ),
    (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300, r"limits\.headers"),
    (b"HTTP/1.1 100 Continue\r\n\r\n" * 40, r"limits\.headers"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 300, r"limits\.headers"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;" + b"x" * 300, r"limits\.headers"),
]
BROKEN_OFF = [
    (b"", "closed the connection before it answered"),
    (b"HTTP/1.1 2", "closed the connection in the middle of its reply's headers"),
    (b"HTTP/1.1 100 Continue\r\n\r\n", "closed the connection in the middle of its reply's headers"),
    (SIZED[:-1], "closed the connection in the middle of its reply, after 1 of 2 bytes of the body"),
    (
        b"HTTP/1.1 200 OK\r\nContent-Length: 102400\r\n\r\n" + LARGE[:70_000],
        "closed the connection in the middle of its reply, after 70000 of 102400 bytes of the body",
    ),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        "closed the connection in the middle of its reply, after 2 bytes of the body",
    ),
]
STEPS = [10**9, 1, 7, 1000]


def feed(reply: ReplyReader, data: bytes, step: int) -> Message | None:
    """Feed `data` as a connection does: into `body_buffer` if there is one, else at most 64 KiB at a time."""
    for piece in _pieces(reply, data, step):
        if reply.body_buffer is None:
            reply.read(memoryview(piece))
        else:
            reply.body_buffer[: len(piece)] = piece
            reply.filled(len(piece))
        if reply.message is not None:
            break
    return reply.message


def _pieces(reply: ReplyReader, data: bytes, step: int) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        room = 64 * 2**10 if reply.body_buffer is None else len(reply.body_buffer)
        piece = data[at : at + min(step, room)]
        at += len(piece)
        yield piece


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("data", "status", "body", "keep_alive"), REPLIES)
def test_a_reply_is_read(data: bytes, status: int, body: bytes, keep_alive: bool, step: int) -> None:
    reply = ReplyReader(LIMITS)
    message = feed(reply, data, step)
    assert message is not None
    assert (message.status, bytes(message.body), reply.keep_alive) == (status, body, keep_alive)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("data", "body"), UNTIL_CLOSE)
def test_a_reply_is_read_until_the_close(data: bytes, body: bytes, step: int) -> None:
    reply = ReplyReader(LIMITS)
    assert feed(reply, data, step) is None
    assert bytes(reply.end().body) == body
    assert not reply.keep_alive


@pytest.mark.parametrize("tail", [b"x", b"H", SIZED, b"HTTP/1.1 500 Injected\r\nContent-Length: 0\r\n\r\n"])
@pytest.mark.parametrize(("data", "status", "body"), [reply[:3] for reply in REPLIES if len(reply[0]) < 1000])
def test_bytes_behind_a_reply_change_nothing_and_end_its_connection(
    data: bytes, status: int, body: bytes, tail: bytes
) -> None:
    reply = ReplyReader(LIMITS)
    message = feed(reply, data + tail, 10**9)
    assert message is not None
    assert (message.status, bytes(message.body), reply.keep_alive) == (status, body, False)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("data", "why"), MALFORMED)
def test_a_malformed_reply_is_refused(data: bytes, why: str, step: int) -> None:
    with pytest.raises(TransportError, match=why) as caught:
        feed(ReplyReader(LIMITS), data, step)
    assert (caught.value.status, caught.value.reason) == (Status.INTERNAL, Reason.INVALID_OUTPUT)
    assert caught.value.sent


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("data", "why"), BROKEN_OFF)
def test_a_reply_cut_short_is_an_error_that_tells_how_far_it_came(data: bytes, why: str, step: int) -> None:
    reply = ReplyReader(LIMITS)
    assert feed(reply, data, step) is None
    with pytest.raises(TransportError) as caught:
        reply.end()
    assert (caught.value.status, caught.value.reason) == (Status.UNAVAILABLE, Reason.UNREACHABLE)
    assert (caught.value.message, caught.value.sent) == (why, True)


@pytest.mark.parametrize("fields", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b""])
def test_a_reply_to_head_has_no_body(fields: bytes) -> None:
    reply = ReplyReader(LIMITS, to_head=True)
    message = feed(reply, b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n", 1)
    assert message is not None
    assert (message.body, reply.keep_alive) == (b"", False)


def test_header_names_are_lower_case_and_those_of_interim_replies_and_trailers_are_dropped() -> None:
    data = (
        b"HTTP/1.1 103 Hints\r\nA: 1\r\n\r\nHTTP/1.1 200 OK\r\nB-C: D\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1\r\nx\r\n0\r\nE: 2\r\n\r\n"
    )
    message = feed(ReplyReader(LIMITS), data, 10**9)
    assert message is not None
    assert list(message.headers) == [("b-c", "D"), ("transfer-encoding", "chunked")]


def test_many_small_chunks_are_no_long_headers() -> None:
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n"
    message = feed(ReplyReader(LIMITS), data, 1)
    assert message is not None
    assert message.body == b"x" * 1000
