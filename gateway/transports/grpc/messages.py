"""Length-prefixed messages, which are gRPC's framing in the data of a stream. The code performs no I/O."""

from struct import Struct
from typing import TypeAlias

from gateway.core.errors import DecodeError
from gateway.core.messages import Buffer
from gateway.transports.grpc.inflating import Compressed
from gateway.transports.memory import PROCESS_MEMORY, ArrivingBody, Memory

PREFIX = Struct(">BL")
"""The format of a message's prefix: a flag for compression, and the size in bytes."""
PREFIX_SIZE = PREFIX.size

Received: TypeAlias = Buffer | Compressed


class TooLargeError(Exception):
    """A prefix announces a message of `size` bytes, which exceeds the limit."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class MessageReader:
    """Assembles the messages of one stream from its data, and counts them in `memory`."""

    __slots__ = ("_body", "_is_compressed", "_limit", "_memory", "_prefix")

    def __init__(self, limit: int, memory: Memory = PROCESS_MEMORY) -> None:
        self._limit = limit
        self._memory = memory
        self._prefix = b""
        self._body: ArrivingBody | None = None
        self._is_compressed = False

    @property
    def is_between(self) -> bool:
        """True if the data ends with a complete message."""
        return self._body is None and not self._prefix

    @property
    def missing(self) -> int:
        """The number of bytes of the current message that have not arrived; 0 until its prefix has arrived."""
        return 0 if self._body is None else self._body.missing

    def read(self, data: memoryview) -> list[Received]:
        """Return the messages that `data` completes.

        The reader does not keep `data`. The memory for a message grows as the message arrives.

        Raises:
            DecodeError: the prefix is invalid.
            TooLargeError: the message exceeds the limit. This error is raised as soon as the prefix has arrived.
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if the message exceeds the limit of `memory`.
        """
        if self._body is None and not self._prefix and len(data) >= PREFIX_SIZE:
            # The usual case: one frame contains one message.
            size = self._read_prefix(data)
            if size == len(data) - PREFIX_SIZE:
                return [self._complete(self._memory.track(data[PREFIX_SIZE:].tobytes()))]
        return self._pieces(data)

    def _pieces(self, data: memoryview) -> list[Received]:
        messages: list[Received] = []
        while data:
            if self._body is None:
                if not self._prefix and (size := announced_size(data)) is not None and size <= len(data) - PREFIX_SIZE:
                    end = PREFIX_SIZE + self._read_prefix(data)
                    messages.append(self._complete(self._memory.track(data[PREFIX_SIZE:end].tobytes())))
                    data = data[end:]
                    continue
                data = self._begin(data)
            body = self._body
            if body is not None:
                size = min(len(data), body.missing)
                body.append(data[:size])
                data = data[size:]
                if not body.missing:
                    messages.append(self._complete(body.body))
                    self._body = None
        return messages

    def _begin(self, data: memoryview) -> memoryview:
        missing = PREFIX_SIZE - len(self._prefix)
        self._prefix += data[:missing]
        if len(self._prefix) == PREFIX_SIZE:
            size = self._read_prefix(self._prefix)
            self._memory.check(size)
            # Even small messages count, because a client can send a part of a message on each of its streams.
            self._body = ArrivingBody(size, self._memory, least=1)
            self._prefix = b""
        return data[missing:]

    def _read_prefix(self, prefix: Buffer) -> int:
        flag, size = PREFIX.unpack_from(prefix)
        if flag > 1:
            raise DecodeError(f"a message's Compressed-Flag is {flag}, it is 0 or 1")
        self._is_compressed = flag == 1
        if size > self._limit:
            raise TooLargeError(size)
        return int(size)

    def _complete(self, message: Buffer) -> Received:
        return Compressed(message) if self._is_compressed else message


def only_message(data: memoryview, limit: int) -> bytes | None:
    """Return the message in `data`, if `data` consists of exactly one uncompressed message of at most `limit` bytes.

    Return None in all other cases, including invalid data."""
    size = len(data) - PREFIX_SIZE
    if 0 <= size <= limit and PREFIX.unpack_from(data) == (0, size):
        return data[PREFIX_SIZE:].tobytes()
    return None


def announced_size(data: memoryview) -> int | None:
    """Return the size of the message that begins with `data`; None if its prefix is incomplete."""
    return PREFIX.unpack_from(data)[1] if len(data) >= PREFIX_SIZE else None


def framed(parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """Return a message that consists of `parts`, with its prefix."""
    if len(parts) == 1:
        only = parts[0]
        return PREFIX.pack(0, len(only)), only
    return (PREFIX.pack(0, sum(map(len, parts))), *parts)
