"""Reads and writes web forms, `application/x-www-form-urlencoded` (WHATWG's URL standard, section 5): named fields that
contain text.

The gateway rejects duplicate names. A percent sign without two hexadecimal digits stands for itself, as in the
standard.
"""

from collections.abc import Iterable, Sequence
from urllib.parse import quote_plus, unquote_to_bytes

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.messages import Buffer
from gateway.protocols.json.media.media_types import check_charset, parse
from gateway.protocols.json.media.multipart import FormPart

CONTENT_TYPE = "application/x-www-form-urlencoded"
_PIECE = 2**16
"""Number of bytes to decode in one step. The limit exists because Python creates an object for each escape."""
_MOST_NAME = 1000
_REMEDY = "send -H 'Content-Type: application/json' (curl -d sends the Content-Type of web forms by default)"


def read(body: Buffer, content_type: str, *, parts: int) -> dict[str, FormPart]:
    """Return the fields of `body` by their names.

    `content_type` is the message's Content-Type header. `parts` (`limits.json_values`) is the maximum number of fields.

    Raises:
        DecodeError: the charset is not UTF-8, the body is JSON, or a name is not UTF-8, is too long, or occurs twice.
        GatewayError: RESOURCE_EXHAUSTED if the body has more fields.
    """
    given = parse(content_type)
    if given is not None:
        check_charset(given)
    data = bytes(body)
    if data.startswith((b"{", b"[")) and b"=" not in data:
        raise DecodeError(f"the body is JSON, but its Content-Type is {CONTENT_TYPE}; {_REMEDY}")
    if data.count(b"&") >= parts:
        text = f"a web form with more than {parts} fields (limits.json_values); send fewer, or raise the limit"
        raise refusal(Reason.TOO_LARGE, text)
    found: dict[str, FormPart] = {}
    for field in data.split(b"&"):
        name, _, value = field.partition(b"=")
        if not field:
            continue
        part = FormPart(_name(name), _decoded(value))
        if part.name in found:
            raise DecodeError(f"two fields of the web form have the name {part.name!r}; rename one")
        found[part.name] = part
    return found


def _name(given: bytes) -> str:
    if len(given) > _MOST_NAME:
        raise DecodeError(f"a field of the web form has a name of {len(given)} bytes, expected at most {_MOST_NAME}")
    try:
        return _decoded(given).decode()
    except UnicodeDecodeError as error:
        raise DecodeError("the name of a field of the web form is not UTF-8") from error


def _decoded(text: bytes) -> bytes:
    if b"+" in text:
        text = text.replace(b"+", b" ")
    return b"".join(unquote_to_bytes(each) for each in _pieces(text)) if b"%" in text else text


def _pieces(text: bytes) -> Iterable[bytes]:
    """Yield `text` in pieces that do not divide an escape."""
    at = 0
    while at < len(text):
        end = at + _PIECE
        cut = text.rfind(b"%", end - 2, end)
        end = end if cut < 0 else cut
        yield text[at:end]
        at = end


def write(parts: Sequence[FormPart]) -> tuple[Buffer, ...]:
    """Return a web form with these fields, in one piece."""
    return ("&".join(f"{quote_plus(each.name)}={quote_plus(bytes(each.content))}" for each in parts).encode(),)


def content_type(pieces: Sequence[Buffer]) -> str:
    """Return the Content-Type of every web form."""
    return CONTENT_TYPE
