"""The head of a request to an endpoint."""

import base64
from collections.abc import Sequence

from gateway.core.types import Headers, Message, Metadata
from gateway.transports.http.address import Address

# Framing and hop-by-hop fields (RFC 9110 section 7.6.1) are the connection's own: a second one smuggles requests.
_OWN = frozenset(
    (
        b"connection", b"content-length", b"expect", b"host", b"keep-alive", b"proxy-connection", b"request-timeout",
        b"te", b"trailer", b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip
_WITHOUT_BODY = ("GET", "HEAD")

# What every reader of Request-Timeout takes, other gateways among them: more than nothing, and nine digits.
_LEAST_SECONDS, _MOST_SECONDS = 0.001, 999_999_999.0


class HeadWriter:
    """Writes the heads of requests to one address. It asks for no Content-Encoding: compressing a reply would cost a
    model server on the same machine or network more than it saves."""

    def __init__(self, address: Address, *, close: bool) -> None:
        self._prefix = address.prefix
        self._host = f"HTTP/1.1\r\nHost: {address.authority}" + ("\r\nConnection: close" if close else "")
        self._fixed_lines = 3 if close else 2

    def write(self, message: Message, size: int, remaining: float | None) -> bytes:
        """The head of `message` with `size` bytes of body and, where there is a deadline, `remaining` seconds.

        Raises:
            ValueError: the method, path, query or a header would break the head apart.
        """
        lines = [self._request_line(message)]
        raw = message.headers.raw if type(message.headers) is Headers else _as_text(message.headers)
        lines += [b"%b: %b" % field for field in raw if field[0] not in _OWN]
        if size or message.method not in _WITHOUT_BODY:
            lines.append(b"Content-Length: %d" % size)
        if remaining is not None:
            lines.append(b"Request-Timeout: %.3f" % min(max(remaining, _LEAST_SECONDS), _MOST_SECONDS))
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
    """Binary metadata are base64 in HTTP, as they are on gRPC's own wire."""
    if not isinstance(headers, Metadata):
        return headers.raw
    return [(name, base64.b64encode(data) if name.endswith(b"-bin") else data) for name, data in headers.raw]
