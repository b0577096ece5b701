"""The writer for the head of a call, and the reader for the head and the trailers of its reply ("gRPC over HTTP2"). The
code performs no I/O."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import ceil
from urllib.parse import unquote_to_bytes

from gateway.core.errors import DecodeError, Status
from gateway.core.frozen import frozen
from gateway.core.http2 import hpack
from gateway.core.http2.heads import ByName, check_response
from gateway.core.http2.hpack import Field, HeadersTooLargeError, write
from gateway.core.messages import NO_HEADERS, Headers, Metadata
from gateway.core.transport import HOST, FixedFields
from gateway.transports.grpc.metadata import checked, from_text, unarmoured, written

# --- Requests ---

_HOST = HOST.encode()
_METHOD_POST, _SCHEME_HTTP, _SCHEME_HTTPS = b"\x83", b"\x86", b"\x87"  # entries of HPACK's static table

_FIXED = write(
    (
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"grpc-python-modelglot"),
        (b"grpc-accept-encoding", b"identity"),
    )
)

# A timeout has at most eight digits. The writer uses the finest possible unit.
_UNITS = ((1e-6, b"u"), (1e-3, b"m"), (1.0, b"S"), (60.0, b"M"), (3600.0, b"H"))
_MOST = 99_999_999


class RequestHeadWriter:
    """Writes the header blocks of calls to `authority`.

    `secure` is True for calls over TLS. All blocks contain `headers`, which replace a message's headers with the same
    names. A HOST in `headers` replaces `authority`."""

    def __init__(self, authority: str, *, secure: bool = False, headers: FixedFields = ()) -> None:
        self._scheme = _SCHEME_HTTPS if secure else _SCHEME_HTTP
        own = dict(headers)
        self._authority = own.pop(_HOST, authority.encode())
        self._own = write(written(Headers(tuple(own.items()))))
        self._left_out = own.keys()
        # A backend's calls use few methods, and most calls have no metadata.
        self._begin = lru_cache(256)(self._written)

    def write(self, path: str, headers: Headers, timeout: float | None) -> bytes:
        """Return the header block for a call to the method `path` with a limit of `timeout` seconds. The block includes
        the `headers` whose names gRPC does not reserve.

        Raises:
            GatewayError: INVALID_ARGUMENT if gRPC cannot represent the value of a header.
        """
        block = self._begin(path, tuple(headers.raw), isinstance(headers, Metadata))
        if timeout is None:
            return block
        # The timeout is rounded up to tenths, so calls with the same limit have the same head, which servers can cache.
        return block + (_tenths_field(ceil(10 * timeout)) if timeout >= 1 else _timeout_field(timeout))

    def _written(self, path: str, raw: Sequence[Field], is_metadata: bool) -> bytes:
        raw = checked(raw if is_metadata else from_text(raw))
        raw = [field for field in raw if field[0].lower() not in self._left_out]
        addressed = write(((b":path", path.encode()), (b":authority", self._authority)))
        return b"".join((_METHOD_POST, self._scheme, addressed, _FIXED, self._own, write(written(Headers(raw)))))


@lru_cache(4096)
def _tenths_field(tenths: int) -> bytes:
    return _timeout_field(tenths / 10)


def _timeout_field(seconds: float) -> bytes:
    return write(((b"grpc-timeout", _timeout(seconds)),))


def _timeout(seconds: float) -> bytes:
    amounts = ((max(1, int(seconds / unit)), letter) for unit, letter in _UNITS)
    return next((b"%d%b" % (amount, letter) for amount, letter in amounts if amount <= _MOST), b"%dH" % _MOST)


# --- Responses ---

# Without custom metadata, servers write the same two blocks for all successful replies of a method. For both blocks
# together, an LRU cache of recent blocks saves 9 us of the 47 us of CPU time that a small request takes.

_MAX_BLOCKS = 256
_MAX_SIZE = 1024
"""The limits of the LRU cache: the maximum number of blocks, and the maximum size of a block in bytes."""

# These fields belong to gRPC itself. All other fields are the metadata of the reply.
_OWN = frozenset((b"content-type", b"grpc-status", b"grpc-message", b"grpc-encoding", b"grpc-accept-encoding"))
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,2}")


@frozen
class ResponseHead:
    """The fields of one header block.

    - `http_status`: The HTTP status; 0 in blocks without a status, such as trailers.
    - `status`: The gRPC status; None in blocks without a gRPC status, such as the head of a reply with messages.
    - `text`: The error message, usually UTF-8.
    """

    http_status: int = 0
    content_type: bytes = b""
    encoding: bytes = b""
    status: int | None = None
    text: bytes = b""
    metadata: Headers = NO_HEADERS


def read_response(block: bytes, limit: int) -> ResponseHead:
    """Return the ResponseHead for a complete block.

    Raises:
        DecodeError: the block violates HTTP/2 or gRPC.
        HeadersTooLargeError: the fields of the block have more than `limit` bytes.
    """
    return _read_short(block, limit) if len(block) <= _MAX_SIZE else _read(block, limit)


def _read(block: bytes, limit: int) -> ResponseHead:
    fields = hpack.read(block, limit)
    by_name = check_response(fields)
    status = by_name.get(b"grpc-status")
    return ResponseHead(
        _http_status(by_name),
        by_name.get(b"content-type", b""),
        by_name.get(b"grpc-encoding", b""),
        None if status is None else _status(status),
        unquote_to_bytes(by_name.get(b"grpc-message", b"")),
        Headers(list(_metadata(fields))),
    )


_read_short = lru_cache(_MAX_BLOCKS)(_read)


def plain_end(head: bytes, trailers: bytes, limit: int) -> ResponseHead | None:
    """Return the ResponseHead for `trailers`, if `trailers` contains the status OK and `head` comes from a gRPC server.

    Return None in all other cases. The caller must then read each block separately."""
    if len(head) > _MAX_SIZE or len(trailers) > _MAX_SIZE:
        return None
    try:
        begin, end = _read_short(head, limit), _read_short(trailers, limit)
    except (DecodeError, HeadersTooLargeError):
        return None
    is_grpc = begin.http_status == 200 and begin.content_type.startswith(b"application/grpc")
    return end if is_grpc and end.status == 0 and not end.http_status else None


def _http_status(by_name: ByName) -> int:
    text = by_name.get(b":status", b"0")
    if not _NUMBER.fullmatch(text):
        raise DecodeError(f"a head has the HTTP status {text[:20]!r}")
    return int(text)


def _status(text: bytes) -> int:
    """Return the gRPC status, or UNKNOWN for a code that gRPC does not define."""
    return int(text) if _NUMBER.fullmatch(text) and int(text) in _STATUSES else Status.UNKNOWN


_STATUSES = frozenset(Status)


def _metadata(fields: list[hpack.Field]) -> Iterator[tuple[bytes, bytes]]:
    for name, text in fields:
        if name in _OWN or name.startswith(b":"):
            continue
        if not name.endswith(b"-bin"):
            yield name, text
            continue
        yield from unarmoured(name, text)
