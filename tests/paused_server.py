"""A model server whose replies wait until the test lets them go."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from tests.limits import until

REPLY = b'{"model_name":"m","outputs":[{"name":"y","datatype":"INT32","shape":[1],"data":[7]}]}'
QUESTION = b'{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[1]}]}'


def http(start: bytes, body: bytes) -> bytes:
    """A message with `body`."""
    return b"%b\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (start, len(body), body)


INFER = http(b"POST /v2/models/m/infer HTTP/1.1", QUESTION)


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of an HTTP message."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head, await reader.readexactly(sum(lengths))


@asynccontextmanager
async def listening(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """The port of a server on loopback whose connections `handle` serves."""
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Held:
    """`arrived` is set with each request; no reply goes out before `release`."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.release = asyncio.Event()
        self.port = 0
        self.handling: set[asyncio.Task[None]] = set()
        """Of all connections that were ever there."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.handling.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                await self._answer(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    async def connected(self, number: int) -> None:
        """Wait until there are so many connections."""
        await until(lambda: len(self.handling) >= number)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_message(reader)
        self.arrived.set()
        await self.release.wait()
        writer.write(http(b"HTTP/1.1 200 OK", REPLY))


@asynccontextmanager
async def held() -> AsyncIterator[Held]:
    """A Held on loopback."""
    here = Held()
    try:
        async with listening(here.handle) as here.port:
            yield here
    finally:
        here.release.set()
        await asyncio.gather(*here.handling)


async def ask(port: int | str, request: bytes) -> bytes:
    """Whatever comes back until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()


def get(path: str) -> bytes:
    """A request whose reply is the connection's last."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


def port_of(address: str) -> int:
    """Of `host:port`."""
    return int(address.rpartition(":")[2])
