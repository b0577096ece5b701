"""Heads that were read before: clients send the same bytes again and again, but for the Content-Length."""

from functools import lru_cache

from gateway.core.errors import GatewayError
from gateway.core.patterns import PathTable
from gateway.transports.http.server.dispatch import Admission
from gateway.transports.http.server.reading import END, HeadReader
from gateway.transports.http.server.request_head import Head

# Heads are the clients' choice, so what is remembered of them is bounded in number and in size (bytes).
_REMEMBERED_HEADS = 512
_REMEMBERED_SIZE = 1024

Known = tuple[Head, Admission, int]
"""A head, what the listener has for it, and its size in bytes."""


class KnownHeads:
    """What the faultless heads of one listener said. Reading one anew costs 5 us, half of a small request."""

    def __init__(self, table: PathTable, limit: int) -> None:
        self._table = table
        self._limit = limit
        self._recall = lru_cache(_REMEMBERED_HEADS)(self._read)

    def find(self, data: bytes, at: int) -> Known | None:
        """The head that starts at `at`, if it is whole, not long, and has no fault."""
        end = data.find(END, at, at + _REMEMBERED_SIZE)
        return None if end < 0 else self._recall(data[at : end + len(END)])

    def _read(self, raw: bytes) -> Known | None:
        reader = HeadReader(self._limit)
        try:
            if reader.feed(raw, 0) != len(raw) or not reader.complete:
                return None
            head = Head(reader)
            head.check()
        except GatewayError:
            return None
        finally:
            reader.stop()
        admission = Admission(head, self._table)
        return None if admission.refused is not None else (head, admission, len(raw))
