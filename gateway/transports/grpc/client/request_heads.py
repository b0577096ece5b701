"""Writes the head of a call, as defined in "gRPC over HTTP2", section Requests. The code is pure."""

from collections.abc import Sequence
from functools import lru_cache
from math import ceil

from gateway.core.http2.hpack import Field, write
from gateway.core.messages import Headers, Metadata
from gateway.core.transport import HOST, FixedFields
from gateway.transports.grpc.metadata import checked, from_text, written

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

    `secure` is True for calls over TLS. All blocks contain `headers`, which replace a message's headers of the same
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
        """Return the header block for a call of the method `path` with a limit of `timeout` seconds. It includes the
        `headers` that are not reserved for gRPC.

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
