"""Functions that reject requests because of their heads, without creating a call."""

from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.http2.connection import Stream
from gateway.core.http2.frames import ErrorCode
from gateway.core.http2.server import Http2Server
from gateway.core.record import Record
from gateway.transports.grpc.server import replies
from gateway.transports.grpc.server.calls import refused
from gateway.transports.grpc.server.heads import CallHead, RequestFault

_MAX_METHOD = 200
"""Maximum number of characters of an unknown method's name in an error message."""

_HTTP1_REQUIRED = RequestFault("HTTP/2 is only for gRPC: the client gets HTTP_1_1_REQUIRED", http_status=505)
"""The reason for rejecting a request that is not gRPC, at an address that also serves HTTP/1.1.

Clients such as curl then repeat the request over HTTP/1.1 (RFC 9113, section 7)."""


def refuse(http2: Http2Server[CallHead], stream: Stream, error: GatewayError, record: Record) -> None:
    """Reject a request with the gRPC status for `error`."""
    reply = refused(error)
    record.failed(error)
    record.end(reply.status, 0)
    http2.send_end(stream, replies.HEAD + replies.trailers(reply) + replies.more_trailers(record))


def refuse_fault(
    http2: Http2Server[CallHead],
    stream: Stream,
    fault: RequestFault,
    record: Record,
    *,
    shares_http1: bool,
) -> None:
    """Reject a request because of a fault in its head. `shares_http1` is True if the same address also serves
    HTTP/1.1."""
    if fault.http_status != 200 and shares_http1:
        fault = _HTTP1_REQUIRED
    record.failed(GatewayError(fault.status or Status.INTERNAL, Reason.INVALID_INPUT, fault.text))
    record.end(fault.status or fault.http_status, 0)
    if fault is _HTTP1_REQUIRED:
        http2.reset(stream, ErrorCode.HTTP_1_1_REQUIRED)
    elif fault.http_status != 200:
        http2.send_end(stream, replies.fault_block(fault))
    else:
        http2.send_end(stream, replies.HEAD + replies.status_block(fault.status, fault.text))


def no_method(path: bytes, spoken: str = "") -> GatewayError:
    """Return the error for an unknown method.

    `spoken` contains the listener's protocols, if the client is allowed to see them."""
    text = f"no method {path.decode('utf-8', 'backslashreplace')[:_MAX_METHOD]} here"
    return refusal(Reason.UNSUPPORTED, f"{text}; this listener speaks {spoken}" if spoken else text)
