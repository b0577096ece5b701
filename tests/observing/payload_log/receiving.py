"""A receiver in this process: takes events over HTTP, answers them as it is told, and keeps what came."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Received:
    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class FakeReceiver:
    """`answers`: the statuses of the replies, one after the other, the last one for all others; 0 closes the connection
    in the middle of the reply, None never answers."""

    url: str = ""
    answers: list[int | None] = field(default_factory=lambda: [200])
    requests: list[Received] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *fields = head.decode().strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in fields)}
                body = await reader.readexactly(int(headers["content-length"]))
                self.requests.append(Received(line, headers, body))
                self.arrived.set()
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    await reader.read()
                    return
                if answer == 0:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
                    return
                writer.write(f"HTTP/1.1 {answer} Answer\r\nContent-Length: 2\r\n\r\nok".encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(
    *answers: int | None, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeReceiver]:
    """A receiver that runs until the end of the block."""
    found = FakeReceiver(answers=list(answers) or [200])
    server = await asyncio.start_server(found.serve, "127.0.0.1", port, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    found.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{found.port}/events?a=b"
    try:
        yield found
    finally:
        server.close()
