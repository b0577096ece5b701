"""Writes and reads errors of grps-rest. Clients receive a JSON GrpsMessage; backends can send any body."""

import re

from gateway.core import http_status
from gateway.core.errors import DecodeError, GatewayError, Reason, error_fields, readable, refusal
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.messages import JSON_HEADERS, Headers, Message
from gateway.core.requests import Request
from gateway.protocols.grps.errors import failure
from gateway.protocols.grps.json.message import write_message

_TAGS = re.compile(r"<[^<>]{0,1000}>")
_MAX_TEXT_SIZE = 8192


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """Return the response, or the last message of a stream, that reports `error`. `passthrough` routes also use this
    function.

    The HTTP status is the code in the body, unless a model chose a code that is not an HTTP error status."""
    grps = failure(error)
    assert grps.status is not None
    headers = Headers((*JSON_HEADERS.raw, *error_fields(error)))
    status = grps.status.code if 400 <= grps.status.code < 600 else http_status.number(error)
    return Message(headers=headers, parts=write_message(grps, "output", ""), status=status)


def http_error(reply: Message) -> GatewayError:
    """Return the error in a backend's response that is not a GrpsMessage, such as HTML from werkzeug, text from brpc,
    or a proxy's error page.

    Raises:
        DecodeError: the HTTP status of the response is not an error.
    """
    if reply.status < 400:
        raise DecodeError(f"HTTP status {reply.status}, expected 200")
    html = bytes(memoryview(reply.body)[:_MAX_TEXT_SIZE]).decode("utf-8", "replace")
    text = " ".join(readable(_TAGS.sub(" ", html)).split())
    reason = REASONS_BY_NUMBER.get(reply.status, Reason.MODEL_ERROR)
    return refusal(reason, text or f"HTTP status {reply.status} without a text")
