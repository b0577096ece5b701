"""The head of a request: what its header block says, "gRPC over HTTP/2", section Requests. Pure."""

import re
from collections import OrderedDict
from collections.abc import Iterable

from gateway.core.errors import DecodeError, GatewayError, Reason, Status, refusal
from gateway.core.frozen import frozen
from gateway.core.types import NO_HEADERS, Headers, Metadata
from gateway.http2.hpack import CONNECTION_SPECIFIC, NAME, Decoder, Field
from gateway.transports.grpc.inflating import ENCODINGS
from gateway.transports.grpc.metadata import unarmoured

_REMEMBERED = 1024
"""Bytes of a block that is likely to come again."""
_HEADS = 512

_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_UNWANTED = re.compile(rb"[\0\r\n]|^[ \t]|[ \t]$")

# Not metadata of the call, but what carries it.
_OWN = frozenset(
    (b"te", b"content-type", b"content-length", b"host", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding")
)
_TEXT = re.compile(rb"[ -~]*")
_CONTENT_TYPE = re.compile(rb"application/grpc(?:[+;].*)?", re.IGNORECASE)

_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


class MalformedError(Exception):
    """Not a request that HTTP/2 allows: its stream is reset."""


@frozen
class Fault:
    """Why a request is refused by its head: a status of gRPC's, or of HTTP's for a client that does not speak gRPC."""

    text: str
    status: Status = Status.OK
    http_status: int = 200


@frozen
class RequestHead:
    """What a client asks for. `timeout` is in seconds; `encoding` is that of the messages that are compressed, empty
    for none; `metadata` are the call's own, binary ones decoded."""

    path: bytes = b""
    timeout: float | None = None
    encoding: bytes = b""
    metadata: Headers = NO_HEADERS
    fault: Fault | None = None


class HeadReader:
    """Reads the header blocks of one connection. `limit`: bytes of a block's fields (`limits.headers`)."""

    __slots__ = ("_decoder", "_limit", "_recalled")

    def __init__(self, limit: int, recalled: "OrderedDict[bytes, RequestHead]") -> None:
        self._decoder = Decoder(limit)
        self._limit = limit
        self._recalled = recalled
        """Heads by their blocks, of all connections of one listener: calls of a method have the same mostly."""

    def settle(self) -> None:
        """The client has acknowledged that there is no dynamic table."""
        self._decoder.allow(0)

    def skip(self, block: bytes) -> None:
        """Read a block that nobody wants: trailers of a request. Raises DecodeError, as `read` does."""
        if not self._decoder.is_stateless:
            try:
                self._fields(block)
            except GatewayError:
                return

    def read(self, block: bytes) -> RequestHead:
        """The head that a whole block is.

        Raises:
            DecodeError: it is no header block; no later one can be read.
            MalformedError: it is not one of a request.
        """
        if not self._decoder.is_stateless or len(block) > _REMEMBERED:
            return self._read(block)
        known = self._recalled.get(block)
        if known is not None:
            return known
        head = self._read(block)
        if self._decoder.is_stateless:
            self._recalled[block] = head
            if len(self._recalled) > _HEADS:
                self._recalled.popitem(last=False)
        return head

    def _read(self, block: bytes) -> RequestHead:
        try:
            return _head(self._fields(block))
        except GatewayError:
            text = f"the request's metadata have more than {self._limit} bytes (limits.headers)"
            return RequestHead(fault=Fault(text, Status.RESOURCE_EXHAUSTED))

    def _fields(self, block: bytes) -> list[Field]:
        if len(block) > self._limit:
            self._decoder.skip(block)
            raise refusal(Reason.HEADERS_TOO_LARGE, "too large")
        return self._decoder.read(block)


def _head(fields: list[Field]) -> RequestHead:
    told = _checked(fields)
    fault = _carrier_fault(told)
    if fault is not None:
        return RequestHead(fault=fault)
    path, encoding = told[b":path"], told.get(b"grpc-encoding", b"identity")
    if encoding != b"identity" and encoding not in ENCODINGS:
        shown = encoding[:100].decode("latin-1")
        text = f"grpc-encoding {shown!r} is not supported, identity, deflate and gzip are"
        return RequestHead(path, fault=Fault(text, Status.UNIMPLEMENTED))
    try:
        timeout = _timeout(told.get(b"grpc-timeout"))
        metadata = Metadata(_metadata(fields))
    except DecodeError as error:
        return RequestHead(path, fault=Fault(str(error), Status.INVALID_ARGUMENT))
    return RequestHead(path, timeout, b"" if encoding == b"identity" else encoding, metadata)


def _checked(fields: list[Field]) -> dict[bytes, bytes]:
    """The fields by name, the first of each name counting: RFC 9113 sections 8.2 and 8.3."""
    told: dict[bytes, bytes] = {}
    is_regular = False
    for name, text in fields:
        if name.startswith(b":"):
            if is_regular or name not in _PSEUDO or name in told:
                raise MalformedError(f"pseudo-header {name[:50]!r} is unknown, late or there twice")
        elif name in CONNECTION_SPECIFIC or not NAME.fullmatch(name):
            raise MalformedError(f"header {name[:50]!r} is not allowed")
        else:
            is_regular = True
        if _UNWANTED.search(text):
            raise MalformedError(f"header {name[:50]!r} holds a line break, a NUL or outer blanks")
        told.setdefault(name, text)
    if not told.get(b":method") or not told.get(b":scheme") or not told.get(b":path"):
        raise MalformedError("a request without :method, :scheme and :path")
    if told.get(b"te", b"trailers") != b"trailers":
        raise MalformedError("te is not trailers")
    return told


def _carrier_fault(told: dict[bytes, bytes]) -> Fault | None:
    """What is wrong with a request that is HTTP/2's but not gRPC's."""
    if told[b":method"] != b"POST":
        return Fault("gRPC's method is POST", http_status=405)
    if not _CONTENT_TYPE.fullmatch(told.get(b"content-type", b"")):
        return Fault("gRPC's content-type is application/grpc", http_status=415)
    if b"te" not in told:
        return Fault("the request has no 'te: trailers': a proxy on the way drops them", Status.INVALID_ARGUMENT)
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
