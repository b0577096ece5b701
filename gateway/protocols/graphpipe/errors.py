"""GraphPipe's errors: an InferResponse that holds `errors`, to and from a Reason.

No real server writes them: Go's answers HTTP 400 and a text, and most clients fail on any status but 200 and on nothing
else. So here they go out with the status that they are. Only the Python client reads a message, and only under status
200, which it can ask for: `?errors=200` in its URL.
"""

from typing import TypeAlias

from gateway.core import http_status
from gateway.core.errors import REASON_HEADER, REASONS, DecodeError, GatewayError, Reason, reason_field, refusal
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.types import Headers, Message, Request
from gateway.protocols.graphpipe import layouts, schema
from gateway.protocols.graphpipe.flatbuffer_reader import Flatbuffer, Table
from gateway.protocols.graphpipe.flatbuffer_writer import Writer

Told: TypeAlias = tuple[tuple[int, str], ...]
"""The codes and texts of one reply's `errors`, in their order."""


class ToldError(GatewayError):
    """What a backend told in `errors`, kept for GraphPipe clients; others get the first code and all texts."""

    def __init__(self, reason: Reason, message: str, told: Told) -> None:
        super().__init__(reason.status, reason, message)
        self.told = told


AS_SUCCESS = "errors=200"

_MAX_TEXT = 8192
_SEPARATED = 2
_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_OCTETS = (b"content-type", b"application/octet-stream")


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The reply that tells `error`: a text to GET, whose other answers are for people too."""
    code = http_status.number(error)
    reason = reason_field(error)
    text = error.message.encode("utf-8", "replace")
    if message.method in ("GET", "HEAD"):
        return Message(headers=Headers((_TEXT, reason)), parts=(text,), status=code)
    status = 200 if AS_SUCCESS in message.query.split("&") else code
    told = error.told if isinstance(error, ToldError) else ((code, error.message),)
    return Message(headers=Headers((_OCTETS, reason)), parts=(_write(told),), status=status)


def _write(told: Told) -> bytes:
    writer = Writer()
    root = writer.table(layouts.ERRORS)
    links = writer.links(root + layouts.ERRORS.place[schema.InferResponse.ERRORS], len(told))
    for link, (code, text) in zip(links, told, strict=True):
        table = writer.table(layouts.ERROR, link)
        writer.long(table + layouts.ERROR.place[schema.Error.CODE], code)
        writer.string(table + layouts.ERROR.place[schema.Error.MESSAGE], text.encode("utf-8", "replace"))
    return writer.gaps()[0]


def decode_error(reply: Message) -> GatewayError:
    """The error that a reply of status 400 or above tells: in `errors`, or as a text."""
    try:
        told = read_errors(Flatbuffer(reply.body).root())
    except DecodeError:
        told = ()
    if told:
        return ToldError(_reason(reply, reply.status), _all(told) or f"status {reply.status} without a message", told)
    text = _readable(bytes(memoryview(reply.body)[:_MAX_TEXT]))
    return refusal(_reason(reply, reply.status), text or f"status {reply.status} without a message")


def of_success(told: Told, reply: Message) -> GatewayError:
    """The error of a reply of status 200."""
    code = next((code for code, _ in told if code), 0)
    return ToldError(_reason(reply, code), _all(told) or f"error {code} without a message", told)


def _all(told: Told) -> str:
    return "; ".join(text for _, text in told if text)


def read_errors(table: Table) -> Told:
    """The errors of an InferResponse: the first ones, as far as their texts have a bounded length.

    Raises:
        DecodeError: not an InferResponse.
    """
    told: list[tuple[int, str]] = []
    room = _MAX_TEXT
    for each in table.tables(schema.InferResponse.ERRORS):
        text = _readable(each.string(schema.Error.MESSAGE)[:room])
        told.append((each.long(schema.Error.CODE), text))
        room -= len(text) + _SEPARATED
        if room <= 0:
            break
    return tuple(told)


def _readable(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()


def _reason(reply: Message, code: int) -> Reason:
    return REASONS.get(reply.headers.get(REASON_HEADER)) or REASONS_BY_NUMBER.get(code, Reason.MODEL_ERROR)
