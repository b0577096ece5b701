"""What a client writes on a connection: calls, within the windows that the server grants."""

import asyncio
from collections import deque

from gateway.core.errors import DecodeError
from gateway.core.types import Buffer
from gateway.http2.connection import UnsentData
from gateway.http2.frames import DATA, DEFAULT_WINDOW, END_STREAM, MAX_FRAME_SIZE, MAX_WINDOW, header, header_frames
from gateway.transports.grpc.client.call import Call
from gateway.transports.grpc.messages import PREFIX, PREFIX_SIZE, framed

_LARGEST_FRAME = 2**18
"""What of a message is handed to the transport at a time, even if the server takes larger frames: its buffer holds no
more, also where it copies."""
_MOST_OWED = 2**16
"""Bytes of answers to a server's own frames that wait for it to read on."""

_STUCK = 2**20
"""Bytes that wait to be written, of which messages are no more than a frame."""

_NO_TABLE = b"\x20"
"""RFC 7541 section 6.3: our dynamic table has size 0. Only servers that announce a smaller one than the initial one
need to be told, and they insist on it."""


class Sender:
    """Writes the calls of one connection."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._window = DEFAULT_WINDOW
        self._initial_window = DEFAULT_WINDOW
        self._frame_size = MAX_FRAME_SIZE
        self._unsent: deque[Call] = deque()
        self._is_paused = False
        self._owed = 0
        self._preamble = _NO_TABLE

    @property
    def is_stuck(self) -> bool:
        """Whether heads and resets alone have piled up, before a server that does not read."""
        return self._is_paused and self._transport.get_write_buffer_size() > _STUCK

    def begin(self, call: Call, head: bytes, parts: tuple[Buffer, ...]) -> None:
        """Write the head of `call`, and the one message of `parts` as soon as the server takes it."""
        size = PREFIX_SIZE + sum(map(len, parts))
        if self._preamble:
            head, self._preamble = self._preamble + head, b""
        opening = header_frames(call.stream, head, 0, self._frame_size)
        if size <= self._frame_size and size <= self._window and size <= self._initial_window and not self._is_paused:
            self._window -= size
            start = header(size, DATA, END_STREAM, call.stream) + PREFIX.pack(0, size - PREFIX_SIZE)
            self._transport.write(b"".join((opening, start, *parts)))
            return
        self._transport.write(opening)
        call.window = self._initial_window
        call.unsent = UnsentData(framed(parts))
        self._unsent.append(call)
        self.write_on()

    def drop(self, call: Call) -> None:
        """Write no more of `call`, of which something is unsent."""
        call.unsent = None
        self._unsent.remove(call)

    def control(self, answer: bytes) -> None:
        """Write a frame that the server's own call for.

        Raises:
            DecodeError: it calls for more and more of them, and reads none.
        """
        self._transport.write(answer)
        if self._is_paused:
            self._owed += len(answer)
            if self._owed > _MOST_OWED:
                raise DecodeError("it does not read what it asks for")

    # What the server grants.

    def widen(self, increment: int) -> None:
        """The connection's window grows.

        Raises:
            DecodeError: beyond what windows may have.
        """
        self._window = _grown(self._window, increment)
        self.write_on()

    def widen_call(self, call: Call, increment: int) -> None:
        """A stream's window grows; raises DecodeError, too."""
        call.window = _grown(call.window, increment)
        self.write_on()

    def set_initial_window(self, size: int) -> None:
        """RFC 9113 section 6.9.2: streams' windows change by as much as the initial one; they may become negative."""
        difference = size - self._initial_window
        self._initial_window = size
        for call in self._unsent:
            call.window = _grown(call.window, difference)

    def set_frame_size(self, size: int) -> None:
        """The server takes frames of this size."""
        self._frame_size = min(size, _LARGEST_FRAME)

    def pause(self) -> None:
        """The transport's buffer is full."""
        self._is_paused = True

    def resume(self) -> None:
        """The transport's buffer has room."""
        self._is_paused = False
        self._owed = 0
        self.write_on()

    def write_on(self) -> None:
        """Write what is unsent as far as the server takes it: a frame of each call in turn."""
        waiting = 0
        while waiting < len(self._unsent) and self._window > 0 and not self._is_paused:
            call = self._unsent.popleft()
            if call.window > 0:
                waiting = 0
                self._write_frame(call)
            else:
                waiting += 1
            if call.unsent is not None:
                self._unsent.append(call)

    def _write_frame(self, call: Call) -> None:
        unsent = call.unsent
        assert unsent is not None
        size = min(unsent.size, call.window, self._window, self._frame_size)
        pieces = unsent.take(size)
        self._window -= size
        call.window -= size
        if not unsent.size:
            call.unsent = None
        flags = 0 if unsent.size else END_STREAM
        self._transport.writelines([header(size, DATA, flags, call.stream), *pieces])


def _grown(window: int, increment: int) -> int:
    window += increment
    if window > MAX_WINDOW:
        raise DecodeError(f"a window grew to {window} bytes, at most {MAX_WINDOW} are allowed")
    return window
