"""Header blocks of replies, as defined in "gRPC over HTTP/2", section Responses. The code performs no I/O."""

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from gateway.core.errors import Status
from gateway.core.http2.hpack import Field, write, write_repeated
from gateway.core.messages import Headers, Message
from gateway.core.record import Record
from gateway.transports.grpc.metadata import written
from gateway.transports.grpc.server.heads import RequestFault

_STATUS_200 = b"\x88"
"""The encoded field `:status: 200`, which is one byte because the field is in HPACK's static table."""

HEAD = _STATUS_200 + write(
    ((b"content-type", b"application/grpc"), (b"grpc-accept-encoding", b"identity, deflate, gzip"))
)
"""The head of all replies, except replies that consist only of an error."""

_PLAIN_END = write(((b"grpc-status", b"0"),))

# "Percent-Byte-Unencoded": printable ASCII except the percent sign.
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")

_KNOWN = frozenset(Status)


def trailers(reply: Message) -> bytes:
    """Return the header block that ends a call. The block contains the status of `reply` and the headers that gRPC can
    represent. If the status is not 0, the block also contains the body as the error message."""
    if not reply.status:
        raw = reply.headers.raw
        return _ended_well(tuple(raw)) if raw else _PLAIN_END
    # gRPC clients accept only defined numbers.
    status = reply.status if reply.status in _KNOWN else Status.UNKNOWN
    return _fields(status, bytes(reply.body).decode("utf-8", "replace"), written(reply.headers))


def more_trailers(record: Record) -> bytes:
    """Return the fields that the request's record adds to the trailers."""
    return write_repeated(record.reply_fields()) if record.tells else b""


def status_block(status: Status, text: str) -> bytes:
    """Return the header block that ends a call with an error that the listener itself reports."""
    return _fields(status, text, ())


def fault_block(fault: RequestFault) -> bytes:
    """Return a complete reply without a body, for a request that is not gRPC."""
    allow: tuple[Field, ...] = ((b"allow", b"POST"),) if fault.http_status == 405 else ()
    told = ((b":status", b"%d" % fault.http_status), *allow, (b"grpc-status", b"%d" % Status.INTERNAL))
    return write((*told, (b"grpc-message", _quoted(fault.text))))


@lru_cache(256)
def _ended_well(raw: tuple[Field, ...]) -> bytes:
    return write(((b"grpc-status", b"0"), *written(Headers(raw))))


def _fields(status: int, text: str, metadata: Iterable[Field]) -> bytes:
    message = ((b"grpc-message", _quoted(text)),) if text else ()
    return write(((b"grpc-status", b"%d" % status), *message, *metadata))


def _quoted(text: str) -> bytes:
    return quote(text, safe=_PLAIN, errors="replace").encode()
