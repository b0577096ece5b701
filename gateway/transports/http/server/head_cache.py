"""Parsed heads of earlier requests: a client sends the same head again and again, with another Content-Length at most,
and with another id of the request or of its trace."""

import re
from functools import lru_cache

from gateway.core.errors import GatewayError
from gateway.core.patterns import PathTable
from gateway.core.protocol import Limits
from gateway.core.types import Headers
from gateway.transports.http.server.dispatch import Dispatch
from gateway.transports.http.server.request_head import END_OF_HEAD, HeadReader, RequestHead
from gateway.transports.memory import MIN_COUNTED

# Clients choose the heads, so the cache is bounded in number and in size (bytes).
_MAX_HEADS = 4096
_MAX_SIZE = 1024

_MAX_HEADERS = 256
"""Sets of headers that heads share. A client sends the same ones to each of many paths, and what all requests use stays
in the processor's caches."""

_END = len(END_OF_HEAD)

_ID_LINE = re.compile(rb"\r\n([Tt]raceparent|[Xx]-[Rr]equest-[Ii][Dd]): ([!-~]+)(?=\r\n)")
"""A header whose value differs in each request. Its value has only characters that are valid in every header (RFC 9110,
section 5.5), so the head is valid with this line if it is valid without it, and says the same otherwise."""
_PIECES = 3
"""Of a head that is split at such lines: text, and of each line its name, its value, and the text behind it."""

CachedHead = tuple[RequestHead, Dispatch, int, int]
"""A head, its dispatch, its size, and the size of the whole request in bytes if that `is_simple`, else 0."""


class HeadCache:
    """The heads that one listener has parsed and found without fault. Parsing one anew costs 5 us, half of a small
    request. Heads with ids are kept without them."""

    def __init__(self, table: PathTable, limits: Limits) -> None:
        self._table = table
        self._limits = limits
        self._parsed: dict[bytes, CachedHead | None] = {}
        """None for heads with a fault, which is found again and reported when the head is received by its parts."""
        self._shared = lru_cache(_MAX_HEADERS)(_same)
        # The head that was found last, because the next one is often the same: comparing costs a fifth of finding it.
        self._last_bytes = END_OF_HEAD
        self._last: CachedHead | None = None

    def __len__(self) -> int:
        return len(self._parsed)

    def find(self, data: bytes, at: int) -> CachedHead | None:
        """The head that starts at `at`; None if it is incomplete, longer than 1 KiB, or has a fault."""
        # A head ends at its first empty line, so data that begin with all bytes of a head begin with this head.
        if data.startswith(self._last_bytes, at):
            return self._last
        end = data.find(END_OF_HEAD, at, at + _MAX_SIZE)
        if end < 0:
            return None
        raw = data[at : end + _END]
        found = self._parsed.get(raw)
        if found is None:
            pieces = _ID_LINE.split(raw)
            if len(pieces) > 1:
                return self._with_ids(raw, pieces)
            found = self._remembered(raw)
        self._last_bytes, self._last = raw, found
        return found

    def _with_ids(self, raw: bytes, pieces: list[bytes]) -> CachedHead | None:
        """The head `raw`, split at its lines with ids."""
        without = b"".join(pieces[::_PIECES])
        found = self._remembered(without)
        names = [name.lower() for name in pieces[1::_PIECES]]
        if found is None or len(raw) > self._limits.headers:
            return None
        head, dispatch, size, whole = found
        if len(set(names)) < len(names) or not head.fields.keys().isdisjoint(names):
            return None  # several ids: their order is that of their lines
        more = len(raw) - len(without)
        head = head.with_fields(zip(names, pieces[2::_PIECES], strict=True))
        return head, dispatch, size + more, whole + more if whole else 0

    def _remembered(self, raw: bytes) -> CachedHead | None:
        """The result of `_parse` for `raw`. The head that was parsed first makes room for another."""
        parsed = self._parsed
        if raw in parsed:
            return parsed[raw]
        if len(parsed) >= _MAX_HEADS:
            del parsed[next(iter(parsed))]
        found = parsed[raw] = self._parse(raw)
        return found

    def _parse(self, raw: bytes) -> CachedHead | None:
        reader = HeadReader(self._limits.headers)
        try:
            if reader.feed(raw, 0) != len(raw) or not reader.complete:
                return None
            head = RequestHead(reader)
            head.check()
        except GatewayError:
            return None
        finally:
            reader.stop()
        head.headers = self._shared(head.headers)
        dispatch = Dispatch(head, self._table)
        if dispatch.refused is not None:
            return None
        return head, dispatch, len(raw), len(raw) + (head.length or 0) if self.is_simple(head, dispatch) else 0

    def is_simple(self, head: RequestHead, dispatch: Dispatch) -> bool:
        """Whether a request with this head can be answered as soon as its bytes are there: its body has a known size
        within the limits, is too small to be counted in Memory, and nothing is said or checked before it is
        received."""
        length = head.length
        if length is None or dispatch.admits_first:  # also of every client that waits for 100 Continue
            return False
        return length <= self._limits.message and length < MIN_COUNTED


def _same(headers: Headers) -> Headers:
    return headers
