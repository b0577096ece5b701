"""The writer for request heads, which `connector` uses. The code performs no I/O."""

import base64
from collections.abc import Sequence
from functools import lru_cache
from math import ceil

from gateway.core.messages import Headers, Message, Metadata
from gateway.core.transport import HOST, FixedFields
from gateway.transports.http.address import HttpAddress

# The connector itself writes the fields that delimit the message or belong to one connection (RFC 9110, section 7.6.1).
# If a request contained one of these fields twice, a client could smuggle requests.
_WRITTEN_HERE = frozenset(
    (
        b"connection", b"content-length", b"expect", b"host", b"keep-alive", b"proxy-connection", b"request-timeout",
        b"te", b"trailer", b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip
_WITHOUT_BODY = ("GET", "HEAD")
WITH_BODY = frozenset(("POST", "PUT", "PATCH"))
"""The methods for which RFC 9110 defines a request body.

With other methods, a body has no generally defined meaning (section 9.3), and some servers do not read the body.
"""

# The range of Request-Timeout that all servers accept, including other gateways: above zero, and up to nine digits.
_MIN_SECONDS, _MAX_SECONDS = 0.001, 999_999_999.0

_FIELD = b"%b: %b\r\n"
_LINE = b"%b: %b".__mod__
_HOST = HOST.encode()


class HeadWriter:
    """Writes the heads of requests to one address.

    If `close` is True, the heads ask the endpoint to close the connection after the reply.

    All heads contain `headers`, which replace a message's headers with the same names. The heads do not request a
    Content-Encoding, because compression costs more than it saves for a model server on the same machine or network."""

    def __init__(self, address: HttpAddress, *, close: bool, headers: FixedFields = ()) -> None:
        self._prefix = address.prefix
        host = dict(headers).get(_HOST, address.authority.encode())
        own = [field for field in headers if field[0] not in _WRITTEN_HERE]
        lines = [b"HTTP/1.1", b"Host: " + host, *([b"Connection: close"] if close else []), *map(_LINE, own)]
        self._host = b"\r\n".join(lines).decode("ascii")
        self._fixed_lines = len(lines)
        self._left_out = _WRITTEN_HERE.union(name for name, _ in own)
        # Most requests to an address have one of a few paths, and the same headers.
        self._first_lines = lru_cache(64)(self._write_first_lines)

    def write(self, message: Message, size: int, remaining: float | None) -> bytes:
        """Return the head of `message`, whose body has `size` bytes and whose deadline is in `remaining` seconds (None
        for no deadline).

        Raises:
            ValueError: the method, path, query or a header contains a line break, or the path is not absolute.
        """
        method, headers = message.method, message.headers
        raw = headers.raw if type(headers) is Headers else _as_text(headers)
        first = self._first_lines(method, message.path, message.query, tuple(raw))
        length = _length_line(size) if size or method not in _WITHOUT_BODY else b""
        for field in message.further:
            length += _FIELD % field
        if remaining is None:
            return first + length + b"\r\n"
        # The timeout is rounded up to tenths, so calls with the same limit have the same head, which servers can cache.
        seconds = ceil(10 * remaining) / 10 if remaining >= 1 else max(remaining, _MIN_SECONDS)
        return b"%b%b%b\r\n" % (first, length, _timeout_line(seconds))

    def _write_first_lines(self, method: str, path: str, query: str, raw: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Return the request line, `Host`, `Connection`, and the headers `raw`. Raises the same errors as `write`."""
        lines = [self._request_line(method, path, query)]
        lines += [b"%b: %b" % field for field in raw if field[0].lower() not in self._left_out]
        lines.append(b"")
        head = b"\r\n".join(lines)
        ends = len(lines) + self._fixed_lines - 2
        if head.count(b"\n") != ends or head.count(b"\r") != ends:
            raise ValueError(f"a line break inside the method, path or headers of {method} {path!r}")
        return head

    def _request_line(self, method: str, path: str, query: str) -> bytes:
        target = f"{self._prefix}{path}?{query}" if query else f"{self._prefix}{path}"
        if " " in target or not target.startswith("/"):
            raise ValueError(f"path {target!r} is not an absolute, percent-encoded path")
        return f"{method} {target} {self._host}".encode("ascii")


@lru_cache(1024)
def _length_line(size: int) -> bytes:
    """Return the Content-Length line. The result is cached, because a model's requests usually have only a few
    different sizes."""
    return b"Content-Length: %d\r\n" % size


@lru_cache(256)
def _timeout_line(seconds: float) -> bytes:
    """Return the timeout line. The result is cached, because a model's calls usually have the same time limit and are
    sent immediately."""
    return b"Request-Timeout: %.3f\r\n" % min(seconds, _MAX_SECONDS)


def _as_text(headers: Headers) -> Sequence[tuple[bytes, bytes]]:
    """Return the fields of `headers`. Binary gRPC metadata is encoded in base64, as in the gRPC wire format."""
    if not isinstance(headers, Metadata):
        return headers.raw
    return [(name, base64.b64encode(data) if name.endswith(b"-bin") else data) for name, data in headers.raw]
