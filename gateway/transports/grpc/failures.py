"""Why a call ended without a reply: what the server told, or what became of the connection.

gRPC gives both the same form, a status with a text, and never says whose it is. The texts of its core (1.85) do.
"""

import re
from collections.abc import Sequence
from typing import Any

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.protocol import Limits
from gateway.core.types import Message
from gateway.core.values import value
from gateway.transports.grpc.metadata import headers


@value
class _Failure:
    beginning: str
    reason: Reason
    sent: bool = True


_FAILURES: Sequence[_Failure] = (
    _Failure("connections to all backends failing", Reason.UNREACHABLE, sent=False),
    _Failure("failed to connect to all addresses", Reason.UNREACHABLE, sent=False),
    _Failure("errors resolving", Reason.UNREACHABLE, sent=False),
    # RFC 9113 section 8.7: REFUSED_STREAM, "the stream is being closed prior to any processing having occurred", and
    # a GOAWAY that does not count the stream says the same; that of a connection that broke off does not begin so.
    _Failure("Stream removed (RST_STREAM (Received RST_STREAM with error code 7", Reason.UNREACHABLE, sent=False),
    _Failure("Stream removed (GOAWAY received", Reason.UNREACHABLE, sent=False),
    _Failure("Stream removed (CLIENT: Received message larger than max", Reason.INVALID_OUTPUT),
    _Failure("Stream removed (Decompressed message larger than max", Reason.INVALID_OUTPUT),
    _Failure("Stream removed (received metadata size exceeds", Reason.INVALID_OUTPUT),
    _Failure("Stream removed (Data frame with END_STREAM flag received", Reason.INVALID_OUTPUT),
    _Failure("Stream removed", Reason.UNREACHABLE),
    _Failure("Received http2 header with status", Reason.UNREACHABLE),
    _Failure("No status received", Reason.INVALID_OUTPUT),
    _Failure("Deadline Exceeded", Reason.TIMEOUT),
)

_WRAPPED = re.compile(r"Stream removed \((.*)\)", re.DOTALL)
_LAST_ERROR = re.compile(r".*; last error: [A-Z_]+: \S+: (.*)", re.DOTALL)
_TOO_LARGE = re.compile(r"(?:CLIENT: Received|Decompressed) message larger than max(?: \((\d+) vs\. \d+\))?")


def reply_of(error: Any, limits: Limits) -> Message:
    """The status that the server sent, as a reply: its text is the body.

    Raises:
        TransportError: it sent none.
    """
    text = error.details() or ""
    for failure in _FAILURES:
        if text.startswith(failure.beginning):
            raise TransportError(failure.reason.status, failure.reason, _words(text, limits), sent=failure.sent)
    status: int = error.code().value[0]
    return Message(status=status, headers=headers(error.trailing_metadata()), parts=(text.encode(),))


def no_message() -> TransportError:
    """The call ended well, but without the one message that it must have."""
    return TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, "the status is OK, but there is no reply", sent=True)


def _words(text: str, limits: Limits) -> str:
    """The text without core's wrapping, which names neither the backend nor the setting."""
    if text == "Deadline Exceeded":
        return "no reply before the deadline"
    found = _WRAPPED.fullmatch(text) or _LAST_ERROR.fullmatch(text)
    text = found[1] if found else text
    large = _TOO_LARGE.fullmatch(text)
    if large:
        size = large[1] or f"more than {limits.message}"
        return f"reply has {size} bytes, at most {limits.message} are allowed (limits.message)"
    if text.startswith("received metadata size"):
        return f"reply has more than {limits.headers} bytes of metadata (limits.headers)"
    return text[:1].lower() + text[1:]
