"""A raw server: a function decides every byte that it sends."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.limits import GENEROUS

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(handle: Handle, *, port: int = 0, path: Path | None = None, **options: Any) -> AsyncIterator[str]:
    """The address of a server on the loopback, or at a path. A connection is closed when its handler returns."""
    handlers: set[asyncio.Task[None]] = set()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            await handle(reader, writer)
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            handlers.discard(task)
            writer.close()

    if path is None:
        server = await asyncio.start_server(accepted, "127.0.0.1", port, **options)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    else:
        server = await asyncio.start_unix_server(accepted, path)
        address = f"unix://{path}"
    try:
        async with asyncio.timeout(GENEROUS):
            yield address
    finally:
        server.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


def reset_connection(writer: asyncio.StreamWriter) -> None:
    """Close with RST: SO_LINGER is 0 s."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
