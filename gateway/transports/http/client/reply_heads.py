"""A cache for the heads of an endpoint's replies, in which `reply` looks up the beginning of each reply. The code
performs no I/O.

Endpoints often send the same head repeatedly. Only the Content-Length differs, and once a second, the Date.
"""

import re

from msgspec import Struct

from gateway.core.messages import Headers

_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = re.compile(rb"(\r\ncontent-length: )[0-9]+\r\n", re.IGNORECASE)
_MOST_DIGITS = 15

# The number and the size (in bytes) of cached heads are limited, because endpoints choose the heads.
MOST_HEADS = 64
LARGEST_HEAD = 1024


class ReplyHead(Struct, frozen=True):
    """The head of a reply with a Content-Length.

    `size` is the size of the head in bytes, and `whole` is the size of the entire reply. `coding` is the
    Content-Encoding."""

    headers: Headers
    status: int
    size: int
    whole: int
    coding: bytes | None
    keep_alive: bool


class ReplyHeadCache:
    """The heads of one endpoint's replies that the parser has accepted.

    The key of a head consists of all its bytes, except the digits of the Content-Length. For equal keys, the parser's
    results are equal."""

    def __init__(self) -> None:
        self._known: dict[bytes, ReplyHead] = {}
        self._length_spelling = b"\r\nContent-Length: "
        """The beginning of the line with the Content-Length, in the spelling of the head that was added last. `find`
        does not find heads with another spelling, which is rare: an endpoint has one spelling."""
        # The head that was found last. The next head is often the same, and a comparison costs a third of a lookup.
        self._last_bytes = _END_OF_HEAD  # no reply begins with it, so `find` does not return `_last` before it is set
        self._last: ReplyHead | None = None

    def __len__(self) -> int:
        return len(self._known)

    def find(self, data: bytes) -> ReplyHead | None:
        """Return the head at the beginning of `data`, or None if it is unknown."""
        # A head ends at its first empty line, so if data begins with all bytes of a head, it begins with this head.
        if data.startswith(self._last_bytes):
            return self._last
        end_of_fields = data.find(_END_OF_HEAD, 0, LARGEST_HEAD)
        line = data.find(self._length_spelling, 0, end_of_fields + 2) if end_of_fields > 0 else -1
        if line < 0:
            return None
        size, begin = end_of_fields + len(_END_OF_HEAD), line + len(self._length_spelling)
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
        If the cache contains too many heads, the method removes the oldest head."""
        size = head.size
        if size > LARGEST_HEAD or data.find(_END_OF_HEAD) != size - len(_END_OF_HEAD):
            return
        length = _LENGTH.search(data, 0, size)
        if length is None:
            return
        if len(self._known) >= MOST_HEADS:
            del self._known[next(iter(self._known))]
        self._length_spelling = length[1]
        self._known[data[: length.end(1)] + data[length.end() - 2 : size]] = head
