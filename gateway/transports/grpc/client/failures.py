"""The errors of calls that end without a status from the server."""

from gateway.core.errors import GatewayError, Reason, Status, TransportError
from gateway.core.http2.frames import ErrorCode, error_name
from gateway.core.protocol import Limits

# gRPC over HTTP/2, "Errors". Every other code means that the endpoint, or a proxy before it, broke off.
_RESETS: dict[int, Reason] = {
    ErrorCode.ENHANCE_YOUR_CALM: Reason.OVERLOADED,
    ErrorCode.INADEQUATE_SECURITY: Reason.PERMISSION_DENIED,
}


def reset(code: int) -> TransportError:
    """The endpoint reset the stream.

    RFC 9113 section 8.7: REFUSED_STREAM, "the stream is being closed prior to any processing having occurred". The
    request may be sent again, and the endpoint is there: it has answered.
    """
    reason = _RESETS.get(code, Reason.UNREACHABLE)
    text = f"the call was reset: {error_name(code)}"
    is_refused = code == ErrorCode.REFUSED_STREAM
    return TransportError(reason.status, reason, text, sent=not is_refused, answered=is_refused)


def malformed(text: str) -> TransportError:
    """The reply violates gRPC."""
    return TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, text, sent=True)


def no_message() -> TransportError:
    """The status is OK, but there is no message."""
    return malformed("the status is OK, but there is no reply")


def too_large(size: int | str, limits: Limits) -> TransportError:
    """The reply has a message of `size` bytes, more than the limit."""
    return _beyond(f"reply has {size} bytes, at most {limits.message} are allowed (limits.message)")


def too_inflated(error: GatewayError) -> TransportError:
    """The reply inflates to more than the limits allow; `error` says to how much."""
    return _beyond(f"reply: {error.message}")


def no_memory(error: GatewayError) -> TransportError:
    """The process has no memory left for the reply."""
    text = f"reply refused: {error.message}"
    return TransportError(error.status, error.reason, text, sent=True, answered=True)


def too_much_metadata(limits: Limits) -> TransportError:
    """The head or the trailers of the reply are larger than the limit."""
    return _beyond(f"reply has more than {limits.headers} bytes of metadata (limits.headers)")


def _beyond(text: str) -> TransportError:
    return TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, text, sent=True, answered=True)
