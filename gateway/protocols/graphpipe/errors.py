"""GraphPipe's errors: an InferResponse that holds `errors`, to and from a Reason.

No real server writes them: Go's answers HTTP 400 and a text, and most clients fail on any status but 200 and on nothing
else. So here they go out with the status that they are. Only the Python client reads a message, and only under status
200, which it can ask for: `?errors=200` in its URL.
"""

from gateway.core import http_status
from gateway.core.errors import REASONS, DecodeError, GatewayError, Reason, refusal
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.types import Headers, Message, Request
from gateway.protocols.graphpipe import layouts, schema
from gateway.protocols.graphpipe.reader import Flatbuffer, Table
from gateway.protocols.graphpipe.writer import Writer

AS_SUCCESS = "errors=200"

_MAX_TEXT = 8192
_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_OCTETS = (b"content-type", b"application/octet-stream")


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The reply that tells `error`: a text to GET, whose other answers are for people too."""
    code = http_status.number(error)
    reason = (b"gateway-reason", error.reason.value.encode())
    text = error.message.encode("utf-8", "replace")
    if message.method in ("GET", "HEAD"):
        return Message(headers=Headers((_TEXT, reason)), parts=(text,), status=code)
    status = 200 if AS_SUCCESS in message.query.split("&") else code
    return Message(headers=Headers((_OCTETS, reason)), parts=(_write(code, text),), status=status)


def _write(code: int, text: bytes) -> bytes:
    writer = Writer()
    root = writer.table(layouts.ERRORS)
    (link,) = writer.links(root + layouts.ERRORS.place[schema.InferResponse.ERRORS], 1)
    table = writer.table(layouts.ERROR, link)
    writer.long(table + layouts.ERROR.place[schema.Error.CODE], code)
    writer.string(table + layouts.ERROR.place[schema.Error.MESSAGE], text)
    return writer.gaps()[0]


def decode_error(reply: Message) -> GatewayError:
    """The error that a reply of status 400 or above tells: in `errors`, or as a text."""
    try:
        told = read_errors(Flatbuffer(reply.body).root())
    except DecodeError:
        told = None
    text = told[1] if told else _readable(bytes(memoryview(reply.body)[:_MAX_TEXT]))
    return refusal(_reason(reply, reply.status), text or f"status {reply.status} without a message")


def of_success(told: tuple[int, str], reply: Message) -> GatewayError:
    """The error of a reply of status 200."""
    code, text = told
    return refusal(_reason(reply, code), text or f"error {code} without a message")


def read_errors(table: Table) -> tuple[int, str] | None:
    """The first code and all the messages of an InferResponse; None without any errors.

    Raises:
        DecodeError: not an InferResponse.
    """
    code, texts = 0, []
    for each in table.tables(schema.InferResponse.ERRORS):
        code = code or each.long(schema.Error.CODE)
        texts.append(_readable(each.string(schema.Error.MESSAGE)[:_MAX_TEXT]))
    return (code, "; ".join(filter(None, texts))[:_MAX_TEXT]) if texts else None


def _readable(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()


def _reason(reply: Message, code: int) -> Reason:
    return REASONS.get(reply.headers.get("gateway-reason")) or REASONS_BY_NUMBER.get(code, Reason.MODEL_ERROR)
