"""Header blocks of replies, "gRPC over HTTP/2", section Responses. Pure."""

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from gateway.core.errors import Status
from gateway.core.types import Headers, Message
from gateway.http2.hpack import Field, write
from gateway.transports.grpc.metadata import written
from gateway.transports.grpc.server.heads import RequestFault

_STATUS_200 = b"\x88"
"""HPACK's static table has it."""

HEAD = _STATUS_200 + write(
    ((b"content-type", b"application/grpc"), (b"grpc-accept-encoding", b"identity, deflate, gzip"))
)
"""The head of every reply that is not an error alone."""

# "Percent-Byte-Unencoded": printable ASCII but the percent sign.
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")

_KNOWN = frozenset(Status)


def trailers(reply: Message) -> bytes:
    """The block that ends a call: the status of `reply`, which its body tells in words if it is not 0, and its headers
    that gRPC can carry."""
    if not reply.status:
        return _ended_well(tuple(reply.headers.raw))
    # A status that gRPC does not have is UNKNOWN to it.
    status = reply.status if reply.status in _KNOWN else Status.UNKNOWN
    return _fields(status, bytes(reply.body).decode("utf-8", "replace"), written(reply.headers))


def status_block(status: Status, text: str) -> bytes:
    """The same for an error of the listener's own."""
    return _fields(status, text, ())


def fault_block(fault: RequestFault) -> bytes:
    """A whole reply to a client that does not speak gRPC, without a body."""
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
