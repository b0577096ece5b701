"""Decompression of gRPC messages.

Clients can send compressed messages. The gateway does not offer compression to backends, but a grpcio server with
`compression=` still compresses its replies.
"""

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.messages import Buffer
from gateway.core.protocol import Limits
from gateway.transports.grpc.client import failures
from gateway.transports.inflate import inflate_anywhere
from gateway.transports.memory import PROCESS_MEMORY, Memory

ENCODINGS = {b"gzip": "gzip", b"deflate": "deflate"}
"""The supported values of `grpc-encoding`, and their names in `inflate`."""


class Compressed:
    """A message that is still compressed."""

    __slots__ = ("data",)

    def __init__(self, data: Buffer) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)


async def inflate(message: Compressed, encoding: bytes, limits: Limits) -> Buffer:
    """Return the decompressed content of the reply `message`, which is compressed with `encoding`.

    Raises:
        TransportError: INTERNAL if the message does not have this encoding, the encoding is unknown, or the message
            exceeds the limits; RESOURCE_EXHAUSTED if the process does not have enough memory.
    """
    if encoding not in ENCODINGS:
        told = encoding[:100].decode("latin-1")
        raise failures.malformed(f"reply is compressed with grpc-encoding {told!r}, identity was offered")
    try:
        return await inflated(message, encoding, limits)
    except DecodeError as error:
        raise failures.malformed(f"reply: {error}") from error
    except GatewayError as error:
        if error.reason is Reason.TOO_LARGE:
            raise failures.too_inflated(error) from error
        raise failures.no_memory(error) from error


async def inflated(message: Compressed, encoding: bytes, limits: Limits, memory: Memory = PROCESS_MEMORY) -> Buffer:
    """Return the decompressed `message`, whose encoding is one of ENCODINGS. Large messages are decompressed in a
    thread.

    Raises:
        DecodeError: the message does not have this encoding.
        GatewayError: RESOURCE_EXHAUSTED if the message exceeds the limits, or the process does not have enough memory.
    """
    return await inflate_anywhere(message.data, ENCODINGS[encoding], limits, "the message", memory)
