"""The headers that `exchange` and `streaming` add to each request to a backend. These are the client headers in
`forward_headers`, the request id, and the number of gateways that the request has passed.

The number of gateways stops routing loops: a route can lead to its own listener, directly or through another gateway.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from gateway.core.errors import Reason, invalid_input, refusal
from gateway.core.frozen import set_field
from gateway.core.messages import Headers, Message, Metadata
from gateway.core.protocol import Target
from gateway.core.record import ID_HEADER, TRACE_HEADER, Record
from gateway.core.requests import Request
from gateway.core.spans import TRACE_HEADERS
from gateway.core.transport import FixedFields

HOPS = "gateway-hops"
MOST_HOPS = 8
"""Maximum number of gateways that one request can pass."""

_HOPS = HOPS.encode()
_IDS = (ID_HEADER, TRACE_HEADER)
_FIRST = (_HOPS, b"1")

# the characters that RFC 9110 section 5.5 forbids in a field value
_CONTROL = re.compile("[\0-\x08\x0a-\x1f\x7f]")


def add_forwarded_headers(request: Request, message: Message, target: Target) -> None:
    """Add the headers for `target` to `message`, which has been encoded for this target.

    Raises:
        GatewayError: INVALID_ARGUMENT if a header to forward is not text; FAILED_PRECONDITION if the request has
            already passed MOST_HOPS gateways.
    """
    record, received = request.record, request.headers
    if target.forward_headers or _HOPS in received.first:
        headers = _with_forwarded(message.headers, request, target)
    else:
        headers = _with_first(tuple(message.headers.raw), target.own_headers)
    set_field(message, "headers", headers)
    if record.of_listener.forwards:
        set_field(message, "further", record.forwarded_fields(request.span))


@lru_cache(256)
def _with_first(own: FixedFields, added: FixedFields) -> Headers:
    """Return the headers of a request that passes its first gateway. The result is cached, because codecs write few
    different sets of headers (`own`)."""
    return Headers((*own, _FIRST, *added))


def _with_forwarded(own: Headers, request: Request, target: Target) -> Headers:
    """Return the protocol's own headers (`own`), the header with the number of gateways, and the client headers to
    forward to `target`."""
    received, forwarded = request.headers, target.forward_headers
    passed = received.first.get(_HOPS)
    raw = [*own.raw, _FIRST if passed is None else _next_hop(passed, target), *target.own_headers]
    if not forwarded:
        return Headers(raw)
    forwarded = _without_ids(forwarded, request.record)
    is_metadata = isinstance(received, Metadata)
    raw += _forwarded(received, forwarded, is_metadata)
    return Metadata(raw) if is_metadata else Headers(raw)


def _without_ids(names: tuple[str, ...], record: Record) -> tuple[str, ...]:
    """Return the names of the client headers to forward, except headers whose values come from the record."""
    if record.telling.forwards and record.id:
        names = tuple(name for name in names if name not in _IDS)
    if record.context is not None:
        names = tuple(name for name in names if name not in TRACE_HEADERS)
    return names


def _forwarded(received: Headers, names: tuple[str, ...], is_metadata: bool) -> Iterator[tuple[bytes, bytes]]:
    for name in names:
        wanted, is_text = name.encode(), not (is_metadata and name.endswith("-bin"))
        for key, text in received.raw:
            if key == wanted:
                if is_text:
                    _check(name, text)
                yield wanted, text


def _check(name: str, text: bytes) -> None:
    try:
        is_wrong = _CONTROL.search(text.decode()) is not None
    except UnicodeDecodeError:
        is_wrong = True
    if is_wrong:
        raise invalid_input(
            f"header {name!r} cannot be forwarded: its value is not UTF-8 text without control characters; change it"
        )


def _next_hop(text: bytes, target: Target) -> tuple[bytes, bytes]:
    """Return the header with the number of gateways passed, including this gateway. `text` is the value that arrived
    with the request."""
    passed = int(text) if text.isdigit() and len(text) < 4 else MOST_HOPS
    if passed >= MOST_HOPS:
        raise refusal(
            Reason.FAILED_PRECONDITION,
            f"the request has passed {MOST_HOPS} gateways ({HOPS}), the last one to backend {target.backend!r} at "
            f"{target.address}: a route leads back to a previous gateway; correct its backend",
        )
    return _HOPS, b"%d" % (passed + 1)
