"""HTTP/2 frames (RFC 9113 sections 4 and 6): their headers, payloads and codes, and the settings that the peer sends in
SETTINGS frames. The code performs no I/O.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

from gateway.core.errors import DecodeError
from gateway.core.messages import Buffer

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Plain integers instead of an enum, because every frame is compared with them.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 0x1, 0x1, 0x4, 0x8, 0x20

ENDS = END_HEADERS | END_STREAM
"""The flags of a HEADERS frame that contains a complete header block and ends its stream, such as trailers."""

MAX_FRAME_SIZE = 2**14
"""Maximum size of a received payload, in bytes. This is the initial value in section 6.5.2, which the gateway does not
raise."""
MAX_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 2**16 - 1
LAST_STREAM = 2**31 - 1

HEADER = Struct(">LBL")
"""The format of a frame's header. The first number has 24 bits for the payload's size and 8 bits for the type. The
flags follow, and then the stream with a reserved bit."""
HEADER_SIZE = HEADER.size
read_header = HEADER.unpack_from
read_expected = Struct(">BQ").unpack_from
"""Reads, as two numbers, a header in which only the size is unknown. The first number is 0 for payloads below 64 KiB.
The second number contains the size, shifted by SIZE_SHIFT. Its lower bits (EXPECTED) contain the stream and the result
of `expected`."""
SIZE_SHIFT = 48
EXPECTED = 2**SIZE_SHIFT - 1
UNSIGNED = Struct(">L")
WIDENING_SIZE = UNSIGNED.size
WIDENING = WIDENING_SIZE << 8 | WINDOW_UPDATE
"""The first number in the header of a WINDOW_UPDATE frame, whose payload has a fixed size."""


def expected(kind: int, flags: int) -> int:
    """Return the type and the flags of a frame in the format of `read_expected`."""
    return kind << 40 | flags << 32


class Setting(IntEnum):
    """The settings of section 6.5.2."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """The error codes of section 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class FrameSizeError(DecodeError):
    """A frame's payload has an invalid size for the frame's type (section 4.2)."""

    code = ErrorCode.FRAME_SIZE_ERROR


class ViolationError(Exception):
    """The peer broke a rule whose violation has an error code other than PROTOCOL_ERROR."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def check_ping(stream: int, payload: Buffer) -> None:
    """Check a PING frame (section 6.7). Raises DecodeError or FrameSizeError."""
    if stream:
        raise DecodeError(f"PING of stream {stream}; it has stream 0")
    if len(payload) != 8:
        raise FrameSizeError(f"PING of {len(payload)} bytes, it has 8")


def check_go_away(stream: int, payload: Buffer) -> None:
    """Check a GOAWAY frame (section 6.8). Raises DecodeError or FrameSizeError."""
    if stream:
        raise DecodeError(f"GOAWAY of stream {stream}; it has stream 0")
    if len(payload) < 8:
        raise FrameSizeError(f"GOAWAY of {len(payload)} bytes, it has 8 at least")


def error_name(code: int) -> str:
    """Return the name of an error code, such as `REFUSED_STREAM` for 7, or the number itself if the RFC does not list
    it."""
    return ErrorCode(code).name if code in _CODES else f"error code {code}"


_CODES = frozenset(ErrorCode)


def header(size: int, kind: int, flags: int, stream: int) -> bytes:
    """Return the header of a frame whose payload has `size` bytes."""
    return HEADER.pack(size << 8 | kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: Buffer) -> bytes:
    """Return a complete frame."""
    return header(len(payload), kind, flags, stream) + payload


def settings(values: dict[Setting, int]) -> bytes:
    """Return a SETTINGS frame, with a 16-bit identifier and a 32-bit value for each setting."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*each) for each in values.items()))


def read_settings(payload: Buffer) -> Iterator[tuple[int, int]]:
    """Yield the identifiers and values in a SETTINGS payload. Raises FrameSizeError if the payload's size is not a
    multiple of 6."""
    if len(payload) % _SETTING.size:
        raise FrameSizeError(f"SETTINGS of {len(payload)} bytes, expected a multiple of {_SETTING.size}")
    return _SETTING.iter_unpack(payload)


_SETTING = Struct(">HL")


def reset(stream: int, code: ErrorCode) -> bytes:
    """Return an RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, UNSIGNED.pack(code))


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame. Stream 0 stands for the connection."""
    return frame(WINDOW_UPDATE, 0, stream, UNSIGNED.pack(increment))


def go_away(code: ErrorCode, last: int = 0, text: str = "") -> bytes:
    """Return a GOAWAY frame.

    This side still processes the peer's streams up to `last` (0 for a client, because servers open no streams). `text`
    is for logs and users."""
    return frame(GOAWAY, 0, 0, UNSIGNED.pack(last) + UNSIGNED.pack(code) + text.encode())


def header_frames(stream: int, block: bytes, flags: int, size: int) -> bytes:
    """Return the frames of a header block: HEADERS with `flags`, then CONTINUATION frames for the part beyond `size`
    bytes."""
    if len(block) <= size:
        return header(len(block), HEADERS, flags | END_HEADERS, stream) + block
    pieces = [block[start : start + size] for start in range(0, len(block), size)]
    last = len(pieces) - 1
    return b"".join(
        frame(CONTINUATION if at else HEADERS, (0 if at else flags) | (END_HEADERS if at == last else 0), stream, piece)
        for at, piece in enumerate(pieces)
    )


def number(payload: Buffer, what: str, size: int = 4) -> int:
    """Return the number in the first 31 bits of a payload. Raises FrameSizeError if the payload does not have `size`
    bytes."""
    if len(payload) != size:
        raise FrameSizeError(f"{what} of {len(payload)} bytes, it has {size}")
    first: int = UNSIGNED.unpack_from(payload)[0]
    return first & MAX_WINDOW


def unpadded(payload: memoryview, what: str, flags: int) -> memoryview:
    """Return the payload of a DATA or HEADERS frame, without the padding and the priority that `flags` announce.

    Raises:
        FrameSizeError: the payload is too short for its first fields.
        DecodeError: the padding is longer than the rest of the payload.
    """
    start = (1 if flags & PADDED else 0) + (5 if flags & PRIORITIZED else 0)
    if start > len(payload):
        raise FrameSizeError(f"{what} of {len(payload)} bytes, its flags announce {start} before the content")
    padding = payload[0] if flags & PADDED else 0
    if start + padding > len(payload):
        raise DecodeError(f"{what} of {len(payload)} bytes, {padding} of them padding")
    return payload[start : len(payload) - padding]


# --- The settings of the peer, which limit the data that this side sends ---

LARGEST_FRAME = 2**18
"""Maximum number of data bytes to pass to the transport in one step. This limit applies even if the peer accepts larger
frames, because the transport's buffer is limited."""


class PeerSettings:
    """The current values of the peer's settings that a sender needs."""

    __slots__ = ("frame_size", "initial_window", "most_streams")

    def __init__(self) -> None:
        self.most_streams = LAST_STREAM
        """Maximum number of open streams that the peer allows this side."""
        self.initial_window = DEFAULT_WINDOW
        """Number of bytes that this side can send on a new stream."""
        self.frame_size = MAX_FRAME_SIZE
        """Maximum size of a frame that this side sends, in bytes."""

    def take(self, payload: Buffer) -> int:
        """Apply the values of a SETTINGS frame.

        Return the number of bytes to add to the windows of open streams (section 6.9.2).

        Raises:
            ViolationError: a window is larger than 2^31-1.
            DecodeError: a setting has an invalid value.
        """
        before = self.initial_window
        # Only the last value of each setting counts; a frame can contain thousands of values.
        for name, amount in dict(read_settings(payload)).items():
            self._set(name, amount)
        return self.initial_window - before

    def _set(self, name: int, amount: int) -> None:
        """Set one value. Ignore unknown settings (section 6.5.2)."""
        match name:
            case Setting.MAX_CONCURRENT_STREAMS:
                self.most_streams = amount
            case Setting.INITIAL_WINDOW_SIZE if amount <= MAX_WINDOW:
                self.initial_window = amount
            case Setting.MAX_FRAME_SIZE if MAX_FRAME_SIZE <= amount < 2**24:
                self.frame_size = min(amount, LARGEST_FRAME)
            case Setting.INITIAL_WINDOW_SIZE:
                raise ViolationError(ErrorCode.FLOW_CONTROL_ERROR, f"SETTINGS set INITIAL_WINDOW_SIZE to {amount}")
            case Setting.MAX_FRAME_SIZE:
                raise DecodeError(f"SETTINGS set MAX_FRAME_SIZE to {amount}")
            case Setting.ENABLE_PUSH if amount > 1:
                raise DecodeError(f"SETTINGS set ENABLE_PUSH to {amount}, it is 0 or 1")
