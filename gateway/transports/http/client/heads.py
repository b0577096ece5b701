"""The heads of HTTP/1.1 messages, client side: writes the heads of requests to an endpoint, and caches the heads of its
replies. The code is pure.
"""

import base64
import re
from collections.abc import Sequence
from functools import lru_cache
from math import ceil

from msgspec import Struct

from gateway.core.messages import Headers, Message, Metadata
from gateway.core.transport import HOST, FixedFields
from gateway.transports.http.address import HttpAddress

# The connector itself writes the fields that delimit the message or belong to one connection (RFC 9110, section 7.6.1).
# If a request contained such a field twice, a client could smuggle requests.
_WRITTEN_HERE = frozenset(
    (
        b"connection", b"content-length", b"expect", b"host", b"keep-alive", b"proxy-connection", b"request-timeout",
        b"te", b"trailer", b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip
_WITHOUT_BODY = ("GET", "HEAD")
WITH_BODY = frozenset(("POST", "PUT", "PATCH"))
"""The methods for which RFC 9110 defines a request body.

With other methods, a body has no generally defined meaning (section 9.3), and some servers do not read it.
"""

# The range of Request-Timeout that all servers accept, including other gateways: above zero, and up to nine digits.
_MIN_SECONDS, _MAX_SECONDS = 0.001, 999_999_999.0

_FIELD = b"%b: %b\r\n"
_LINE = b"%b: %b".__mod__
_HOST = HOST.encode()


class HeadWriter:
    """Writes the heads of requests to one address.

    If `close` is True, the heads ask the endpoint to close the connection after its reply.

    All heads contain `headers`, which replace a message's headers of the same names. The heads do not request a
    Content-Encoding: for a model server on the same machine or network, compression costs more than it saves."""

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
        means no deadline).

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
        """Return the request line, `Host`, `Connection`, and the headers `raw`. Raises the errors of `write`."""
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
    """Return the Content-Length line. The result is cached because a model's requests usually have few different
    sizes."""
    return b"Content-Length: %d\r\n" % size


@lru_cache(256)
def _timeout_line(seconds: float) -> bytes:
    """Return the timeout line. The result is cached because a model's calls usually have the same time limit and are
    sent immediately."""
    return b"Request-Timeout: %.3f\r\n" % min(seconds, _MAX_SECONDS)


def _as_text(headers: Headers) -> Sequence[tuple[bytes, bytes]]:
    """Return the fields of `headers`. Binary gRPC metadata is base64-encoded, as in the gRPC wire format."""
    if not isinstance(headers, Metadata):
        return headers.raw
    return [(name, base64.b64encode(data) if name.endswith(b"-bin") else data) for name, data in headers.raw]


# --- Replies ---

# An endpoint often sends the same head: only the Content-Length differs, and the Date once a second.

_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = re.compile(rb"(\r\ncontent-length: )[0-9]+\r\n", re.IGNORECASE)
_MOST_DIGITS = 15

# The number and the size (in bytes) of cached heads are limited, because endpoints choose the heads.
MOST_HEADS = 64
LARGEST_HEAD = 1024


class ReplyHead(Struct, frozen=True):
    """The head of a reply with a Content-Length.

    `size` is the size of the head in bytes, and `whole` the size of the whole reply. `coding` is the
    Content-Encoding."""

    headers: Headers
    status: int
    size: int
    whole: int
    coding: bytes | None
    keep_alive: bool


class ReplyHeads:
    """The heads of one endpoint's replies, as far as the parser has accepted them.

    The key of a head consists of all its bytes except the digits of the Content-Length. For the same key, the parser's
    result is the same."""

    def __init__(self) -> None:
        self._known: dict[bytes, ReplyHead] = {}
        self._length_line = b"\r\nContent-Length: "
        """The beginning of the line with the Content-Length, in the endpoint's spelling."""
        # The head that was last found. The next head is often the same, and a comparison costs a third of a lookup.
        self._last_bytes = _END_OF_HEAD
        self._last: ReplyHead | None = None

    def __len__(self) -> int:
        return len(self._known)

    def find(self, data: bytes) -> ReplyHead | None:
        """Return the head at the beginning of `data`, or None if it is unknown."""
        # A head ends at its first empty line, so if data begins with all bytes of a head, it begins with this head.
        if data.startswith(self._last_bytes):
            return self._last
        end_of_fields = data.find(_END_OF_HEAD, 0, LARGEST_HEAD)
        line = data.find(self._length_line, 0, end_of_fields + 2) if end_of_fields > 0 else -1
        if line < 0:
            return None
        size, begin = end_of_fields + len(_END_OF_HEAD), line + len(self._length_line)
        end = data.find(b"\r", begin)
        digits = data[begin:end]
        known = self._known.get(data[:begin] + data[end:size])
        if known is None or not digits.isdigit() or len(digits) > _MOST_DIGITS:
            return None
        headers = Headers([each if each[0] != b"content-length" else (each[0], digits) for each in known.headers.raw])
        found = ReplyHead(headers, known.status, size, size + int(digits), known.coding, known.keep_alive)
        self._last_bytes, self._last = data[:size], found
        return found

    def add(self, data: bytes, head: ReplyHead) -> None:
        """Add `head`, which the parser has read from the beginning of the complete reply `data`.

        The method adds only heads that end at the first empty line, so the cached bytes never include an interim reply.
        If there are too many heads, it removes the oldest one."""
        size = head.size
        if size > LARGEST_HEAD or data.find(_END_OF_HEAD) != size - len(_END_OF_HEAD):
            return
        length = _LENGTH.search(data, 0, size)
        if length is None:
            return
        if len(self._known) >= MOST_HEADS:
            del self._known[next(iter(self._known))]
        self._length_line = length[1]
        self._known[data[: length.end(1)] + data[length.end() - 2 : size]] = head
