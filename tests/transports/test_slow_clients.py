"""Clients that send a byte a second: each transport leaves them after the same times, which docs/architecture.md has.
The clock is moved by the test."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from gateway.core.messages import Message
from gateway.core.protocol import Limits, Protocol
from gateway.core.transport import Listener
from gateway.transports.timeouts import Timeouts
from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import CONTINUATION, DATA, END_STREAM, HEADERS, PING, frame
from tests.core.http2.conversation import OPENING, fields, request
from tests.paused_server import port_of
from tests.skipping_loop import skip
from tests.transports.grpc import toy as grpc_toy
from tests.transports.grpc.toy import CHAT
from tests.transports.http.server import toy_listener as http_toy
from tests.transports.http.server.toy_listener import HELLO, post
from tests.transports.tcp import toy_protocol as tcp_toy

TIMES = Timeouts()
HEAD, BODY, IDLE = TIMES.head, TIMES.body, TIMES.idle
LOOK = 5
"""Seconds between two looks at the messages that arrive over gRPC."""

Listening = Callable[[], AbstractAsyncContextManager[Listener]]
grpc, http, tcp = grpc_toy.listening, http_toy.listening, tcp_toy.listening


HTTP_HEAD = HELLO[:-2] + b"X: " + b"y" * 100
MANY = b"x" * 1000
PACKET = tcp_toy.packet(MANY)
HEAD_FRAME = http2.head(*fields())
SECOND_HEAD = http2.head(*fields(), stream=3)
CHATTING = http2.head(*fields(CHAT.encode()))
PINGS = frame(PING, 0, 0, bytes(8)) * 9
BLOCK = http2.block(*fields(), *[(b"x-%d" % at, b"y" * 100) for at in range(10)])
PIECES = frame(HEADERS, 0, 1, BLOCK[:2]) + b"".join(
    frame(CONTINUATION, 0, 1, BLOCK[at : at + 1]) for at in range(2, len(BLOCK))
)
ONE = frame(DATA, 0, 1, b"\0\0\0\x03\xe8" + MANY)
SMALL = frame(DATA, 0, 1, b"\0\0\0\x03\xe8") + frame(DATA, 0, 1, b"x") * 1000

# What is sent at once, what then comes a byte a second, the seconds until it is refused, and the words of that.
SLOW = {
    "HTTP: a head": (http, b"", HTTP_HEAD, HEAD, "408 Request Timeout", True),
    "HTTP: a second head": (http, HELLO, HTTP_HEAD, HEAD, "408 Request Timeout", True),
    "HTTP: a body": (http, post(MANY)[: -len(MANY)], MANY, BODY, "at less than 4096 bytes a second", True),
    "TCP: a body": (tcp, PACKET[: -len(MANY)], MANY, BODY, "at less than 4096 bytes a second", True),
    "TCP: both": (tcp, b"", PACKET, len(PACKET) - len(MANY) + BODY, "at less than 4096 bytes a second", True),
    "gRPC: the preface": (grpc, b"", OPENING, HEAD, "", True),
    "gRPC: a head": (grpc, OPENING, HEAD_FRAME, HEAD, "a frame did not end within 20 s", True),
    "gRPC: a head in pieces": (grpc, OPENING, PIECES, HEAD, "a header block did not end within 20 s", True),
    "gRPC: a second head": (grpc, OPENING + request(), SECOND_HEAD, HEAD, "a frame did not end within 20 s", True),
    "gRPC: no request at all": (grpc, OPENING, PINGS, IDLE + LOOK, "", True),
    "gRPC: a message in one frame": (grpc, OPENING + HEAD_FRAME, ONE, BODY + LOOK, "nothing of the message came", True),
    "gRPC: a message in many": (grpc, OPENING + HEAD_FRAME, SMALL, BODY + LOOK, "at less than 4096 bytes", False),
    "gRPC: a message of a stream": (grpc, OPENING + CHATTING, ONE, BODY + LOOK, "at less than 4096 bytes", True),
}


class Client:
    """A connection, and what has come over it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received = b""
        self._came = asyncio.Event()
        self.writer = writer
        self._reader = reader
        self.receiving = asyncio.ensure_future(self._receive())

    async def _receive(self) -> None:
        while data := await self._reader.read(2**16):
            self.received += data
            self._came.set()

    async def received_bytes(self, size: int) -> None:
        """Wait until so many bytes have come."""
        while len(self.received) < size:
            self._came.clear()
            await self._came.wait()


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port_of(address)))
    try:
        yield client
    finally:
        client.receiving.cancel()
        client.writer.close()


@pytest.mark.parametrize(("listening", "whole", "slowly", "seconds", "words", "closes"), SLOW.values(), ids=SLOW)
async def test_a_byte_a_second(
    listening: Listening, whole: bytes, slowly: bytes, seconds: float, words: str, closes: bool
) -> None:
    """`closes`: the connection ends with it. Over gRPC other calls go on, unless a frame of theirs cannot begin."""
    async with listening() as listener, connected(listener.address) as client:
        client.writer.write(whole)
        await skip(0)
        took = 0
        while took < 200 and not (client.receiving.done() if closes else words.encode() in client.received):
            client.writer.write(slowly[took : took + 1])
            await skip(1)
            took += 1
    assert words.encode() in client.received
    assert (seconds if seconds < BODY + LOOK else BODY) <= took <= seconds + 2


async def test_a_header_has_the_time_of_a_head_on_a_byte_stream_too() -> None:
    async with tcp() as listener, connected(listener.address) as client:
        for at in range(8):
            client.writer.write(PACKET[at : at + 1])
            await skip(3)
            assert client.receiving.done() == (at >= 6)
    assert b"the message's header did not arrive within 20 s" in client.received


async def test_a_large_message_over_a_slow_line_arrives() -> None:
    """In frames of 16 KiB, each of which takes 3 s."""
    size = 2**19
    message = b"\0" + size.to_bytes(4, "big") + bytes(size)
    frames = b"".join(frame(DATA, 0, 1, message[at : at + 2**14]) for at in range(0, len(message), 2**14))
    async with grpc(limits=Limits(message=size)) as listener, connected(listener.address) as client:
        client.writer.write(OPENING + HEAD_FRAME)
        for at in range(0, len(frames), 5000):
            client.writer.write(frames[at : at + 5000])
            await skip(1)
            assert not client.receiving.done()
        client.writer.write(frame(DATA, END_STREAM, 1, b""))
        await client.received_bytes(2**15)


def growing(reply: Callable[[bytes], Message]) -> Callable[[Message, Protocol], Message]:
    """An exchange whose replies have SIZES. Each is larger than all buffers, and than the reply before it, so that the
    gateway never sees that less is left to read."""
    sizes = iter(SIZES)
    return lambda message, protocol: reply(bytes(next(sizes)))


SIZES = [2**23 + at * 2**20 for at in range(2 * round(TIMES.write / LOOK))]
"""In bytes. A reply is read each LOOK: in all, the gateway waits for longer than for a client that reads nothing."""


def with_small_buffer(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)


async def test_a_client_that_reads_one_reply_after_the_other_stays_connected() -> None:
    async with tcp_toy.listening(growing(tcp_toy.reply)) as listener, tcp_toy.connected(listener) as (reader, writer):
        with_small_buffer(writer)
        writer.write(tcp_toy.packet("more") * len(SIZES))
        for size in SIZES:
            await skip(LOOK)
            assert len((await tcp_toy.read_packet(reader))[1]) == size


async def test_a_client_of_grpc_that_reads_one_reply_after_the_other_stays_connected() -> None:
    async with grpc_toy.listening(growing(lambda body: Message(parts=(body,)))) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener.address))
        with_small_buffer(writer)
        peer, largest = http2.Peer(reader, writer), 2**31 - 1
        peer.send(http2.PREFACE, http2.settings(INITIAL_WINDOW_SIZE=largest), http2.window_update(0, largest - 2**16))
        for at, size in enumerate(SIZES):
            peer.send(request(stream=2 * at + 1))
            await skip(LOOK)
            received, flags = 0, 0
            while not flags & END_STREAM:
                kind, flags, _, payload = await peer.next(DATA, HEADERS)
                received += len(payload) if kind == DATA else 0
            assert received == 5 + size
        writer.close()
