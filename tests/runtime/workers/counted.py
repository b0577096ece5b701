"""A relay before a UM-Bridge server that counts the evaluations which the server has at the same time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Counted:
    """`most`: the most evaluations in flight at once; `calls`: all of them."""

    def __init__(self, upstream: int) -> None:
        self.port = 0
        self.calls = self.most = self.now = 0
        self.holding = asyncio.Event()
        """Replies go on while it is set."""
        self.holding.set()
        self.arrived = asyncio.Event()
        self._upstream = upstream
        self.tasks: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._relay(reader, writer)
        writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self._upstream)
        try:
            while True:
                request = await message(reader)
                counts = request.startswith(b"POST /Evaluate")
                self.calls += counts
                self.now += counts
                self.most = max(self.most, self.now)
                try:
                    if counts:
                        self.arrived.set()
                        await self.holding.wait()
                    to_server.write(request)
                    reply = await message(server)
                finally:
                    self.now -= counts
                writer.write(reply)
        finally:
            to_server.close()


async def message(reader: asyncio.StreamReader) -> bytes:
    """One HTTP message with a content-length."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    return head + await reader.readexactly(sum(int(x[15:]) for x in lines if x.startswith(b"content-length:")))


@asynccontextmanager
async def counted(upstream: int) -> AsyncIterator[Counted]:
    """A Counted on loopback, before the server at this port."""
    here = Counted(upstream)
    server = await asyncio.start_server(here.handle, "127.0.0.1", 0)
    here.port = server.sockets[0].getsockname()[1]
    try:
        yield here
    finally:
        server.close()
        for task in here.tasks:
            task.cancel()
        await asyncio.gather(*here.tasks, return_exceptions=True)
