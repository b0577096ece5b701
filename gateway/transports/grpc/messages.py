"""Length-prefixed messages, as gRPC puts them into DATA frames. Pure."""

from struct import Struct
from typing import TypeAlias

from gateway.core.errors import DecodeError
from gateway.core.types import Buffer
from gateway.transports.grpc.inflating import Compressed
from gateway.transports.memory import PROCESS_MEMORY, ArrivingBody

PREFIX = Struct(">BL")
"""Whether the message is compressed, and its size."""
PREFIX_SIZE = PREFIX.size

Received: TypeAlias = Buffer | Compressed


class TooLargeError(Exception):
    """A message is said to have `size` bytes, more than the limit."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class MessageReader:
    """Puts together the messages of one stream."""

    __slots__ = ("_body", "_is_compressed", "_limit", "_prefix")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._prefix = b""
        self._body: ArrivingBody | None = None
        self._is_compressed = False

    @property
    def is_between(self) -> bool:
        """Whether no message has begun and not ended."""
        return self._body is None and not self._prefix

    @property
    def missing(self) -> int:
        """Bytes that the message in the making still lacks, as far as its prefix has told."""
        return 0 if self._body is None else self._body.missing

    def read(self, data: memoryview) -> list[Received]:
        """The messages that are complete with `data`, which is not kept. The memory for one grows as it arrives.

        Raises:
            DecodeError: not a prefix.
            TooLargeError: beyond the limit, as soon as the prefix is there.
            GatewayError: RESOURCE_EXHAUSTED (overloaded), the process has no memory left for it.
        """
        if self._body is None and not self._prefix and len(data) >= PREFIX_SIZE:
            # Nearly always, a frame is a message.
            size = self._read_prefix(data)
            if size == len(data) - PREFIX_SIZE:
                return [self._complete(PROCESS_MEMORY.track(data[PREFIX_SIZE:].tobytes()))]
        return self._pieces(data)

    def _pieces(self, data: memoryview) -> list[Received]:
        messages: list[Received] = []
        while data:
            if self._body is None:
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
            PROCESS_MEMORY.check(size)
            self._body = ArrivingBody(size, PROCESS_MEMORY)
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


def framed(parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """The message of `parts`, its prefix before them."""
    return (PREFIX.pack(0, sum(map(len, parts))), *parts)
