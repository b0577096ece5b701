"""Accept a client's request id, or create a new one."""

import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain, count

from gateway.core.record import ID_HEADER, TRACE_HEADER

ID, TRACE = ID_HEADER.encode(), TRACE_HEADER.encode()

_SANE = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
"""The pattern of accepted ids: UUIDs, ULIDs, base64 and proxies' ids use only these characters. The gateway copies
accepted ids into logs and headers unchanged."""

# W3C Trace Context, section 3.2: version, trace id, parent id, flags. Later versions can contain more after the flags.
_TRACEPARENT = re.compile(
    rb"(?!ff|00-.{53})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]*)?"
)

_LONGEST_TRACE = 512
"""Maximum size of a `traceparent` in bytes; version 00 has 55. The value stays in memory with the record."""

_LAST_DIGITS = tuple(f"{number:02x}" for number in range(256))


def accepted_id(headers: Mapping[bytes, bytes]) -> tuple[str, bytes]:
    """Return the client's request id and the value of TRACE_HEADER. The id is a valid id in ID_HEADER, otherwise the
    trace id in TRACE_HEADER, otherwise empty. The value of TRACE_HEADER is empty if it is invalid."""
    given, trace = headers.get(ID), headers.get(TRACE)
    accepted = given.decode() if given is not None and _SANE.fullmatch(given) else ""
    if trace is None or len(trace) > _LONGEST_TRACE or (found := _TRACEPARENT.fullmatch(trace)) is None:
        return accepted, b""
    return accepted or found[1].decode(), trace


def _blocks_of_ids() -> Iterator[Iterator[str]]:
    prefix = os.urandom(8).hex()
    for number in count(int.from_bytes(os.urandom(2))):
        block = f"{prefix}{number:06x}"
        yield iter([block + last for last in _LAST_DIGITS])


new_id = chain.from_iterable(_blocks_of_ids()).__next__
"""A function that creates a new id: 24 hexadecimal digits, of which the first 16 are the same for all ids of this
process."""
