"""The framing of streamed bodies that the tests use: one message per line."""

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.messages import Buffer
from gateway.core.protocol import StreamFraming


class LineCutter:
    """Cuts at line feeds. `|` before the end of a chunk ends a message as well."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = b""

    def feed(self, data: Buffer) -> list[Buffer]:
        *lines, self._begun = (self._begun + data).split(b"\n")
        if b"\0" in data:
            raise DecodeError("a line with NUL")
        if any(len(line) > self._limit for line in (*lines, self._begun)):
            raise refusal(Reason.TOO_LARGE, f"a line of more than {self._limit} bytes")
        return list(lines)

    def boundary(self) -> list[Buffer]:
        if not self._begun.endswith(b"|"):
            return []
        line, self._begun = self._begun, b""
        return [line]

    def end(self) -> list[Buffer]:
        if self._begun:
            raise DecodeError(f"the stream ends inside the line {self._begun[:20]!r}")
        return []


LINES = StreamFraming(lambda parts: (*parts, b"\n"), LineCutter)
