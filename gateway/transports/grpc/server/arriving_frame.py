"""Measures how long a client takes to send one frame, or a header block in several frames.

The gateway cannot interpret an incomplete frame, so the connection must monitor it, not a call. The code is pure; the
caller passes the current time.
"""

from math import inf

from gateway.core.http2.frames import DATA, END_HEADERS, HEADER_SIZE, HEADERS
from gateway.core.messages import Buffer
from gateway.transports.timeouts import Timeouts

_TYPE, _FLAGS = 3, 4
"""The positions of the type and the flags in a frame's header."""


class ArrivingFrame:
    """The incomplete frame or header block that is arriving on one connection, if there is one."""

    __slots__ = ("_block_since", "_data_bytes", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        """The time when the frame or block began; None if all frames are complete."""
        self._block_since: float | None = None
        """The last `block_since` from the connection."""
        self._data_bytes = 0
        """The size of the incomplete frame in bytes, if it is DATA."""

    def note(self, read: Buffer, rest: bytes, block_since: float | None, now: float) -> None:
        """Record received bytes: `read` contains all of them, from the start of a frame, and `rest` is the incomplete
        frame at their end. `block_since` is the time when the first complete frame of the arriving header block was
        received."""
        goes_on = self.since is not None and len(rest) == len(read)
        is_block, is_same_block = block_since is not None, block_since == self._block_since
        self._block_since = block_since
        self._data_bytes = len(rest) if len(rest) > _TYPE and rest[_TYPE] == DATA else 0
        if is_block:
            if not is_same_block and not (self.since is not None and _opens_block(read)):
                self.since = block_since
        elif not rest:
            self.since = None
        elif not goes_on:
            self.since = now

    def excuse(self, seconds: float) -> None:
        """Do not count these seconds, because the gateway did not read from the client."""
        if self.since is not None:
            self.since += seconds

    def seconds_left(self, now: float, timeouts: Timeouts) -> float:
        """Return the seconds until the frame or block must be complete; infinity if all frames are complete.

        DATA has the time limit of a message. All other frames have the time limit of a head."""
        if self.since is None:
            return inf
        seconds = timeouts.body + self._data_bytes / timeouts.rate if self._data_bytes else timeouts.head
        return self.since + seconds - now

    def why_late(self, timeouts: Timeouts) -> str:
        """Return the error message for a frame that is too late."""
        if self._data_bytes:
            return f"a DATA frame came at less than {timeouts.rate:g} bytes a second"
        what = "a frame" if self._block_since is None else "a header block"
        return f"{what} did not end within {timeouts.head:g} s"


def _opens_block(read: Buffer) -> bool:
    """Return whether the first frame in `read` begins a header block with several frames."""
    is_open = len(read) >= HEADER_SIZE and read[_TYPE] == HEADERS
    return is_open and not read[_FLAGS] & END_HEADERS
