"""The errors for calls that end without a status from the server."""

from gateway.core.errors import GatewayError, Reason, Status, TransportError
from gateway.core.frozen import frozen
from gateway.core.grpc_status import pause_of
from gateway.core.http2.frames import ErrorCode, error_name
from gateway.core.protocol import Limits
from gateway.core.web_replies import REDIRECTS
from gateway.transports.errors import beyond_limit
from gateway.transports.grpc.client.heads import ResponseHead

_MAX_SHOWN = 200
"""Maximum number of characters of a reply header in error messages."""


@frozen
class HttpAnswer:
    """The error for an HTTP status without a gRPC status.

    `advice` is the end of the error message. `by_proxy` has the same meaning as in TransportError."""

    status: Status
    reason: Reason
    advice: str
    by_proxy: bool = False


_IS_GRPC = "is this the address of a gRPC server?"
_NO_REPLY = "a proxy gets no reply from the server behind it: does the server run, and is it fast enough?"

# The statuses are from gRPC's doc/http-grpc-status-mapping.md; 413 is one of its "all other codes".
HTTP_ANSWERS: dict[int, HttpAnswer] = {
    400: HttpAnswer(Status.INTERNAL, Reason.INVALID_OUTPUT, _IS_GRPC),
    401: HttpAnswer(
        Status.UNAUTHENTICATED,
        Reason.UNAUTHENTICATED,
        "credentials are missing or wrong; `forward_headers` on the backend forwards the clients' own",
    ),
    403: HttpAnswer(Status.PERMISSION_DENIED, Reason.PERMISSION_DENIED, "is the caller allowed to call this method?"),
    404: HttpAnswer(Status.UNIMPLEMENTED, Reason.UNSUPPORTED, f"no such method there; {_IS_GRPC}"),
    413: HttpAnswer(Status.UNKNOWN, Reason.TOO_LARGE, "the message is larger than a proxy before the server allows"),
    429: HttpAnswer(Status.UNAVAILABLE, Reason.OVERLOADED, "too many calls; try again later"),
    431: HttpAnswer(Status.INTERNAL, Reason.HEADERS_TOO_LARGE, "the call's headers are too large there"),
    502: HttpAnswer(Status.UNAVAILABLE, Reason.UNREACHABLE, _NO_REPLY, by_proxy=True),
    503: HttpAnswer(Status.UNAVAILABLE, Reason.UNREACHABLE, _NO_REPLY, by_proxy=True),
    504: HttpAnswer(Status.UNAVAILABLE, Reason.UNREACHABLE, _NO_REPLY, by_proxy=True),
}
OTHER_HTTP_ANSWER = HttpAnswer(Status.UNKNOWN, Reason.INVALID_OUTPUT, _IS_GRPC)
"""The error for every other HTTP status, including 200."""

# The mapping is from gRPC's doc/PROTOCOL-HTTP2.md, "Errors".
RESETS: dict[int, Reason] = {
    ErrorCode.REFUSED_STREAM: Reason.UNREACHABLE,
    ErrorCode.CANCEL: Reason.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: Reason.OVERLOADED,
    ErrorCode.INADEQUATE_SECURITY: Reason.PERMISSION_DENIED,
}
OTHER_RESET = Reason.INVALID_OUTPUT
"""The error for a reset with any other code."""


def http_answer(head: ResponseHead) -> TransportError:
    """Return the error for a reply without a gRPC status. The reply comes from a proxy or another kind of server.

    The error affects only this call, because other calls might receive a different reply. The error counts as a failure
    of the endpoint only if a proxy reports that the server behind it does not respond."""
    answer = HTTP_ANSWERS.get(head.http_status, OTHER_HTTP_ANSWER)
    what = _kind_of_content(head)
    location = head.metadata.get("location")[:_MAX_SHOWN]
    redirect = f"{REDIRECTS}{location!r}, which the address may name instead" if location else ""
    return TransportError(
        answer.status,
        answer.reason,
        f"HTTP status {head.http_status} without a gRPC status{what}: {answer.advice}{redirect}",
        sent=True,
        answered=not answer.by_proxy,
        by_proxy=answer.by_proxy,
        retry_after=pause_of(head.metadata),
    )


def _kind_of_content(head: ResponseHead) -> str:
    content = head.content_type[:_MAX_SHOWN].decode("latin-1")
    if content.lower().startswith("text/html"):
        return " and with a web page (text/html)"
    return f" and with content-type {content!r}" if content else ""


def reset(code: int) -> TransportError:
    """Return the error for a stream that the endpoint has reset.

    The reset affects only this call. The connection and other calls continue.

    After REFUSED_STREAM, the gateway can repeat the request, because "the stream is being closed prior to any
    processing having occurred" (RFC 9113, section 8.7)."""
    reason = RESETS.get(code, OTHER_RESET)
    text = f"the call was reset: {error_name(code)}"
    if code == ErrorCode.HTTP_1_1_REQUIRED:
        text += f"; {_IS_GRPC}"
    return TransportError(reason.status, reason, text, sent=code != ErrorCode.REFUSED_STREAM, answered=True)


def malformed(text: str) -> TransportError:
    """Return the error for a reply that violates gRPC."""
    return TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, text, sent=True)


def no_message() -> TransportError:
    """Return the error for an OK status without a message."""
    return malformed("the status is OK, but the reply is missing")


def too_large(size: int | str, limits: Limits) -> TransportError:
    """Return the error for a reply whose message of `size` bytes exceeds the limit."""
    return beyond_limit(f"reply has {size} bytes, at most {limits.message} are allowed (limits.message)")


def too_inflated(error: GatewayError) -> TransportError:
    """Return the error for a reply that exceeds the limits after decompression. `error` contains the size."""
    return beyond_limit(f"reply: {error.message}")


def no_memory(error: GatewayError) -> TransportError:
    """Return the error for a reply for which the process does not have enough memory."""
    text = f"reply refused: {error.message}"
    return TransportError(error.status, error.reason, text, sent=True, answered=True)


def too_much_metadata(limits: Limits) -> TransportError:
    """Return the error for a reply with a head or trailers larger than the limit."""
    return beyond_limit(f"reply has more than {limits.headers} bytes of metadata (limits.headers); raise the limit")
