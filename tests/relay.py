"""A TCP relay that injects faults between the gateway and a server (or between a client and the gateway).

    async with relaying(server_address) as relay:
        relay.replies = Way(after=100, then=Then.RESET)   # each connection breaks after 100 more bytes of replies
        ...
        relay.replies = PASS                              # whole again, for connections that are still open too
        await relay.refuse()                              # connection attempts are refused, open connections are reset
        await relay.accept()                              # the same address accepts again

`requests` are the bytes from the client to the server, `replies` those back. A change applies to the bytes that arrive
from then on, on all connections; bytes are counted for each connection from the change. With `tls`, both sides speak
TLS with the relay, so that it sees what they say.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto

GARBAGE = b"\xff\x00not a message of any protocol\r\n\r\n" * 4
_NO_LINGER = struct.pack("ii", 1, 0)


class Then(Enum):
    """What happens to a connection after the first `Way.after` bytes."""

    RESET = auto()
    """Both sides get a reset (RST)."""
    CLOSE = auto()
    """Both sides are closed, after what was passed."""
    HALF_CLOSE = auto()
    """The receiver gets the end of the stream; the other direction stays open."""
    SWALLOW = auto()
    """All further bytes are read and dropped."""
    HOLD = auto()
    """No further byte is read, so that the sender's buffers fill up."""
    GARBAGE = auto()
    """The receiver gets GARBAGE instead of the next bytes; those after it are dropped."""


@dataclass(frozen=True)
class Way:
    """How one direction passes bytes: `piece` bytes at a time (0: as they come), each `delay` seconds late, and after
    `after` bytes `then`, if there is one."""

    delay: float = 0.0
    piece: int = 0
    after: int = 0
    then: Then | None = None


PASS = Way()


@dataclass(frozen=True)
class Tls:
    """How the relay speaks TLS: with its clients, and with the server."""

    accepting: ssl.SSLContext
    connecting: ssl.SSLContext


class Connection:
    """One connection through the relay.

    `requests`, `replies`: the bytes that came from the client and from the server. `left` is set when the client has
    closed or reset its side, `is_reset` says which.
    """

    def __init__(self) -> None:
        self.requests = bytearray()
        self.replies = bytearray()
        self.left = asyncio.Event()
        self.is_reset = False
        self.writers: list[asyncio.StreamWriter] = []

    def reset(self) -> None:
        """Send a reset to both sides."""
        for writer in self.writers:
            with suppress(OSError, AttributeError):  # a transport of TLS that is closed raises AttributeError
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            writer.transport.abort()

    def close(self) -> None:
        """Close both sides."""
        for writer in self.writers:
            writer.close()


class Relay:
    """A relay to the server at `target`, `HOST:PORT`; its own address is `address`."""

    def __init__(self, target: str, tls: Tls | None = None) -> None:
        self.address = ""
        self._tls = tls
        self.requests = PASS
        self.replies = PASS
        self.connections: list[Connection] = []
        """All connections so far, the newest last."""
        self._host, _, self._port = target.rpartition(":")
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Condition()

    async def accept(self) -> None:
        """Accept connections; always at the same address."""
        if self._server is None:
            port = int(self.address.rpartition(":")[2] or 0)
            self._server = await asyncio.start_server(
                self._connected, "127.0.0.1", port, ssl=self._tls and self._tls.accepting
            )
            self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def refuse(self) -> None:
        """Refuse connection attempts, and reset the open connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.reset()
        # The port is free for `accept` again when all sockets are closed, one turn of the loop later.
        await asyncio.sleep(0)

    def reset(self) -> None:
        """Reset all open connections."""
        for connection in self.connections:
            connection.reset()

    async def received(self, part: bytes) -> Connection:
        """Wait for a connection whose requests contain `part`."""
        async with self._arrived:
            while True:
                for connection in self.connections:
                    if part in connection.requests:
                        return connection
                await self._arrived.wait()

    async def stop(self) -> None:
        """Refuse, and end what runs."""
        await self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection = Connection()
        connection.writers.append(writer)
        self.connections.append(connection)
        try:
            to_read, to_write = await asyncio.open_connection(
                self._host, int(self._port), ssl=self._tls and self._tls.connecting
            )
        except OSError:
            connection.reset()
            return
        connection.writers.append(to_write)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._requests(connection, reader, to_write))
            group.create_task(self._pass("replies", connection, to_read, writer))
        connection.close()

    async def _requests(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._pass("requests", connection, reader, writer)
        connection.is_reset = isinstance(reader.exception(), ConnectionResetError)
        connection.left.set()

    async def _pass(
        self, direction: str, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        way, passed, seen = PASS, 0, getattr(connection, direction)
        # Of TLS: the sender went on after this side had closed.
        with suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(2**16):
                seen += data
                async with self._arrived:
                    self._arrived.notify_all()
                now: Way = getattr(self, direction)
                if now is not way:
                    way, passed = now, 0
                whole = data if way.then is None else data[: max(way.after - passed, 0)]
                for piece in _pieces(whole, way.piece):
                    if way.delay:
                        await asyncio.sleep(way.delay)
                    writer.write(piece)
                    await writer.drain()
                is_at_end = way.then is not None and passed <= way.after < passed + len(data)
                passed += len(data)
                if is_at_end and way.then is not None:
                    await self._end(way.then, connection, writer)
            if writer.can_write_eof():
                writer.write_eof()
            else:  # TLS has no half-closed connections
                writer.close()

    async def _end(self, then: Then, connection: Connection, writer: asyncio.StreamWriter) -> None:
        match then:
            case Then.RESET:
                connection.reset()
            case Then.CLOSE:
                connection.close()
            case Then.HALF_CLOSE:
                writer.write_eof()
            case Then.HOLD:
                await asyncio.Future[None]()
            case Then.GARBAGE:
                writer.write(GARBAGE)
            case Then.SWALLOW:
                pass


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    size = size or max(len(data), 1)
    return (data[at : at + size] for at in range(0, len(data), size))


@asynccontextmanager
async def relaying(target: str, tls: Tls | None = None) -> AsyncIterator[Relay]:
    """A Relay to the server at `target` that accepts connections."""
    relay = Relay(target, tls)
    await relay.accept()
    try:
        yield relay
    finally:
        await relay.stop()
