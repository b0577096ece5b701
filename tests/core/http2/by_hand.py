"""HTTP/2 by hand, for what no gRPC library would send."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
OK = (b":status", b"200")
CONTENT_TYPE = (b"content-type", b"application/grpc")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def block(*fields: tuple[bytes, bytes]) -> bytes:
    """Each field literal and without Huffman coding: RFC 7541 section 6.2.2."""
    return b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(text)]) + text for name, text in fields)


def head(*fields: tuple[bytes, bytes], end: bool = False, stream: int = 1) -> bytes:
    """HEADERS."""
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block(*fields))


def data(message: bytes, *, size: int | None = None, end: bool = False, stream: int = 1) -> bytes:
    """DATA that holds one message, said to be of `size` bytes."""
    length = len(message) if size is None else size
    return frame(DATA, END_STREAM if end else 0, stream, b"\0" + length.to_bytes(4, "big") + message)


def reply(message: bytes = b"reply", *, stream: int = 1) -> bytes:
    """All that a server sends for one call."""
    ended = head((b"grpc-status", b"0"), end=True, stream=stream)
    return head(OK, CONTENT_TYPE, stream=stream) + data(message, stream=stream) + ended


def settings(**values: int) -> bytes:
    """SETTINGS, by their names in RFC 9113 section 6.5.2."""
    numbers = {"HEADER_TABLE_SIZE": 1, "MAX_CONCURRENT_STREAMS": 3, "INITIAL_WINDOW_SIZE": 4, "MAX_FRAME_SIZE": 5}
    pairs = (numbers[name].to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in values.items())
    return frame(SETTINGS, 0, 0, b"".join(pairs))


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def reset(error: int, stream: int = 1) -> bytes:
    return frame(RST_STREAM, 0, stream, error.to_bytes(4, "big"))


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


Frame = tuple[int, int, int, bytes]
"""Type, flags, stream and payload."""


class Peer:
    """A client's connection, as its server has it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def opening(self, octets: bytes = settings() + window_update(0, 2**30)) -> None:
        """The client's preface, which `octets` answer."""
        assert await self._reader.readexactly(len(PREFACE)) == PREFACE
        self.send(octets)

    async def frame(self) -> Frame:
        """The next one, whatever it is."""
        header = await self._reader.readexactly(9)
        payload = await self._reader.readexactly(int.from_bytes(header[:3], "big"))
        return header[3], header[4], int.from_bytes(header[5:], "big"), payload

    async def next(self, *kinds: int) -> Frame:
        """The next one of these types; others are skipped."""
        while (found := await self.frame())[0] not in kinds:
            pass
        return found

    async def request(self) -> int:
        """The stream of the next call, once it has been sent."""
        while not (found := await self.next(HEADERS, DATA))[1] & END_STREAM:
            pass
        return found[2]

    async def closed(self) -> list[Frame]:
        """The frames that come until the client closes."""
        found = []
        try:
            while True:
                found.append(await self.frame())
        except (asyncio.IncompleteReadError, ConnectionError):
            return found


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def serving(*scripts: Script) -> AsyncIterator[str]:
    """The address of a server that plays one script on each connection, the last one on all further ones. A connection
    is closed when its script has ended; an error in one is the context's."""
    left = list(scripts)
    playing: list[asyncio.Task[None]] = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        playing.append(task)
        with suppress(ConnectionError), closing(writer):  # a client may leave before its server is done
            await (left.pop(0) if len(left) > 1 else left[0])(Peer(reader, writer))

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
        await asyncio.gather(*playing)
    finally:
        server.close()
        for task in playing:
            task.cancel()


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
