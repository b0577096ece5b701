"""Heads of earlier replies: an endpoint sends the same head again and again, with another Content-Length each time, and
another Date once a second."""

import re

from msgspec import Struct

from gateway.core.types import Headers

_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = re.compile(rb"(\r\ncontent-length: )[0-9]+\r\n", re.IGNORECASE)
_MOST_DIGITS = 15

# Endpoints choose the heads, so they are bounded in number and in size (bytes).
MOST_HEADS = 64
LARGEST_HEAD = 1024


class ReplyHead(Struct, frozen=True):
    """The head of a reply with a Content-Length. `size` is that of the head in bytes, `whole` that of the
    reply; `coding` is the Content-Encoding."""

    headers: Headers
    status: int
    size: int
    whole: int
    coding: bytes | None
    keep_alive: bool


class ReplyHeads:
    """The heads of one endpoint's replies that the parser has accepted. A head is looked up by all its bytes but the
    digits of its Content-Length: from the others the parser would read the same again."""

    def __init__(self) -> None:
        self._known: dict[bytes, ReplyHead] = {}
        self._length_line = b"\r\nContent-Length: "
        """The begin of the line with the Content-Length, as the endpoint writes it."""
        # The head that was found last, because the next one is often the same: comparing costs a third of finding it.
        self._last_bytes = _END_OF_HEAD
        self._last: ReplyHead | None = None

    def __len__(self) -> int:
        return len(self._known)

    def find(self, data: bytes) -> ReplyHead | None:
        """The head that `data` begins with; None if it is not known."""
        # A head ends at its first empty line, so data that begin with all bytes of a head begin with this head.
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
        """Remember `head`, which the parser has read from the beginning of `data`. `data` is the whole reply.

        A head is remembered only if it ends at the first empty line, so that what was read before that line was this
        head alone, without an interim reply. The one that was added first makes room for it.
        """
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
