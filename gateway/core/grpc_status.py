"""Errors in gRPC replies, shared by the protocols over gRPC."""

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
from gateway.core.types import Headers, Message

MAX_ERROR_TEXT = 8192
"""Maximum number of bytes read from an error's text."""

PUSHBACK_HEADER = "grpc-retry-pushback-ms"
"""The metadata key by which a gRPC server says when to retry (gRFC A6): milliseconds, negative for never."""

_STATUSES = {status.value: status for status in Status}

_EXHAUSTED = (
    # "SERVER: Received message larger than max (5 vs. 4)" of C, C++, Python, Ruby and PHP, with other first words in Go
    # and Node; "gRPC message exceeds maximum size 4: 5" of Java; "Received message exceeds the maximum configured
    # message size." of .NET
    (
        re.compile(r"message (after decompression )?larger than max|message exceeds (the )?maximum", re.I),
        Reason.TOO_LARGE,
    ),
    # "received metadata size exceeds hard limit (value length 9000 vs. 8192)"
    (re.compile(r"metadata size exceeds", re.I), Reason.HEADERS_TOO_LARGE),
)
"""The texts of gRPC libraries for a message, or headers, with too many bytes.

RESOURCE_EXHAUSTED with any other text means that the server is overloaded."""


def error_of(reply: Message) -> GatewayError:
    """Return the error in a backend's reply with a status other than 0.

    The body is the error's text. The trailers can contain its Reason and the time after which to retry."""
    # gRPC treats an unknown code as UNKNOWN
    status = _STATUSES.get(reply.status, Status.UNKNOWN)
    text = bytes(reply.body[:MAX_ERROR_TEXT]).decode("utf-8", "replace").strip()
    reason = REASONS.get(reply.headers.get(REASON_HEADER)) or _reason_of(status, text)
    return GatewayError(status, reason, text or f"status {status.name} without a text", pause_of(reply.headers))


def pause_of(headers: Headers) -> float | None:
    """Return the seconds after which a server asks the client to retry; None if the server does not specify a time."""
    pushback = headers.get(PUSHBACK_HEADER)
    seconds = retry_after(headers.get(RETRY_HEADER))
    if seconds is None and (milliseconds := retry_after(pushback)) is not None:
        return milliseconds / 1000
    return seconds


def _reason_of(status: Status, text: str) -> Reason:
    if status is not Status.RESOURCE_EXHAUSTED:
        return DEFAULT_REASONS[status]
    return next((reason for pattern, reason in _EXHAUSTED if pattern.search(text)), Reason.OVERLOADED)
