"""Messages on a byte stream. PacketReader splits the stream into messages, and `write` sends one."""

import asyncio
from collections.abc import Iterator

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.protocol import Framing, Limits
from gateway.core.types import Buffer, Message
from gateway.transports.memory import PROCESS_MEMORY, ArrivingBody, Memory

Packet = tuple[Buffer, Buffer]
"""A message's header and its body. For a message over the limit, it has only the head of the body (`Framing.head`)."""

SCRATCH_BYTES = 64 * 2**10

_DISCARD = memoryview(bytearray(2**20))
"""The buffer for dropped bytes of all connections; large because some clients (brpc's) fail their next calls while more
than 64 MiB of their bytes are unread."""

_JOINED = 64 * 2**10
"""Up to this number of bytes, one copy costs less than one more write."""


def write(transport: asyncio.WriteTransport, message: Message) -> None:
    """Write `message`. Large parts are not copied to join them."""
    if sum(map(len, message.parts)) <= _JOINED:
        transport.write(b"".join(message.parts))
        return
    for part in message.parts:
        transport.write(part)


class PacketReader:
    """Splits the bytes that arrive in `buffer` into packets, without I/O.

    `buffer` is `scratch` while messages are small enough for it. All connections of a loop can share it, because the
    loop calls `received` immediately after it has filled the buffer. A larger message gets its own buffer, which grows
    with the received data.

    In a framing with a `head`, the reader keeps only the head of a message over the limit. It drops the bytes after the
    head, and continues with the next message. In other framings, a message over the limit ends the reading."""

    __slots__ = ("_body", "_framing", "_header", "_scratch", "_to_drop", "_to_drop_next", "limits", "memory")

    def __init__(self, framing: Framing, limits: Limits, scratch: memoryview) -> None:
        self._framing = framing
        self.limits = limits
        self._scratch = scratch
        self.memory: Memory = PROCESS_MEMORY
        """Counts the packets. Set it before the first packet arrives."""
        self._header = b""
        self._body: ArrivingBody | None = None
        self._to_drop = 0
        """The number of bytes to drop, from a message that the reader has already handed over."""
        self._to_drop_next = 0
        """The number of bytes to drop from the arriving message, after its head has arrived."""

    @property
    def header(self) -> bytes:
        """The bytes of the current message's header that have arrived."""
        return self._header

    @property
    def in_body(self) -> bool:
        """True if a header is complete and its message is not."""
        return self._body is not None or self._to_drop > 0

    @property
    def buffer(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._discards:
            return _DISCARD[: self._to_drop]
        return self._scratch if self._body is None else self._body.unfilled

    @property
    def _discards(self) -> bool:
        """True if there are enough bytes to drop to receive them into _DISCARD."""
        return self._to_drop >= SCRATCH_BYTES

    def received(self, size: int) -> Iterator[Packet]:
        """Yield the packets that the next `size` bytes of `buffer` complete.

        The caller must exhaust the iterator before it receives more.

        Raises:
            DecodeError: the bytes are not a header of this framing. `header` has these bytes. The reader cannot
                continue.
            GatewayError: RESOURCE_EXHAUSTED if a message without a head, or the head of a message, exceeds the limit,
                or if the process has no memory left for it. The reader cannot continue.
        """
        if self._discards:
            self._to_drop -= size
            return
        if self._body is None:
            yield from self._cut(self._scratch[:size].tobytes())
            return
        self._body.filled(size)
        self._body.reserve()
        if not self._body.missing:
            yield self._complete(self._body.body)

    def forget(self) -> None:
        """Free the arriving message, because the stream is over."""
        self._body = None

    def check_end(self) -> None:
        """Check that the stream can end at this point.

        Raises:
            DecodeError: the stream ends in the middle of a message.
        """
        if self._to_drop:
            raise DecodeError("the connection ended in a message that is larger than limits.message")
        if self._body is not None:
            progress = f"{self._body.filled_bytes} of the {self._body.size} bytes that its header announces"
            raise DecodeError(f"the connection ended in a message, after {progress}")
        if self._header:
            progress = f"{len(self._header)} of the {self._framing.header_size} bytes of its header"
            raise DecodeError(f"the connection ended in a message, after {progress}")

    def _cut(self, data: bytes) -> Iterator[Packet]:
        at, end = self._drop(len(data)), len(data)
        while at < end:
            start, at = at, min(end, at + self._framing.header_size - len(self._header))
            self._header += data[start:at]
            if len(self._header) < self._framing.header_size:
                return
            size = self._size()
            if size > end - at:
                self._begin_body(data[at:], size)
                return
            yield self._complete(self.memory.track(data[at : at + size]))
            at += size
            at += self._drop(end - at)

    def _size(self) -> int:
        """Return the number of bytes after the header that belong to the packet."""
        size, limits = self._framing.size(self._header), self.limits
        head = 0 if self._framing.head is None else self._framing.head(self._header)
        if head > limits.headers:
            text = f"the head of a message, of {head} bytes, is larger than limits.headers, {limits.headers} bytes"
            raise refusal(Reason.HEADERS_TOO_LARGE, text)
        if size <= limits.message:
            return size
        if self._framing.head is None:
            text = f"a message of {size} bytes is larger than limits.message, {limits.message} bytes"
            raise refusal(Reason.TOO_LARGE, text)
        self._to_drop_next = size - head
        return head

    def _drop(self, size: int) -> int:
        """Return how many of the next `size` bytes the reader drops."""
        dropped = min(size, self._to_drop)
        self._to_drop -= dropped
        return dropped

    def _begin_body(self, data: bytes, size: int) -> None:
        self.memory.check(size)
        self._body = ArrivingBody(size, self.memory)
        self._body.append(data)
        self._body.reserve()

    def _complete(self, body: Buffer) -> Packet:
        packet = self._header, body
        self._header, self._body = b"", None
        self._to_drop, self._to_drop_next = self._to_drop_next, 0
        return packet
