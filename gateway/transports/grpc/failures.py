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
    _Failure("Received http2 header with status", Reason.UNREACHABLE),
    _Failure("No status received", Reason.INVALID_OUTPUT),
    _Failure("Deadline Exceeded", Reason.TIMEOUT),
    # A server's words too, but for what is sent compressed, as nothing is here.
    _Failure("Decompressed message larger than max", Reason.INVALID_OUTPUT),
)

# Core wraps what ends a call that was begun so; in its place it would be a server's own text.
_REMOVED = re.compile(r"Stream removed \((.*)\)", re.DOTALL)

_REMOVALS: Sequence[_Failure] = (
    # RFC 9113 section 8.7: REFUSED_STREAM, "the stream is being closed prior to any processing having occurred", and
    # a GOAWAY that does not count the stream says the same; that of a connection that broke off does not begin so.
    _Failure("RST_STREAM (Received RST_STREAM with error code 7", Reason.UNREACHABLE, sent=False),
    _Failure("GOAWAY received", Reason.UNREACHABLE, sent=False),
    _Failure("CLIENT: Received message larger than max", Reason.INVALID_OUTPUT),
    _Failure("received metadata size exceeds", Reason.INVALID_OUTPUT),
    _Failure("Data frame with END_STREAM flag received", Reason.INVALID_OUTPUT),
    _Failure("Deadline Exceeded", Reason.TIMEOUT),
    _Failure("", Reason.UNREACHABLE),
)

_LAST_ERROR = re.compile(r".*; last error: [A-Z_]+: \S+: (.*)", re.DOTALL)
_TOO_LARGE = re.compile(r"(?:CLIENT: Received|Decompressed) message larger than max(?: \((\d+) vs\. \d+\))?")


def reply_of(error: Any, limits: Limits) -> Message:
    """The status that the server sent, as a reply: its text is the body.

    Raises:
        TransportError: it sent none.
    """
    told = error.details() or ""
    removed = _REMOVED.fullmatch(told)
    text, table = (removed[1], _REMOVALS) if removed else (told, _FAILURES)
    for failure in table:
        if text.startswith(failure.beginning):
            raise TransportError(failure.reason.status, failure.reason, _words(text, limits), sent=failure.sent)
    status: int = error.code().value[0]
    return Message(status=status, headers=headers(error.trailing_metadata()), parts=(told.encode(),))


def no_message() -> TransportError:
    """The call ended well, but without the one message that it must have."""
    return TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, "the status is OK, but there is no reply", sent=True)


def _words(text: str, limits: Limits) -> str:
    """What went wrong, with the names of settings, which core does not know."""
    large, connecting = _TOO_LARGE.fullmatch(text), _LAST_ERROR.fullmatch(text)
    if text == "Deadline Exceeded":
        return "no reply before the deadline"
    if large:
        size = large[1] or f"more than {limits.message}"
        return f"reply has {size} bytes, at most {limits.message} are allowed (limits.message)"
    if text.startswith("received metadata size"):
        return f"reply has more than {limits.headers} bytes of metadata (limits.headers)"
    text = connecting[1] if connecting else text
    return text[:1].lower() + text[1:]
