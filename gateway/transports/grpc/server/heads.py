"""The head of a request, as defined in "gRPC over HTTP/2", section Requests. The code performs no I/O."""

import re
from collections.abc import Iterable

from gateway.core.errors import DecodeError, Status
from gateway.core.frozen import frozen
from gateway.core.http2.heads import ByName, RequestHeads
from gateway.core.http2.hpack import Field
from gateway.core.messages import NO_HEADERS, Headers, Metadata
from gateway.transports.grpc.inflating import ENCODINGS
from gateway.transports.grpc.metadata import unarmoured
from gateway.transports.memory import FIELD_BYTES

# These fields belong to the transport, and are not metadata of the call.
_OWN = frozenset(
    (b"te", b"content-type", b"content-length", b"host", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding")
)
_TEXT = re.compile(rb"[ -~]*")
_CONTENT_TYPE = re.compile(rb"application/grpc(?:[+;].*)?", re.IGNORECASE)

_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


@frozen
class RequestFault:
    """The reason to reject a request because of its head. The reply has a gRPC status, or an HTTP status if the client
    does not use gRPC."""

    text: str
    status: Status = Status.OK
    http_status: int = 200


@frozen
class CallHead:
    """The head of a client's request.

    `timeout` is in seconds. `encoding` is the encoding of compressed messages, or empty. `metadata` contains the call's
    own metadata, with decoded binary values. `size` is the size of the metadata in memory, in bytes."""

    path: bytes = b""
    timeout: float | None = None
    encoding: bytes = b""
    metadata: Headers = NO_HEADERS
    fault: RequestFault | None = None
    size: int = 0


def request_heads(limit: int) -> RequestHeads[CallHead]:
    """Return the RequestHeads for requests with at most `limit` bytes of metadata (`limits.headers`)."""
    text = f"the request's metadata have more than {limit} bytes (limits.headers); send less, or raise the limit"
    return RequestHeads(limit, _interpret, CallHead(fault=RequestFault(text, Status.RESOURCE_EXHAUSTED)))


def _interpret(fields: list[Field], by_name: ByName) -> CallHead:
    fault = _carrier_fault(by_name)
    if fault is not None:
        return CallHead(fault=fault)
    path, encoding = by_name[b":path"], by_name.get(b"grpc-encoding", b"identity")
    if encoding != b"identity" and encoding not in ENCODINGS:
        shown = encoding[:100].decode("latin-1")
        text = f"grpc-encoding {shown!r} is not supported; use identity, deflate or gzip"
        return CallHead(path, fault=RequestFault(text, Status.UNIMPLEMENTED))
    try:
        timeout = _timeout(by_name.get(b"grpc-timeout"))
        metadata = Metadata(_metadata(fields))
    except DecodeError as error:
        return CallHead(path, fault=RequestFault(str(error), Status.INVALID_ARGUMENT))
    size = sum(FIELD_BYTES + len(name) + len(text) for name, text in metadata.raw)
    return CallHead(path, timeout, b"" if encoding == b"identity" else encoding, metadata, size=size)


def _carrier_fault(by_name: ByName) -> RequestFault | None:
    """Return the fault of a request that HTTP/2 allows but gRPC does not."""
    if by_name[b":method"] != b"POST":
        return RequestFault("gRPC's method is POST", http_status=405)
    if not _CONTENT_TYPE.fullmatch(by_name.get(b"content-type", b"")):
        return RequestFault("gRPC's content-type is application/grpc", http_status=415)
    if b"te" not in by_name:
        return RequestFault(
            "the request has no 'te: trailers': a proxy on the way drops them; configure it for gRPC",
            Status.INVALID_ARGUMENT,
        )
    return None


def _timeout(text: bytes | None) -> float | None:
    if text is None:
        return None
    parts = _TIMEOUT.fullmatch(text)
    if parts is None:
        raise DecodeError(
            f"grpc-timeout {text[:20].decode('latin-1')!r} is not up to 8 digits and one of H, M, S, m, u, n"
        )
    return int(parts[1]) * _SECONDS[parts[2]]


def _metadata(fields: Iterable[Field]) -> list[Field]:
    found: list[Field] = []
    for name, text in fields:
        if name in _OWN or name.startswith(b":"):
            continue
        if name.endswith(b"-bin"):
            found += unarmoured(name, text)
        elif not _TEXT.fullmatch(text):
            raise DecodeError(f"metadata {name.decode()!r} is not printable ASCII")
        else:
            found.append((name, text))
    return found
