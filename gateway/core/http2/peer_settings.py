"""The settings that the peer sends in SETTINGS frames (RFC 9113 section 6.5.2). They limit the data that this side
sends."""

from gateway.core.errors import DecodeError
from gateway.core.http2 import frames
from gateway.core.http2.frames import (
    DEFAULT_WINDOW,
    LAST_STREAM,
    MAX_FRAME_SIZE,
    MAX_WINDOW,
    ErrorCode,
    Setting,
    ViolationError,
)
from gateway.core.messages import Buffer

LARGEST_FRAME = 2**18
"""Maximum number of data bytes to pass to the transport in one step, even if the peer accepts larger frames, because
the transport's buffer is limited."""


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

        Returns the number of bytes to add to the windows of open streams (section 6.9.2).

        Raises:
            ViolationError: a window is larger than 2^31-1.
            DecodeError: a setting has an invalid value.
        """
        before = self.initial_window
        # Only the last value of each setting counts; a frame can contain thousands of values.
        for name, amount in dict(frames.read_settings(payload)).items():
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
