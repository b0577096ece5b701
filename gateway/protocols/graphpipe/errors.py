"""Converts GraphPipe errors (InferResponses with `errors`) to and from Reasons.

No real server writes `errors`: the Go server responds with status 400 and plain text. Most clients fail on every status
except 200, and do not read `errors` in a response with status 200. The gateway therefore sends each error with the
matching status. The Go client prints the response body unchanged, so the gateway sends it plain text. The Python client
shows the error message only with status 200. A client with `?errors=200` in its URL therefore receives errors with
status 200.
"""

from typing import TypeAlias

from gateway.core import http_status
from gateway.core.errors import REASON_HEADER, REASONS, DecodeError, GatewayError, Reason, error_fields, refusal
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.messages import Headers, Message
from gateway.core.requests import Request
from gateway.protocols.graphpipe import schema
from gateway.protocols.graphpipe.flatbuffers import Flatbuffer, Table, Writer

Errors: TypeAlias = tuple[tuple[int, str], ...]
"""The code and the message of each entry of `errors`, in order."""


class GraphPipeError(GatewayError):
    """The `errors` of a backend, as one error.

    GraphPipe clients receive the entries unchanged; other clients receive one Reason and all messages."""

    def __init__(self, reason: Reason, message: str, errors: Errors) -> None:
        super().__init__(reason.status, reason, message)
        self.errors = errors


UNDER_200 = "errors=200"

_MAX_TEXT = 8192
_SEPARATOR = "; "
_GO = "Go-http-client/"
"""The prefix of the User-Agent of programs written in Go."""
_TEXT = (b"content-type", b"text/plain; charset=utf-8")


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """Return the response that reports `error`. The response is plain text for GET requests, whose responses people
    read, and for the Go client, which prints it."""
    code = http_status.number(error)
    about = error_fields(error)
    text = error.message.encode("utf-8", "replace")
    if message.method in ("GET", "HEAD") or message.headers.get("user-agent").startswith(_GO):
        return Message(headers=Headers((_TEXT, *about)), parts=(text,), status=code)
    status = 200 if UNDER_200 in message.query.split("&") else code
    errors = error.errors if isinstance(error, GraphPipeError) else ((code, error.message),)
    return Message(headers=Headers((schema.OCTETS, *about)), parts=(encode_errors(errors),), status=status)


def encode_errors(errors: Errors) -> bytes:
    """Return an InferResponse with `errors`."""
    writer = Writer()
    root = writer.table(schema.ERRORS_LAYOUT)
    places = writer.vector_of_offsets(root + schema.ERRORS_LAYOUT.offsets[schema.InferResponse.ERRORS], len(errors))
    offsets = schema.ERROR_LAYOUT.offsets
    for place, (code, text) in zip(places, errors, strict=True):
        table = writer.table(schema.ERROR_LAYOUT, place)
        writer.long(table + offsets[schema.Error.CODE], code)
        writer.string(table + offsets[schema.Error.MESSAGE], text.encode("utf-8", "replace"))
    return writer.finish()[0]


def decode_error(reply: Message) -> GatewayError:
    """Return the error in a response with status 400 or above. The response contains `errors` or plain text."""
    try:
        errors = decode_errors(Flatbuffer(reply.body).root())
    except DecodeError:
        errors = ()
    reason, no_text = _reason(reply, reply.status), f"status {reply.status} without a message"
    if errors:
        return GraphPipeError(reason, _texts(errors) or no_text, errors)
    return refusal(reason, _decode_text(bytes(memoryview(reply.body)[:_MAX_TEXT])) or no_text)


def is_reported(reply: Message, model: str) -> bool:
    """Return whether an error is in GraphPipe's own form, which no other server sends."""
    return reply.status >= 400 and isinstance(decode_error(reply), GraphPipeError)


def error_of_success(errors: Errors, reply: Message) -> GatewayError:
    """Return the error in a response with status 200 that contains `errors`."""
    code = next((code for code, _ in errors if code), 0)
    return GraphPipeError(_reason(reply, code), _texts(errors) or f"error {code} without a message", errors)


def _texts(errors: Errors) -> str:
    return _SEPARATOR.join(text for _, text in errors if text)


def decode_errors(table: Table) -> Errors:
    """Return the first `errors` of an InferResponse, until the total length of their messages reaches _MAX_TEXT.

    Raises:
        DecodeError: `table` is not an InferResponse.
    """
    errors: list[tuple[int, str]] = []
    room = _MAX_TEXT
    for each in table.tables(schema.InferResponse.ERRORS):
        text = _decode_text(each.string(schema.Error.MESSAGE)[:room])
        errors.append((each.long(schema.Error.CODE), text))
        room -= len(text) + len(_SEPARATOR)
        if room <= 0:
            break
    return tuple(errors)


def _decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()


def _reason(reply: Message, code: int) -> Reason:
    """Return the Reason that another gateway sent, or else the Reason for the HTTP status."""
    return REASONS.get(reply.headers.get(REASON_HEADER)) or REASONS_BY_NUMBER.get(code, Reason.MODEL_ERROR)
