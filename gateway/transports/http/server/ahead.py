"""The bytes that a client sends before their turn, such as pipelined requests during an earlier request. `connection`
keeps them here."""

import asyncio

from gateway.core.errors import GatewayError
from gateway.transports.memory import ConnectionMemory

_MAX_AHEAD = 64 * 2**10
"""The maximum number of bytes to keep. Further bytes stay in the kernel, so the client must wait."""


class BytesAhead:
    """Keeps the bytes of one connection, counted in its `connection_memory`."""

    __slots__ = ("data", "error", "is_full")

    def __init__(self) -> None:
        self.data = bytearray()
        self.error: GatewayError | None = None
        """The error that ends the connection at the turn of bytes that had to be dropped."""
        self.is_full = False
        """True if the connection should stop reading from the client."""

    def store(self, data: bytes, connection_memory: ConnectionMemory, transport: asyncio.Transport) -> None:
        """Keep `data`, or record the error if this is not possible. If there are too many bytes, stop reading from the
        client."""
        try:
            connection_memory.add(len(data))
        except GatewayError as error:
            self.error = error.with_traceback(None)  # the frames of the exception refer to the bytes
        else:
            self.data += data
        self.is_full = self.error is not None or len(self.data) > _MAX_AHEAD
        if self.is_full:
            transport.pause_reading()

    def take(self, connection_memory: ConnectionMemory, transport: asyncio.Transport) -> bytes:
        """Return the bytes, because their turn has come. Resume reading from the client."""
        taken, self.data = bytes(self.data), bytearray()
        self.is_full = False
        connection_memory.free(len(taken))
        transport.resume_reading()
        return taken
