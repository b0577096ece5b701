"""The head of a request to an endpoint, as bytes."""

import base64
from collections.abc import Sequence

from gateway.core.types import Headers, Message, Metadata
from gateway.transports.http.address import HttpAddress

# Fields that delimit the message or belong to one connection (RFC 9110 section 7.6.1) are written by the connector; a
# second one would let a client smuggle requests.
_WRITTEN_HERE = frozenset(
    (
        b"connection", b"content-length", b"expect", b"host", b"keep-alive", b"proxy-connection", b"request-timeout",
        b"te", b"trailer", b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip
_WITHOUT_BODY = ("GET", "HEAD")

# The range that every reader of Request-Timeout accepts, other gateways included: above zero, and nine digits.
_MIN_SECONDS, _MAX_SECONDS = 0.001, 999_999_999.0


class HeadWriter:
    """Writes the heads of requests to one address; with `close` they ask the endpoint to close after its reply.

    They ask for no Content-Encoding: compressing a reply costs a model server on the same machine or network more than
    it saves.
    """

    def __init__(self, address: HttpAddress, *, close: bool) -> None:
        self._prefix = address.prefix
        self._host = f"HTTP/1.1\r\nHost: {address.authority}" + ("\r\nConnection: close" if close else "")
        self._fixed_lines = 3 if close else 2

    def write(self, message: Message, size: int, remaining: float | None) -> bytes:
        """The head of `message`, whose body has `size` bytes and whose deadline, if any, is in `remaining` seconds.

        Raises:
            ValueError: the method, path, query or a header holds a line break, or the path is not an absolute one.
        """
        lines = [self._request_line(message)]
        raw = message.headers.raw if type(message.headers) is Headers else _as_text(message.headers)
        lines += [b"%b: %b" % field for field in raw if field[0] not in _WRITTEN_HERE]
        if size or message.method not in _WITHOUT_BODY:
            lines.append(b"Content-Length: %d" % size)
        if remaining is not None:
            lines.append(b"Request-Timeout: %.3f" % min(max(remaining, _MIN_SECONDS), _MAX_SECONDS))
        lines.append(b"\r\n")
        head = b"\r\n".join(lines)
        ends = len(lines) + self._fixed_lines - 1
        if head.count(b"\n") != ends or head.count(b"\r") != ends:
            raise ValueError(f"a line break inside the method, path or headers of {message.method} {message.path!r}")
        return head

    def _request_line(self, message: Message) -> bytes:
        query = f"?{message.query}" if message.query else ""
        target = f"{self._prefix}{message.path}{query}"
        if " " in target or not target.startswith("/"):
            raise ValueError(f"path {target!r} is not an absolute, percent-encoded path")
        return f"{message.method} {target} {self._host}".encode("ascii")


def _as_text(headers: Headers) -> Sequence[tuple[bytes, bytes]]:
    """The fields of `headers`; binary metadata of gRPC are base64, as on its own wire."""
    if not isinstance(headers, Metadata):
        return headers.raw
    return [(name, base64.b64encode(data) if name.endswith(b"-bin") else data) for name, data in headers.raw]
