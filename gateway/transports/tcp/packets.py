"""Cuts messages out of a byte stream. Pure."""

from collections.abc import Iterator

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.protocol import Framing, Limits
from gateway.core.types import Buffer
from gateway.transports.memory import PROCESS, Arriving

Packet = tuple[Buffer, Buffer]
"""A message's header and the rest of it; only its head, where it is beyond the limit."""

SCRATCH_BYTES = 64 * 2**10

_DROPPED = memoryview(bytearray(2**20))
"""Where all that is dropped goes, of whichever connection. It is large: some clients (brpc's) refuse further calls by
themselves as long as more than 64 MiB wait to be read."""


class Reader:
    """What the stream gives is received into `buffer`, then cut by `received`.

    That is `scratch`, which may be shared by all connections of a loop, since every loop fills it and calls back in one
    go. Only a message that does not fit in there gets a buffer of its own, which grows with what arrives.
    """

    __slots__ = ("_body", "_framing", "_header", "_limits", "_scratch", "_to_drop", "_too_much")

    def __init__(self, framing: Framing, limits: Limits, scratch: memoryview) -> None:
        self._framing = framing
        self._limits = limits
        self._scratch = scratch
        self._header = b""
        self._too_much = 0
        """Of the message that is arriving, the bytes behind its head that nobody will see."""
        self._to_drop = 0
        """The same of a message that was handed over."""
        self._body: Arriving | None = None

    @property
    def header(self) -> bytes:
        """What has come of the header of the message that is arriving."""
        return self._header

    @property
    def in_body(self) -> bool:
        """Whether a header is complete and what belongs to it is not."""
        return self._body is not None or self._to_drop > 0

    @property
    def buffer(self) -> memoryview:
        """Where to receive into."""
        if self._drops_all:
            return _DROPPED[: self._to_drop]
        return self._scratch if self._body is None else self._body.room

    @property
    def _drops_all(self) -> bool:
        return self._to_drop >= SCRATCH_BYTES

    def received(self, size: int) -> Iterator[Packet]:
        """The messages that are complete with the next `size` bytes of `buffer`; to be exhausted before it is filled
        again.

        Raises:
            DecodeError: something that is no header. `header` is what is wrong, and nothing more can be read.
            GatewayError: RESOURCE_EXHAUSTED, a message without a head, or the head of one, is beyond the limit, or the
                process has no memory left for it; the same.
        """
        if self._drops_all:
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
        """The stream is over: let go of a message that was arriving."""
        self._body = None

    def check_end(self) -> None:
        """The stream ends here.

        Raises:
            DecodeError: in the middle of a message.
        """
        if self._to_drop:
            raise DecodeError("the connection ended in a message that is larger than limits.message")
        if self._body is not None:
            there = f"{self._body.filled_bytes} of the {self._body.size} bytes that its header tells"
            raise DecodeError(f"the connection ended in a message, after {there}")
        if self._header:
            there = f"{len(self._header)} of the {self._framing.header_size} bytes of its header"
            raise DecodeError(f"the connection ended in a message, after {there}")

    def _cut(self, data: bytes) -> Iterator[Packet]:
        at, end = self._drop(len(data)), len(data)
        while at < end:
            start, at = at, min(end, at + self._framing.header_size - len(self._header))
            self._header += data[start:at]
            if len(self._header) < self._framing.header_size:
                return
            size = self._size()
            if size > end - at:
                self._begin(data[at:], size)
                return
            yield self._complete(PROCESS.hold(data[at : at + size]))
            at += size
            at += self._drop(end - at)

    def _size(self) -> int:
        """How many bytes follow the header and are wanted."""
        size, limits = self._framing.size(self._header), self._limits
        head = 0 if self._framing.head is None else self._framing.head(self._header)
        if head > limits.headers:
            text = f"the head of a message, of {head} bytes, is larger than limits.headers, {limits.headers} bytes"
            raise refusal(Reason.HEADERS_TOO_LARGE, text)
        if size <= limits.message:
            return size
        if self._framing.head is None:
            text = f"a message of {size} bytes is larger than limits.message, {limits.message} bytes"
            raise refusal(Reason.TOO_LARGE, text)
        self._too_much = size - head
        return head

    def _drop(self, size: int) -> int:
        """How many of the next `size` bytes belong to no message."""
        dropped = min(size, self._to_drop)
        self._to_drop -= dropped
        return dropped

    def _begin(self, data: bytes, size: int) -> None:
        PROCESS.check(size)
        self._body = Arriving(size, PROCESS)
        self._body.append(data)
        self._body.reserve()

    def _complete(self, body: Buffer) -> Packet:
        packet = self._header, body
        self._header, self._body = b"", None
        self._to_drop, self._too_much = self._too_much, 0
        return packet
