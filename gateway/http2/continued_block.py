"""A header block that goes on in CONTINUATION frames, RFC 9113 section 6.10. Pure."""

from gateway.core.errors import DecodeError


class ContinuedBlock:
    """What has come of one; no more is kept than tells that it is too large. It is skipped then, for the sake of the
    connection's other calls, as long as there is an end of it."""

    _MOST = 16
    """Times the limit, up to which one is skipped."""
    _PER_FRAME = 16
    """Frames without a payload count as well."""

    __slots__ = ("_left", "_limit", "data", "flags", "stream")

    def __init__(self, stream: int, flags: int, limit: int) -> None:
        self.stream = stream
        self.flags = flags
        self.data = bytearray()
        self._limit = limit
        self._left = self._MOST * limit

    def add(self, payload: memoryview) -> None:
        """Take a frame's. Raises DecodeError for too much."""
        self._left -= len(payload) + self._PER_FRAME
        if self._left < 0:
            raise DecodeError("a header block without an end")
        if len(self.data) <= self._limit:
            self.data += payload
