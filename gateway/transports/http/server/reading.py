"""Request heads as they arrive, read by httptools.

httptools (llhttp, strict) refuses bare LF, folded lines, a space before the colon, control characters, two or malformed
Content-Lengths, and Content-Length beside Transfer-Encoding. It is given heads alone: where one ends is found here, so
that its size is bounded, and what follows waits its turn.
"""

from typing import Any

import httptools

from gateway.core.errors import GatewayError, Reason, invalid_input, refusal

END = b"\r\n\r\n"


class HeadReader:
    """Receives one head after the other, each in any number of pieces of at most `limit` bytes together."""

    __slots__ = ("_limit", "_parser", "_tail", "complete", "headers", "size", "target")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parser: Any = None
        self.start()

    def start(self) -> None:
        """Make ready for the next head."""
        self._tail = b""
        self.size = 0
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False

    def stop(self) -> None:
        """Let go of the parser, which holds the reader: connections then need no garbage collector."""
        self._parser = None

    def feed(self, data: bytes, at: int) -> int:
        """Read on from `at`; the position in `data` up to which bytes belong to this head.

        Raises:
            GatewayError: not HTTP/1, or larger than the limit.
        """
        if not self.size:
            # A new parser costs no more than feeding the body to the old one, and carries nothing over.
            self._parser = httptools.HttpRequestParser(self)
            at = _skip_empty_lines(data, at)
        end = self._end(data, at)
        room = at + self._limit - self.size
        stop = min(end or len(data), room)
        self._parse(data[at:stop])
        self.size += stop - at
        if end and stop == end and not self.complete:
            raise version_refused()  # only the preface of HTTP/2 goes on behind its empty line
        if stop == room and not self.complete:
            text = f"the request line and headers are larger than limits.headers, {self._limit} bytes"
            raise refusal(Reason.HEADERS_TOO_LARGE, text)
        return stop

    @property
    def method(self) -> str:
        """The request's method, once complete."""
        method: bytes = self._parser.get_method()
        return method.decode()

    @property
    def version(self) -> str:
        """`1.1`, `1.0`, or what must be refused."""
        version: str = self._parser.get_http_version()
        return version

    def on_url(self, piece: bytes) -> None:
        """httptools: the target, or a piece of it."""
        self.target += piece

    def on_header(self, name: bytes, text: bytes) -> None:
        """httptools: one header, without the blanks before its value."""
        self.headers.append((name.lower(), text.rstrip()))

    def on_headers_complete(self) -> None:
        """httptools: the empty line behind the headers."""
        self.complete = True

    def _end(self, data: bytes, at: int) -> int:
        """Where the head ends in `data`, 0 if it does not."""
        seam = self._tail + data[at : at + 3] if self._tail else b""
        found = seam.find(END)
        if found >= 0:
            return at + found + len(END) - len(self._tail)
        found = data.find(END, at)
        if found >= 0:
            return found + len(END)
        self._tail = (self._tail + data[max(at, len(data) - 3) :])[-3:]
        return 0

    def _parse(self, piece: bytes) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            pass  # `Upgrade` and CONNECT: RFC 9110 section 7.8 lets a server ignore the wish
        except httptools.HttpParserError as error:
            raise _refused_by_parser(str(error)) from error


def version_refused() -> GatewayError:
    """The error of every other version of HTTP."""
    return refusal(Reason.VERSION_NOT_SUPPORTED, "only HTTP/1.1 and HTTP/1.0 are spoken here")


def _skip_empty_lines(data: bytes, at: int) -> int:
    """RFC 9112 section 2.2: empty lines before the request line are to be ignored; some clients end a body with one."""
    while at < len(data) and data[at] in b"\r\n":
        at += 1
    return at


def _refused_by_parser(why: str) -> GatewayError:
    # httptools has no class for it; the text is llhttp's.
    if why == "Invalid HTTP version":
        return version_refused()
    return invalid_input(f"the request is malformed HTTP: {why}")
