"""Length-prefixed messages, as gRPC puts them into DATA frames. Pure."""

from collections import deque
from collections.abc import Iterable
from struct import Struct
from typing import TypeAlias

import numpy as np

from gateway.core.errors import DecodeError
from gateway.core.types import Buffer
from gateway.transports.grpc.inflating import Compressed

PREFIX = Struct(">BL")
"""Whether the message is compressed, and its size."""
PREFIX_SIZE = PREFIX.size

Received: TypeAlias = Buffer | Compressed

_FIRST = 2**16
"""Bytes that a message of several frames gets at first, if it is that long."""
_GROWTH = 4
"""How many times as much it gets when they are full: a third of it is copied once more."""


class TooLargeError(Exception):
    """A message is said to have `size` bytes, more than the limit."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class MessageReader:
    """Puts together the messages of one stream."""

    __slots__ = ("_body", "_filled", "_is_compressed", "_limit", "_prefix", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._prefix = b""
        self._body: memoryview | None = None
        self._filled = 0
        self._size = 0
        self._is_compressed = False

    @property
    def is_between(self) -> bool:
        """Whether no message has begun and not ended."""
        return self._body is None and not self._prefix

    @property
    def missing(self) -> int:
        """Bytes that the message in the making still lacks, as far as its prefix has told."""
        return 0 if self._body is None else self._size - self._filled

    def read(self, data: memoryview) -> list[Received]:
        """The messages that are complete with `data`, which is not kept. The memory for one grows as it arrives.

        Raises:
            DecodeError: not a prefix.
            TooLargeError: beyond the limit, as soon as the prefix is there.
        """
        if self._body is None and not self._prefix and len(data) >= PREFIX_SIZE:
            # Nearly always, a frame is a message.
            size = self._read_prefix(data)
            if size == len(data) - PREFIX_SIZE:
                return [self._complete(data[PREFIX_SIZE:].tobytes())]
        return self._pieces(data)

    def _pieces(self, data: memoryview) -> list[Received]:
        messages: list[Received] = []
        while data:
            if self._body is None:
                data = self._begin(data)
            if self._body is not None:
                data = self._fill(self._body, data)
                if self._filled == self._size:
                    messages.append(self._complete(self._body))
                    self._body, self._filled = None, 0
        return messages

    def _begin(self, data: memoryview) -> memoryview:
        missing = PREFIX_SIZE - len(self._prefix)
        self._prefix += data[:missing]
        if len(self._prefix) == PREFIX_SIZE:
            self._size = self._read_prefix(self._prefix)
            self._body = _memory(min(self._size, _FIRST))
            self._prefix = b""
        return data[missing:]

    def _fill(self, body: memoryview, data: memoryview) -> memoryview:
        start = self._filled
        self._filled = end = min(start + len(data), self._size)
        if end > len(body):
            grown = _memory(min(self._size, max(end, _GROWTH * len(body))))
            grown[:start] = body[:start]
            self._body = body = grown
        body[start:end] = data[: end - start]
        return data[end - start :]

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


def _memory(size: int) -> memoryview:
    """Memory that is not written to, and so takes no page before bytes arrive."""
    return np.empty(size, np.uint8).data


class Unsent:
    """What of a message has not been written yet, its prefix included."""

    __slots__ = ("_parts", "size")

    def __init__(self, parts: Iterable[Buffer]) -> None:
        views = [memoryview(part) for part in parts]
        size = sum(map(len, views))
        self._parts = deque((memoryview(PREFIX.pack(0, size)), *filter(len, views)))
        self.size = PREFIX_SIZE + size

    def take(self, size: int) -> list[memoryview]:
        """The next `size` bytes, or all that is left."""
        taken = []
        while size and self._parts:
            part = self._parts.popleft()
            if len(part) > size:
                self._parts.appendleft(part[size:])
                part = part[:size]
            taken.append(part)
            size -= len(part)
            self.size -= len(part)
        return taken
