"""Messages on a byte stream. PacketReader splits the stream into messages, and `write` sends a message."""

import asyncio
from collections.abc import Iterator

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.messages import Buffer, Message
from gateway.core.protocol import Framing, Limits
from gateway.transports.memory import PROCESS_MEMORY, ArrivingBody, Memory

Packet = tuple[Buffer, Buffer]
"""A message's header and body. If the message is over the limit, the body contains only the message's own head
(`Framing.head`)."""

SCRATCH_BYTES = 64 * 2**10

_DISCARD = memoryview(bytearray(2**20))
"""The buffer into which all connections receive bytes that they drop. The buffer is large because brpc clients fail
their next calls while more than 64 MiB of their data is unread."""

_JOINED = 64 * 2**10
"""Maximum total size, in bytes, of parts to join. Up to this size, copying costs less than another write."""


def write(transport: asyncio.WriteTransport, message: Message) -> None:
    """Write `message`. Small messages are copied to a single buffer, and the parts of large messages are written
    without copying."""
    if sum(map(len, message.parts)) <= _JOINED:
        transport.write(b"".join(message.parts))
        return
    for part in message.parts:
        transport.write(part)


class PacketReader:
    """Splits the bytes that arrive in `buffer` into packets. The class performs no I/O.

    While messages are small enough, `buffer` is `scratch`. All connections of a loop can share `scratch`, because the
    loop calls `received` immediately after filling the buffer. A larger message has its own buffer, which grows with
    the received data.

    If a message is over the limit and the framing has a `head`, the reader keeps only the message's head. It drops the
    bytes after the head, and continues with the next message. In other framings, the reader cannot continue after a
    message over the limit."""

    __slots__ = ("_body", "_framing", "_header", "_scratch", "_to_drop", "_to_drop_next", "limits", "memory")

    def __init__(self, framing: Framing, limits: Limits, scratch: memoryview) -> None:
        self._framing = framing
        self.limits = limits
        self._scratch = scratch
        self.memory: Memory = PROCESS_MEMORY
        """Counts the memory of the packets. Set this field before the first packet arrives."""
        self._header = b""
        self._body: ArrivingBody | None = None
        self._to_drop = 0
        """The number of bytes to drop from a message that the reader has already returned."""
        self._to_drop_next = 0
        """The number of bytes to drop after the head of the arriving message."""

    @property
    def header(self) -> bytes:
        """The bytes of the current message's header that have arrived."""
        return self._header

    @property
    def in_body(self) -> bool:
        """True if a header is complete, but its message is not."""
        return self._body is not None or self._to_drop > 0

    @property
    def buffer(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._discards:
            return _DISCARD[: self._to_drop]
        return self._scratch if self._body is None else self._body.unfilled

    @property
    def _discards(self) -> bool:
        """True if the reader must drop so many bytes that it receives them into _DISCARD."""
        return self._to_drop >= SCRATCH_BYTES

    def received(self, size: int) -> Iterator[Packet]:
        """Yield the packets that the next `size` bytes of `buffer` complete.

        The caller must exhaust the iterator before it receives more bytes.

        Raises:
            DecodeError: the bytes are not a header of this framing. `header` contains the bytes. The reader cannot
                continue.
            GatewayError: RESOURCE_EXHAUSTED if a message without a head, or the head of a message, exceeds the limit,
                or if the process does not have enough memory. The reader cannot continue.
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
        """Free the arriving message, because the stream has ended."""
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
            raise refusal(Reason.HEADERS_TOO_LARGE, f"{text}; send less, or raise the limit")
        if size <= limits.message:
            return size
        if self._framing.head is None:
            text = f"a message of {size} bytes is larger than limits.message, {limits.message} bytes"
            raise refusal(Reason.TOO_LARGE, f"{text}; send less, or raise the limit")
        self._to_drop_next = size - head
        return head

    def _drop(self, size: int) -> int:
        """Return how many of the next `size` bytes the reader must drop."""
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
