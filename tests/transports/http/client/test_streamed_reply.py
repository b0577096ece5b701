"""Replies that are cut into messages as they arrive, on asyncio's own loop and on uvloop."""

import asyncio
import gzip
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.protocol import Limits
from gateway.transports.http.client.connection import HttpClientConnection
from gateway.transports.http.client.connector import HttpConnector
from tests.limits import settle
from tests.transports.http.client.endpoint import (
    GET,
    JSON,
    OK,
    Endpoint,
    answering,
    connecting,
    connector_to,
    post,
    read_request,
    serving,
)
from tests.transports.http.line_framing import LINES

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n"
KIB = 2**10
MIB = 2**20


def chunks(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


END = b"0\r\n\r\n"
STREAM = CHUNKED + chunks(b"a\n", b"b\n") + END


@asynccontextmanager
async def streaming(port: int) -> AsyncIterator[AsyncGenerator[Message, None]]:
    """The messages of a reply, as they are pulled."""
    async with connecting(port, stream_framing=LINES) as connector, aclosing(connector.stream(GET)) as replies:
        yield replies


async def taken(connector: HttpConnector, message: Message = GET) -> list[bytes]:
    async with aclosing(connector.stream(message)) as replies:
        return [bytes(reply.body) async for reply in replies]


async def failing(connector: HttpConnector, message: Message = GET) -> tuple[list[bytes], TransportError]:
    """The messages before the error, and the error."""
    found = []
    try:
        async for reply in connector.stream(message):
            found.append(bytes(reply.body))
    except TransportError as error:
        return found, error
    raise AssertionError(f"no error after {found}")


GOOD = [
    (STREAM, [b"a", b"b"]),
    (CHUNKED + chunks(b"a\nb\n") + END, [b"a", b"b"]),
    (CHUNKED + chunks(b"a", b"bc", b"\nd", b"\n") + END, [b"abc", b"d"]),
    (CHUNKED + chunks(b"a|", b"b|") + END, [b"a|", b"b|"]),
    (CHUNKED + b"2;x=y\r\na\n\r\n00\r\nX-Trailer: b\r\nServer-Timing: 7\r\n\r\n", [b"a"]),
    (CHUNKED + END, []),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na\nb\n", [b"a", b"b"]),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", []),
    (b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\na\n", [b"a"]),
    (b"HTTP/1.1 100 Continue\r\n\r\n" + STREAM, [b"a", b"b"]),
    # A reply other than 200 is one message, whatever is in it.
    (b"HTTP/1.1 500 Oh\r\nContent-Length: 4\r\n\r\na\nb\n", [b"a\nb\n"]),
    (b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(b"a\n", b"b|") + END, [b"a\nb|"]),
    (
        b"HTTP/1.1 400 No\r\nContent-Encoding: gzip\r\nContent-Length: 24\r\n\r\n" + gzip.compress(b"oh\n\n", mtime=0),
        [b"oh\n\n"],
    ),
    (b"HTTP/1.1 204 No Content\r\n\r\n", [b""]),
]
UNTIL_CLOSE = [
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\na\nb\n", [b"a", b"b"]),
    (b"HTTP/1.0 200 OK\r\n\r\na\n", [b"a"]),
    (b"HTTP/1.1 200 OK\r\n\r\n", []),
    (b"HTTP/1.1 500 Oh\r\n\r\na\nb", [b"a\nb"]),
]


@pytest.mark.parametrize(("reply", "messages"), GOOD)
async def test_a_reply_gives_its_messages_and_its_connection_carries_the_next(
    reply: bytes, messages: Sequence[bytes]
) -> None:
    async with answering(reply, stream_framing=LINES) as (endpoint, connector):
        for _ in range(3):
            assert await taken(connector, post(b"q")) == messages
        assert endpoint.connections == 1


@pytest.mark.parametrize(("reply", "messages"), UNTIL_CLOSE)
async def test_a_reply_may_end_with_its_connection(reply: bytes, messages: Sequence[bytes]) -> None:
    async with answering(reply, close_after_reply=True, stream_framing=LINES) as (endpoint, connector):
        for _ in range(2):
            assert await taken(connector) == messages
        assert endpoint.connections == 2


@pytest.mark.parametrize(("reply", "messages"), [*GOOD, *UNTIL_CLOSE])
async def test_a_reply_may_come_byte_by_byte(reply: bytes, messages: Sequence[bytes]) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for at in range(len(reply)):
            writer.write(reply[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0)

    async with connector_to(handle, stream_framing=LINES) as connector:
        assert await taken(connector) == messages


async def test_each_message_has_the_replys_status_and_headers() -> None:
    async with answering(STREAM, stream_framing=LINES) as (_, connector):
        found = [(each.status, each.headers.get("x-a"), each.body) async for each in connector.stream(GET)]
    assert found == [(200, "b", b"a"), (200, "b", b"b")]


async def test_a_framing_may_leave_bodies_compressed() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\n"
    async with answering(reply, stream_framing=replace(LINES, keeps_coding=True)) as (_, connector):
        [message] = [each async for each in connector.stream(post(b"q"))]
    assert (message.headers.get("content-encoding"), bytes(message.body)) == ("gzip", b"\x1f")


async def test_the_answer_to_head_is_one_message_without_a_body() -> None:
    async with answering(CHUNKED, stream_framing=LINES) as (_, connector):
        assert await taken(connector, Message("HEAD", "/v2")) == [b""]


async def test_a_message_can_be_taken_before_the_next_is_written() -> None:
    proceed = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED + chunks(b"a\n"))
        await proceed.wait()
        writer.write(chunks(b"b\n") + END)

    async with serving(handle) as port, streaming(port) as replies:
        assert (await anext(replies)).body == b"a"
        proceed.set()
        assert (await anext(replies)).body == b"b"
        assert await anext(replies, None) is None


async def test_streams_and_exchanges_share_the_connections() -> None:
    async with answering(STREAM, OK, STREAM, stream_framing=LINES) as (endpoint, connector):
        assert await taken(connector) == [b"a", b"b"]
        assert (await connector.exchange(GET)).body == b"ok"
        assert await taken(connector) == [b"a", b"b"]
        assert endpoint.connections == 1


CUT_OFF = (Status.UNAVAILABLE, Reason.UNREACHABLE)
NOT_GOOD = (Status.INTERNAL, Reason.INVALID_OUTPUT)
BAD = [
    # The endpoint closes too early.
    (b"", [], CUT_OFF, "closed the connection before it answered"),
    (CHUNKED, [], CUT_OFF, "closed the connection in the middle of its reply, after 0 bytes of the body"),
    (CHUNKED + chunks(b"a\n"), [b"a"], CUT_OFF, "in the middle of its reply, after 2 bytes of the body"),
    (CHUNKED + chunks(b"a\n") + b"5\r\nb\n", [b"a", b"b"], CUT_OFF, "after 4 bytes of the body"),
    (CHUNKED + chunks(b"a\n") + b"0\r\n", [b"a"], CUT_OFF, "after 2 bytes of the body"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na\n", [b"a"], CUT_OFF, "after 2 of 3 bytes of the body"),
    # The body ends inside a message.
    (CHUNKED + chunks(b"a\nb") + END, [b"a"], NOT_GOOD, "reply: the stream ends inside the line b'b'"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na\nb", [b"a"], NOT_GOOD, "the stream ends inside the line b'b'"),
    (b"HTTP/1.1 200 OK\r\n\r\na\nb", [b"a"], NOT_GOOD, "reply: the stream ends inside the line b'b'"),
    # The body is no stream of messages.
    (CHUNKED + chunks(b"a\n", b"\0\n") + END, [b"a"], NOT_GOOD, "reply: a line with NUL"),
    (CHUNKED + chunks(b"a\n", b"x" * 1001), [b"a"], NOT_GOOD, "reply: a line of more than 1000 bytes"),
    # It is not HTTP.
    (CHUNKED + chunks(b"a\n") + b"-1\r\n", [b"a"], NOT_GOOD, "reply is not HTTP/1.1: Invalid character in chunk size"),
    (CHUNKED + b"fffffffffffffffff\r\n", [], NOT_GOOD, "reply is not HTTP/1.1: Chunk size overflow"),
    (CHUNKED + b"1\r\nabc\r\n", [], NOT_GOOD, "reply is not HTTP/1.1"),
    (CHUNKED + b"1;" + b"x" * 2000, [], NOT_GOOD, r"more than 500 bytes of headers (limits.headers)"),
    (CHUNKED + b"0\r\n" + b"X: y\r\n" * 400, [], NOT_GOOD, r"more than 500 bytes of headers (limits.headers)"),
    (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", [], NOT_GOOD, "'gzip, chunked', expected chunked"),
    (HEAD + b"Content-Encoding: gzip\r\n\r\n", [], NOT_GOOD, "Content-Encoding 'gzip', expected an unencoded reply"),
]


@pytest.mark.parametrize(("reply", "messages", "kind", "text"), BAD)
async def test_a_malformed_reply_fails_after_the_messages_before_the_fault(
    reply: bytes, messages: Sequence[bytes], kind: tuple[Status, Reason], text: str
) -> None:
    limits = Limits(message=1000, headers=500)
    async with answering(reply, close_after_reply=True, limits=limits, stream_framing=LINES) as (_, connector):
        found, error = await failing(connector)
    assert (error.status, error.reason) == kind
    assert text in error.message
    assert error.sent
    assert found == messages


async def test_a_stream_may_be_longer_than_the_limit_of_one_message() -> None:
    reply = CHUNKED + chunks((b"x" * 999 + b"\n") * 3000) + END
    async with answering(reply, limits=Limits(message=1000), stream_framing=LINES) as (_, connector):
        assert await taken(connector) == [b"x" * 999] * 3000


async def stop_early(connector: HttpConnector) -> None:
    async with aclosing(connector.stream(GET)) as replies:
        await anext(replies)


async def cancel_the_wait(connector: HttpConnector) -> None:
    async with aclosing(connector.stream(GET)) as replies:
        await anext(replies)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(replies)


@pytest.mark.parametrize("stop", [stop_early, cancel_the_wait])
async def test_a_consumer_that_stops_closes_the_connection(stop: Callable[[HttpConnector], object]) -> None:
    seen = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED + chunks(b"a\n"))
        try:
            await reader.read()
        finally:
            seen.set()

    async with connector_to(handle, stream_framing=LINES) as connector:
        await stop(connector)  # type: ignore[misc]
        await seen.wait()


async def test_messages_that_are_not_pulled_stay_with_the_endpoint() -> None:
    """All of them arrive once they are pulled."""
    line, count = b"x" * 1023 + b"\n", 64 * KIB
    written = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await read_request(reader)
        writer.write(CHUNKED)
        for _ in range(count // 64):
            writer.write(chunks(line * 64))
            await writer.drain()
            written += 64
        writer.write(END)

    async with serving(handle) as port, streaming(port) as replies:
        await anext(replies)
        await settle(1000)
        assert written < count // 2
        left = [each async for each in replies]
    assert len(left) == count - 1
    assert {bytes(each.body) for each in left} == {line[:-1]}


async def test_a_request_waits_for_who_pulls_its_reply_without_keeping_the_loop_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The endpoint answers while the request is being written. Its reply has to be read before more is written."""
    looks = 0

    def is_quiet(connection: HttpClientConnection) -> bool:
        nonlocal looks
        looks += 1
        return quiet(connection)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED + chunks(bytes(b"x" * KIB + b"\n")) * 4 * KIB)
        await reader.readexactly(64 * MIB)
        writer.write(END)

    async def is_still() -> bool:
        before = looks
        await settle(1000)
        return looks == before

    quiet = HttpClientConnection.is_quiet
    monkeypatch.setattr(HttpClientConnection, "is_quiet", is_quiet)
    async with (
        serving(handle, limit=128 * MIB) as port,
        connecting(port, stream_framing=LINES) as connector,
        aclosing(connector.stream(post(memoryview(bytes(64 * MIB))))) as replies,
    ):
        await anext(replies)
        assert any([await is_still() for _ in range(20)])
        assert len([each async for each in replies]) == 4 * KIB - 1


async def test_a_connector_that_is_closed_ends_its_streams() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED + chunks(b"a\n"))
        await reader.read()

    async with connector_to(handle, stream_framing=LINES) as connector:
        replies = connector.stream(GET)
        await anext(replies)
        await connector.close()
        with pytest.raises(TransportError, match="in the middle of its reply"):
            await anext(replies)


async def test_a_stream_that_cannot_begin_sends_nothing() -> None:
    endpoint = Endpoint([STREAM])
    now = asyncio.get_running_loop().time()
    async with (
        serving(endpoint.handle) as port,
        connecting(port) as unary,
        connecting(port, stream_framing=LINES) as it,
    ):
        _, error = await failing(unary)
        assert (error.status, error.reason, error.sent) == (Status.UNIMPLEMENTED, Reason.UNSUPPORTED, False)
        _, error = await failing(it, post(b"", deadline=now))
        assert (error.status, error.sent) == (Status.DEADLINE_EXCEEDED, False)
    assert endpoint.requests == []


@pytest.mark.parametrize(
    ("method", "body", "connections"),
    [
        ("GET", b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n", 2),
        ("DELETE", b"{}", 2),
        ("OPTIONS", b"{}", 2),
        ("GET", b"", 1),
        ("DELETE", b"", 1),
        ("POST", b"{}", 1),
        ("PUT", b"{}", 1),
        ("PATCH", b"{}", 1),
    ],
)
async def test_a_body_that_a_server_may_ignore_is_the_last_on_its_connection(
    method: str, body: bytes, connections: int
) -> None:
    """Also where the server says that it keeps the connection: it would take the body for its next request."""
    reply = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nok\n"
    async with answering(reply, stream_framing=LINES) as (endpoint, connector):
        for message in (Message(method, "/v1/custom", JSON, (body,)), GET):
            assert [bytes(each.body) async for each in connector.stream(message)] == [b"ok"]
    (head, sent), (following, _) = endpoint.requests
    assert sent == body
    assert (b"\r\nConnection: close\r\n" in head) == (connections == 2)
    assert b"Connection: close" not in following
    assert endpoint.connections == connections
