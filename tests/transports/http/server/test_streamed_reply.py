"""Streamed replies to raw clients, on asyncio's own loop and on uvloop."""

import asyncio
import gzip
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import pytest

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.messages import Headers, Message
from gateway.core.protocol import Limits, Protocol
from gateway.core.transport import ExchangeStream
from gateway.transports.timeouts import Timeouts
from tests.limits import GENEROUS, settle
from tests.transports.http.server.toy_listener import LAST as HELLO_LAST
from tests.transports.http.server.toy_listener import (
    SAID_LAST,
    TOO_LARGE,
    Source,
    client,
    connected,
    get,
    listening,
    post,
    replies_to,
    reply,
    send_byte_by_byte,
    send_whole,
    text_reply,
)

GET = get("/stream")
LAST = get("/stream", "Connection: close")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD_LAST = HEAD[:-2] + b"Connection: close\r\n\r\n"
END = b"0\r\n\r\n"
FAILED = "the gateway failed on this request; its log says why"
KIB, MIB = 2**10, 2**20


def chunks(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def giving(*replies: Message | Exception) -> ExchangeStream:
    """Answers each request with `replies`."""

    async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        async for _ in messages:
            for each in replies:
                if isinstance(each, Exception):
                    raise each
                yield each

    return stream


def texts(*said: str) -> ExchangeStream:
    return giving(*map(text_reply, said))


async def say_back(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
    async for message in messages:
        yield text_reply(f"{protocol.name} {message.method} {message.path}?{message.query}")
        yield text_reply(bytes(message.body).decode())


async def streamed(stream: ExchangeStream, sent: bytes) -> bytes:
    return await replies_to(sent, stream=stream)


# What a client gets.


async def test_each_message_is_a_chunk_in_the_framing_of_the_protocol() -> None:
    said = await streamed(texts("ab", "", "x" * 20), LAST)
    assert said == HEAD_LAST + chunks(b"ab\n", b"\n", b"x" * 20 + b"\n") + END


@pytest.mark.parametrize("send", [send_whole, send_byte_by_byte])
async def test_the_stream_is_given_the_request_and_the_next_one_is_answered_behind_it(
    send: Callable[[asyncio.StreamWriter, bytes], object],
) -> None:
    sent = post(b"hi", path="/stream?a=b")
    stream = HEAD + chunks(b"streamer POST /stream?a=b\n", b"hi\n") + END
    async with client(stream=say_back) as (reader, writer):
        await send(writer, sent + sent + HELLO_LAST)  # type: ignore[misc]
        assert await reader.read() == stream + stream + SAID_LAST


async def test_a_request_that_wants_no_stream_is_exchanged() -> None:
    sent = post(b"", "Connection: close", path="/stream/not")
    assert await streamed(say_back, sent) == reply("200 OK", "POST /stream/not []", last=True)


async def test_a_message_is_there_before_the_next_is_pulled() -> None:
    source = Source()
    async with client(stream=source) as (reader, writer):
        await send_whole(writer, GET)
        for text in ("a", "b"):
            source.say(text)
            await reader.readuntil(chunks(text.encode() + b"\n"))
        source.say(None)
        assert await reader.readexactly(len(END)) == END


async def test_the_end_of_the_connection_ends_the_reply_to_http_1_0() -> None:
    for connection in (b"", b"Connection: keep-alive\r\n"):
        sent = b"GET /stream HTTP/1.0\r\n%b\r\n" % connection
        assert await streamed(texts("a", "b"), sent) == (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\na\nb\n"
        )


async def test_head_has_no_body_and_takes_no_second_message() -> None:
    source = Source()
    source.say("a")
    assert await streamed(source, b"HEAD" + GET[3:] + HELLO_LAST) == HEAD + SAID_LAST
    assert source.closed.is_set()


async def test_no_message_is_an_empty_reply() -> None:
    said = await streamed(giving(), LAST)
    assert said == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


async def test_a_reply_without_a_body_has_none() -> None:
    said = await streamed(giving(Message(status=204, parts=(b"no",))), LAST)
    assert said == b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("size", [300, 300 * KIB], ids=["small", "in a thread"])
async def test_a_compressed_body_is_inflated_and_the_reply_is_not_compressed(size: int) -> None:
    text = b"a" * size
    expected = HEAD + chunks(b"streamer POST /stream?\n", text + b"\n") + END
    async with client(stream=say_back, limits=Limits()) as (reader, writer):
        headers = ("Content-Encoding: gzip", "Accept-Encoding: gzip")
        await send_whole(writer, post(gzip.compress(text, mtime=0), *headers, path="/stream"))
        assert await reader.readexactly(len(expected)) == expected


COMPRESSED = gzip.compress(bytes(1001), mtime=0)
TOO_MUCH = (
    f"the body of {len(COMPRESSED)} compressed bytes inflates to more than 1000 bytes, the most that is allowed: "
    "limits.message, 1000 bytes, and limits.inflation, 1100 times its size (or 1 MiB, if that is more); "
    "send less, or raise a limit"
)
NO_BROTLI = "Content-Encoding 'br' is not supported; gzip, deflate and identity are"


@pytest.mark.parametrize(
    ("coding", "body", "status", "why"),
    [
        ("gzip", gzip.compress(b"junk", mtime=0)[:-1], "400 Bad Request", "the body ends before its gzip data does"),
        ("gzip", COMPRESSED, TOO_LARGE, TOO_MUCH),
        ("br", b"junk", "415 Unsupported Media Type", NO_BROTLI),
    ],
)
async def test_a_body_that_does_not_inflate_is_refused(coding: str, body: bytes, status: str, why: str) -> None:
    said = await streamed(say_back, post(body, f"Content-Encoding: {coding}", path="/stream") + HELLO_LAST)
    assert said == reply(status, f"streamer: {why}") + SAID_LAST


# Errors.


async def test_an_error_that_is_all_there_is_has_a_length() -> None:
    said = await streamed(giving(text_reply("no", 404)), GET + HELLO_LAST)
    assert said == reply("404 Not Found", "no") + SAID_LAST


async def test_an_error_behind_a_message_is_one_more() -> None:
    said = await streamed(giving(text_reply("a"), text_reply("no", 500)), LAST)
    assert said == HEAD_LAST + chunks(b"a\n", b"no\n") + END


async def test_an_error_with_something_behind_it_is_streamed() -> None:
    said = await streamed(giving(text_reply("no", 500), text_reply("end"), text_reply("more")), LAST)
    head = HEAD_LAST.replace(b"200 OK", b"500 Internal Server Error")
    assert said == head + chunks(b"no\n", b"end\n", b"more\n") + END


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (refusal(Reason.INVALID_INPUT, "no"), reply("400 Bad Request", "streamer: no")),
        (DecodeError("no"), reply("400 Bad Request", "streamer: no")),
        (KeyError("secret"), reply("500 Internal Server Error", f"streamer: {FAILED}")),
    ],
)
async def test_an_exception_before_the_first_message_becomes_an_error_reply(error: Exception, expected: bytes) -> None:
    assert await streamed(giving(error), GET + HELLO_LAST) == expected + SAID_LAST


SIZED = Message(status=200, headers=Headers([(b"content-length", b"4")]), parts=(b"ab",))
SIZED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
BROKEN: list[tuple[ExchangeStream, bytes]] = [
    (giving(text_reply("ab"), KeyError("secret")), HEAD + chunks(b"ab\n")),
    (giving(text_reply("ab"), refusal(Reason.INVALID_INPUT, "no")), HEAD + chunks(b"ab\n")),
    (giving(SIZED), SIZED_HEAD + b"ab"),
    (giving(SIZED, SIZED, SIZED), SIZED_HEAD + b"abab"),
    (giving(SIZED, text_reply("no", 500)), SIZED_HEAD + b"ab"),
]


@pytest.mark.parametrize(("stream", "expected"), BROKEN)
async def test_a_reply_that_breaks_off_is_not_ended(stream: ExchangeStream, expected: bytes) -> None:
    assert await streamed(stream, GET + HELLO_LAST) == expected


@pytest.mark.parametrize("stream", [stream for stream, _ in BROKEN])
async def test_a_reply_that_breaks_off_is_no_whole_one_to_http_1_0_either(stream: ExchangeStream) -> None:
    with pytest.raises(ConnectionResetError):
        await streamed(stream, b"GET /stream HTTP/1.0\r\n\r\n")


@pytest.mark.parametrize("text", [b"a\r\nSet-Cookie: b", b"a\nb"])
async def test_a_line_break_in_a_header_is_never_written(text: bytes) -> None:
    said = await streamed(giving(Message(status=200, headers=Headers([(b"X", text)]))), LAST)
    assert said == reply("500 Internal Server Error", f"streamer: {FAILED}", last=True)


# Replies that are passed on.


async def test_hop_by_hop_headers_of_the_backend_are_not_passed_on() -> None:
    fields = [
        (b"content-type", b"text/plain"), (b"connection", b"close, X-Hop"), (b"x-hop", b"1"),
        (b"transfer-encoding", b"chunked"), (b"keep-alive", b"1"), (b"proxy-authenticate", b"Basic"),
        (b"x-kept", b"2"),
    ]  # fmt: skip
    said = await streamed(giving(Message(status=200, headers=Headers(fields), parts=(b"a",))), LAST)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-kept: 2\r\nTransfer-Encoding: chunked\r\n"
    assert said == head + b"Connection: close\r\n\r\n" + chunks(b"a\n") + END


async def test_a_length_is_kept_and_its_body_goes_out_as_it_is() -> None:
    """The pieces in which it arrives do not matter."""
    said = await streamed(giving(SIZED, SIZED), GET + HELLO_LAST)
    assert said == b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabab" + SAID_LAST


async def test_the_reply_to_head_keeps_the_content_length() -> None:
    for status, line in ((200, b"200 OK"), (404, b"404 Not Found")):
        message = Message(status=status, headers=SIZED.headers)
        said = await streamed(giving(message), b"HEAD" + LAST[3:])
        assert said == b"HTTP/1.1 %b\r\nContent-Length: 4\r\nConnection: close\r\n\r\n" % line


# Clients that leave, and those that are slow.


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("leave", [asyncio.StreamWriter.close, lambda writer: writer.transport.abort()])
async def test_a_client_that_leaves_closes_the_stream(
    leave: Callable[[asyncio.StreamWriter], None], begun: bool
) -> None:
    source = Source()
    async with client(stream=source) as (reader, writer):
        await send_whole(writer, GET)
        await source.asked.wait()
        if begun:
            source.say("a")
            await reader.readuntil(b"a\n")
        leave(writer)
        await source.closed.wait()


class Endless:
    """A stream that always has a message at once."""

    def __init__(self, size: int) -> None:
        self.closed = asyncio.Event()
        self._message = text_reply("x" * size)

    async def __call__(self, messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        try:
            while True:
                yield self._message
        finally:
            self.closed.set()


async def test_a_client_that_leaves_stops_a_stream_that_never_waits() -> None:
    """The client reads so fast that the stream never waits for it. The loop must notice that it has left all the
    same."""

    def take_some(address: str) -> None:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(GET)
            for _ in range(1000):
                client.recv(64 * KIB)

    endless = Endless(10)
    async with listening(stream=endless) as listener:
        await asyncio.to_thread(take_some, listener.address)
        await endless.closed.wait()


async def test_a_client_that_reads_slowly_is_waited_for() -> None:
    pulled, count = 0, 1000
    line = "x" * (64 * KIB - 1)

    async def much(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        nonlocal pulled
        for _ in range(count):
            pulled += 1
            yield text_reply(line)

    async with client(stream=much) as (reader, writer):
        await send_whole(writer, LAST)
        await settle(1000)
        assert pulled < count // 2
        said = await reader.read()
    assert pulled == count
    assert said == HEAD_LAST + chunks(line.encode() + b"\n") * count + END


async def test_a_client_that_never_reads_is_cut_off_and_the_stream_closed() -> None:
    endless = Endless(64 * KIB)
    async with client(stream=endless, timeouts=Timeouts(write=0.05)) as (_, writer):
        await send_whole(writer, GET)
        await endless.closed.wait()


async def test_a_client_that_reads_on_is_never_cut_off() -> None:
    size = 16 * MIB
    async with client(stream=texts("x" * size), timeouts=Timeouts(write=3)) as (reader, writer):
        await send_whole(writer, LAST)
        for _ in range(25):
            await reader.readexactly(size // 40)
            await asyncio.sleep(0.15)
        assert (await reader.read()).endswith(b"x\n\r\n" + END)


async def test_a_stream_may_pause_for_longer_than_a_client_may() -> None:
    async def thinks(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        yield text_reply("x" * 16 * MIB)
        await asyncio.sleep(1)
        yield text_reply("done")

    said = await replies_to(LAST, stream=thinks, timeouts=Timeouts(write=0.5))
    assert said.endswith(chunks(b"done\n") + END)


async def test_bytes_that_an_http_1_0_client_has_not_read_at_the_close_are_not_lost() -> None:
    source, loop = Source(), asyncio.get_running_loop()
    source.say("x" * 60 * KIB, None)
    async with listening(stream=source, timeouts=Timeouts(linger=0.05)) as listener:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)  # the rest waits on the other side
            client.setblocking(False)
            host, port = listener.address.split(":")
            await loop.sock_connect(client, (host, int(port)))
            await loop.sock_sendall(client, b"GET /stream HTTP/1.0\r\n\r\n")
            await source.closed.wait()
            await listener.drain(GENEROUS)
            said = b""
            while data := await loop.sock_recv(client, MIB):
                said += data
    assert said.endswith(b"x" * 60 * KIB + b"\n")


# Draining.


async def test_a_drain_lets_a_stream_finish_and_answers_the_request_after_it() -> None:
    """The stream's head did not say `Connection: close`, so the client may have sent another request."""
    source = Source()
    async with (
        listening(stream=source, timeouts=Timeouts(linger=0.05)) as listener,
        connected(listener) as (reader, writer),
    ):
        await send_whole(writer, GET + GET)
        await source.asked.wait()
        source.say("a")
        await reader.readuntil(b"a\n")
        draining = asyncio.ensure_future(listener.drain(GENEROUS))
        source.say("b", None, "c", None)
        assert await reader.read() == b"\r\n" + chunks(b"b\n") + END + HEAD_LAST + chunks(b"c\n") + END
        assert await draining == 0


async def test_a_drain_breaks_off_a_stream_that_takes_too_long() -> None:
    source = Source()
    async with listening(stream=source) as listener, connected(listener) as (reader, writer):
        await send_whole(writer, GET)
        source.say("a")
        await reader.readuntil(b"a\n\r\n")
        assert await listener.drain(0) == 1
        assert source.closed.is_set()
        assert await reader.read() == b""
