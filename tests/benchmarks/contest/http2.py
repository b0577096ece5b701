"""As much HTTP/2 as unary gRPC takes, for the load generator and for the server that echoes: prepared bytes, no check.

It shares no code with the gateway, and costs less than what is measured. Header tables have size 0, so that a header
block of the same fields is the same bytes every time, and is decoded once.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import cast

from hpack import Decoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, PADDED, PRIORITY, ACK = 1, 4, 8, 32, 1

WIDEST = 2**31 - 1
REFRESH = 2**29
"""Bytes received after which the connection's window is opened again."""
FRAME_SIZE = 2**20
"""Of frames that may be sent to us."""

TABLE_OF_SIZE_0 = b"\x20"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def setting(number: int, value: int) -> bytes:
    return number.to_bytes(2) + value.to_bytes(4)


OPENING = frame(
    SETTINGS, 0, 0, setting(1, 0) + setting(2, 0) + setting(3, 2**20) + setting(4, WIDEST) + setting(5, FRAME_SIZE)
) + frame(WINDOW, 0, 0, (WIDEST - 65535).to_bytes(4))


def text(value: str) -> bytes:
    """A string of HPACK of at most 126 characters, without Huffman."""
    return bytes((len(value),)) + value.encode("ascii")


CONTENT_TYPE = b"\x0f\x10" + text("application/grpc")
"""`content-type`, as a literal that is not indexed."""


def request_head(address: str, path: str) -> bytes:
    """A header block."""
    te = b"\x00" + text("te") + text("trailers")
    return b"\x83\x86\x04" + text(path) + b"\x01" + text(address) + CONTENT_TYPE + te


@lru_cache(1024)
def fields(block: bytes) -> dict[str, str]:
    """A header block that refers to no dynamic table."""
    return {str(name): str(value) for name, value in Decoder().decode(block)}


def message(body: bytes) -> bytes:
    """With gRPC's prefix."""
    return b"\0" + len(body).to_bytes(4) + body


class Connection(asyncio.Protocol):
    """Either end. A subclass says what happens when headers, data and the end of a stream arrive."""

    def __init__(self, preface: bytes) -> None:
        self._opening = preface
        self._parts: list[bytes] = []
        """Of a frame that is not complete: what is there, its size, and the size that is wanted before another look."""
        self._size = 0
        self._wanted = 9
        self._unread = 0
        self._window = 65535
        self._first_window = 65535
        self._frame_size = 16384
        self._windows: dict[int, int] = {}
        """Of the streams that are open, what may be sent."""
        self._waiting: dict[int, tuple[memoryview, bytes]] = {}
        """Of streams whose window is used up: what is to be sent, and the frame after it."""
        self._started = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._opening + OPENING)

    def headers(self, stream: int, block: bytes) -> None:
        raise NotImplementedError

    def data(self, stream: int, payload: bytes) -> None:
        raise NotImplementedError

    def ended(self, stream: int) -> None:
        raise NotImplementedError

    def sent(self, stream: int) -> None:
        """All of it is on its way."""

    def broken(self, why: str) -> None:
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return
        if len(self._parts) > 1:
            data = b"".join(self._parts)
        at, size = 0, len(data)
        wanted = 9
        while size - at >= 9:
            length = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if size - at - 9 < length:
                wanted = 9 + length
                break
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + 9])
            payload = data[at + 9 : at + 9 + length]
            at += 9 + length
            if kind == DATA:
                self._data(stream, flags, payload)
            elif kind == HEADERS:
                self._headers(stream, flags, payload)
            else:
                self._control(kind, flags, stream, payload)
        self._parts, self._size, self._wanted = [data[at:]] if at < size else [], size - at, wanted

    def send(self, stream: int, head: bytes, body: bytes, tail: bytes) -> None:
        """A header block, the data in frames, and a frame after it (of a client an empty one that ends the stream)."""
        if not self._started:
            self._started, head = True, TABLE_OF_SIZE_0 + head
        begin = frame(HEADERS, END_HEADERS, stream, head)
        window = self._windows.setdefault(stream, self._first_window)
        length = len(body)
        if length <= self._frame_size and length <= window and length <= self._window and not self._waiting:
            self._window -= length
            self._windows[stream] = window - length
            self.transport.write(b"".join((begin, frame(DATA, 0, stream, body), tail)))
            self.sent(stream)
            return
        self.transport.write(begin)
        self._waiting[stream] = memoryview(body), tail
        self._pump()

    def _pump(self) -> None:
        """Send what the windows let through."""
        for stream, (left, tail) in list(self._waiting.items()):
            parts: list[bytes | memoryview] = []
            while left and (fits := min(len(left), self._frame_size, self._window, self._windows.get(stream, 0))) > 0:
                parts += (fits.to_bytes(3) + bytes((DATA, 0)) + stream.to_bytes(4), left[:fits])
                left = left[fits:]
                self._window -= fits
                self._windows[stream] -= fits
            if left:
                self._waiting[stream] = left, tail
            else:
                del self._waiting[stream]
                parts.append(tail)
                self.sent(stream)
            for part in parts:  # not joined: large data are not copied
                self.transport.write(part)

    def close_stream(self, stream: int) -> None:
        self._windows.pop(stream, None)

    def _data(self, stream: int, flags: int, payload: bytes) -> None:
        self._unread += len(payload)
        if self._unread >= REFRESH:
            self.transport.write(frame(WINDOW, 0, 0, self._unread.to_bytes(4)))
            self._unread = 0
        self.data(stream, payload[1 : len(payload) - payload[0]] if flags & PADDED else payload)
        if flags & END_STREAM:
            self.ended(stream)

    def _headers(self, stream: int, flags: int, payload: bytes) -> None:
        if not flags & END_HEADERS:
            self.broken("a header block in several frames")
            return
        if flags & PADDED:
            payload = payload[1 : len(payload) - payload[0]]
        self._windows.setdefault(stream, self._first_window)
        self.headers(stream, payload[5:] if flags & PRIORITY else payload)
        if flags & END_STREAM:
            self.ended(stream)

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            self._settings(payload)
            self.transport.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.transport.write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW:
            self._open(stream, int.from_bytes(payload))
        elif kind == RESET:
            self._waiting.pop(stream, None)
            self.close_stream(stream)
            self.broken(f"stream {stream} was reset with code {int.from_bytes(payload)}")
        elif kind == GOAWAY and int.from_bytes(payload[4:8]):
            self.broken(f"GOAWAY {payload!r}")

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            number, value = int.from_bytes(payload[at : at + 2]), int.from_bytes(payload[at + 2 : at + 6])
            if number == 4:
                for stream in self._windows:
                    self._windows[stream] += value - self._first_window
                self._first_window = value
            elif number == 5:
                self._frame_size = value
        self._pump()

    def _open(self, stream: int, more: int) -> None:
        if stream == 0:
            self._window += more
        elif stream in self._windows:
            self._windows[stream] += more
        if self._waiting:
            self._pump()
