"""HTTP/2 by hand, for what no gRPC library would send."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS = 1, 4
CONTENT_TYPE = (b"content-type", b"application/grpc")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def head(*fields: tuple[bytes, bytes], end: bool = False) -> bytes:
    """HEADERS of stream 1, each field literal and without Huffman coding: RFC 7541 section 6.2.2."""
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(text)]) + text for name, text in fields)
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), 1, block)


def data(message: bytes, *, size: int | None = None, end: bool = False) -> bytes:
    """DATA of stream 1 that holds one message, said to be of `size` bytes."""
    length = len(message) if size is None else size
    return frame(DATA, END_STREAM if end else 0, 1, b"\0" + length.to_bytes(4, "big") + message)


def reset(error: int) -> bytes:
    return frame(RST_STREAM, 0, 1, error.to_bytes(4, "big"))


def go_away(last_stream: int) -> bytes:
    return frame(GOAWAY, 0, 0, last_stream.to_bytes(4, "big") + bytes(4))


def request(path: bytes, body: bytes) -> bytes:
    """All that a client sends for one call."""
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"toy"),
        (b"te", b"trailers"),
        CONTENT_TYPE,
    )
    return PREFACE + frame(SETTINGS, 0, 0, b"") + head(*fields) + data(body, end=True)


@asynccontextmanager
async def endpoint(reply: bytes, *, close: bool = False) -> AsyncIterator[str]:
    """The address of a server of one connection: it answers the first whole request with the bytes `reply`, and closes
    then or when its context ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    done = asyncio.Event()
    serving = asyncio.ensure_future(_serve(listening, reply, done))
    if close:
        done.set()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        done.set()
        await serving


async def _serve(listening: socket.socket, reply: bytes, done: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    with listening:
        connection, _ = await loop.sock_accept(listening)
    with connection:
        await loop.sock_sendall(connection, frame(SETTINGS, 0, 0, b""))
        received = b""
        while not _has_request(received):
            more = await loop.sock_recv(connection, 65536)
            assert more, "the client closed before its request was complete"
            received += more
        await loop.sock_sendall(connection, reply)
        await done.wait()


def _has_request(received: bytes) -> bool:
    """Whether a frame that ends a stream is there."""
    rest = received[len(PREFACE) :]
    while len(rest) >= 9:
        size = 9 + int.from_bytes(rest[:3], "big")
        if len(rest) >= size and rest[3] in (DATA, HEADERS) and rest[4] & END_STREAM:
            return True
        rest = rest[size:]
    return False
