"""A TCP relay between a connector and a listener that splits, joins or cuts the byte stream in chosen places."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

from gateway.core.tasks import spawn


class Passage:
    """One direction. Each write has `piece` bytes (0: all available bytes). `tail` follows the first `after` bytes, in
    the same write. Only the first `cut` bytes are passed on. `passed` contains the received bytes."""

    def __init__(self, *, piece: int = 0, tail: bytes = b"", after: int = 0, cut: int | None = None) -> None:
        self.passed = bytearray()
        self._piece = piece
        self._tail = tail
        self._after = after
        self._left = cut

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on until the sender closes its side, or until the cut."""
        with suppress(ConnectionError):
            while self._left != 0 and (data := await reader.read(2**16)):
                for piece in self._pieces(data):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)  # the receiver on the same loop gets this write before the next one
            writer.write_eof()

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        self.passed += data
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        if self._tail and len(self.passed) >= self._after:
            data, self._tail = data + self._tail, b""
        size = self._piece or len(data)
        return (data[at : at + size] for at in range(0, len(data), size))


@asynccontextmanager
async def relayed(address: str, requests: Passage, replies: Passage) -> AsyncIterator[str]:
    """Yield the address of a relay to the listener at `address`."""
    host, _, port = address.rpartition(":")
    tasks: list[asyncio.Task[None]] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_listener, from_relay = await asyncio.open_connection(host, int(port))
        tasks.append(spawn(requests.run(reader, from_relay)))
        tasks.append(spawn(replies.run(to_listener, writer)))
        await asyncio.wait(tasks[-2:])
        from_relay.close()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
