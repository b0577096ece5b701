"""Decoding of errors in gRPC replies, shared by the protocols over gRPC."""

import re

from gateway.core.errors import (
    DEFAULT_REASONS,
    REASON_HEADER,
    REASONS,
    RETRY_HEADER,
    GatewayError,
    Reason,
    Status,
    retry_after,
)
from gateway.core.messages import Headers, Message

MAX_ERROR_TEXT = 8192
"""Maximum size of an error message, in bytes. The gateway ignores everything after this limit."""

PUSHBACK_HEADER = "grpc-retry-pushback-ms"
"""The metadata key in which a gRPC server specifies after how many milliseconds to retry (gRFC A6). A negative number
means never."""

_STATUSES = {status.value: status for status in Status}

_EXHAUSTED = (
    # "SERVER: Received message larger than max (5 vs. 4)" (C, C++, Python, Ruby and PHP; Go and Node begin with other
    # words); "gRPC message exceeds maximum size 4: 5" (Java); "Received message exceeds the maximum configured message
    # size." (.NET)
    (
        re.compile(r"message (after decompression )?larger than max|message exceeds (the )?maximum", re.I),
        Reason.TOO_LARGE,
    ),
    # "received metadata size exceeds hard limit (value length 9000 vs. 8192)"
    (re.compile(r"metadata size exceeds", re.I), Reason.HEADERS_TOO_LARGE),
)
"""The error messages of gRPC libraries for a message or headers with too many bytes.

RESOURCE_EXHAUSTED with any other message means that the server is overloaded."""


def error_of(reply: Message) -> GatewayError:
    """Return the error in a backend's reply with a status other than 0.

    The body is the error message. The trailers can contain the Reason and the seconds after which to retry."""
    # gRPC treats an unknown code as UNKNOWN
    status = _STATUSES.get(reply.status, Status.UNKNOWN)
    text = bytes(reply.body[:MAX_ERROR_TEXT]).decode("utf-8", "replace").strip()
    reason = REASONS.get(reply.headers.get(REASON_HEADER)) or _reason_of(status, text)
    return GatewayError(status, reason, text or f"status {status.name} without a text", pause_of(reply.headers))


def pause_of(headers: Headers) -> float | None:
    """Return the number of seconds after which the server asks the client to retry; None if the server does not specify
    it."""
    pushback = headers.get(PUSHBACK_HEADER)
    seconds = retry_after(headers.get(RETRY_HEADER))
    if seconds is None and (milliseconds := retry_after(pushback)) is not None:
        return milliseconds / 1000
    return seconds


def _reason_of(status: Status, text: str) -> Reason:
    if status is not Status.RESOURCE_EXHAUSTED:
        return DEFAULT_REASONS[status]
    return next((reason for pattern, reason in _EXHAUSTED if pattern.search(text)), Reason.OVERLOADED)
