"""Formats messages and responses for display: JSON on several lines, and binary content in hexadecimal with notes."""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from gateway.assembly.explain.request import SECRET_HEADERS
from gateway.assembly.registry import protocols
from gateway.client import translate
from gateway.client.credentials import RawHeaders
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message, bytes_of
from gateway.core.protocol import GrpcBinding, Protocol, StreamBinding
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor

LONGEST_TEXT = 64 * 2**10
"""Maximum number of characters to show of a body."""
MOST_HEX = 4096
"""Maximum number of bytes to show in hexadecimal."""
MOST_VALUES = 1000
"""Maximum number of elements to show of an output."""
MOST_OUTPUTS = 64
"""Maximum number of outputs to show of a response."""
LONGEST_VALUE = 1000
"""Maximum number of characters to show of a BYTES element."""
LONGEST_SHOWN_NAME = 200
"""Maximum number of characters to show of a name, a header or a path."""
LONGEST_ERROR = 2000
"""Maximum number of characters to show of an error message."""
MOST_IN_FORMS = 1_000_000
"""Maximum size of a response that the page also shows in the other protocols, in bytes. A larger response is shown only
in its own protocol."""
MOST_WHOLE = 16 * 2**20
"""Maximum total size of the responses that the page receives in full, in bytes."""
_WIDTH = 100
_DEEPEST = 100
_WIRE_TYPES = {0: "varint", 1: "64 bits", 2: "bytes", 5: "32 bits"}
_LONGEST_HEADER = 4096


class ShownMessage(BaseModel):
    """A message. `head` contains the address and the headers, one per line. `size` is the size of the body in bytes. If
    `cut` is True, `body` is incomplete. For an incomplete response, `whole` contains the complete body in base64."""

    head: list[str]
    size: int
    kind: str
    """`json`, `text`, `hex`, or `empty`."""
    body: str
    cut: bool = False
    whole: str = ""


class ShownForm(BaseModel):
    """A response in one protocol: its messages, or the reason why the protocol cannot represent it."""

    protocol: str
    messages: list[ShownMessage]
    error: str = ""


class ShownOutput(BaseModel):
    """An output. `elements` is the number of elements. `values` is JSON with at most the first MOST_VALUES elements;
    `cut` is True if elements are missing."""

    name: str
    datatype: str
    shape: list[int]
    values: str
    cut: bool
    elements: int


def shown_message(message: Message, protocol: Protocol, added: RawHeaders = ()) -> ShownMessage:
    """Return `message` for display, including the `added` headers. Credentials in headers are masked."""
    if added and not isinstance(protocol.binding, StreamBinding):
        message = replace(message, headers=Headers((*message.headers.raw, *added)))
    size = bytes_of(message)
    kind, body, cut = _body(message, protocol, size)
    return ShownMessage(head=list(_head(message, protocol)), size=size, kind=kind, body=body, cut=cut)


def shown_replies(replies: Sequence[Message], protocol: Protocol) -> list[ShownMessage]:
    """Return responses for display. Responses that are too long to show are also included completely, up to MOST_WHOLE
    bytes in total."""
    found: list[ShownMessage] = []
    left = MOST_WHOLE
    for each in replies:
        shown = shown_message(each, protocol)
        if shown.cut and shown.size <= left:
            left -= shown.size
            shown.whole = b64encode(each.body).decode()
        found.append(shown)
    return found


def forms(
    responses: tuple[Response, ...], error: GatewayError | None, request: Request, without: str, size: int
) -> list[ShownForm]:
    """Return the response in every protocol except `without`. `size` is the size of the responses in bytes. A large
    response is not converted, because the conversion would delay other requests."""
    others = [each for name, each in protocols().items() if name != without]
    if size > MOST_IN_FORMS:
        why = f"Responses of more than {MOST_IN_FORMS:,} bytes appear only in their own protocol."
        return [ShownForm(protocol=each.name, messages=[], error=why) for each in others]
    return [_form(each, responses, error, request) for each in others]


def shown_output(tensor: Tensor) -> ShownOutput:
    """Return an output with its first elements."""
    flat = tensor.array.reshape(-1)
    cut = flat.size > MOST_VALUES
    found = [_value(each) for each in flat[:MOST_VALUES].tolist()]
    text = _pretty(found if cut else _nested(found, tensor.shape), 0)
    return ShownOutput(
        name=shortened(tensor.name, LONGEST_SHOWN_NAME),
        datatype=tensor.datatype.value,
        shape=list(tensor.shape),
        values=text[:LONGEST_TEXT],
        cut=cut or len(text) > LONGEST_TEXT,
        elements=flat.size,
    )


def shortened(text: str, length: int) -> str:
    """Return `text`. If it is longer than `length`, return its beginning and its number of characters."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"


def _form(
    protocol: Protocol, responses: tuple[Response, ...], error: GatewayError | None, request: Request
) -> ShownForm:
    try:
        if error is not None and not responses:
            messages = [translate.encode_error(protocol.name, error, None)]
        else:
            messages = [translate.encode_response(protocol.name, each, request) for each in responses]
    except (GatewayError, DecodeError) as refused:
        return ShownForm(protocol=protocol.name, messages=[], error=str(refused))
    return ShownForm(protocol=protocol.name, messages=[shown_message(each, protocol) for each in messages])


def _value(value: object) -> object:
    """Return an element of an output. Show bytes that are not UTF-8 as `\\xNN`."""
    return shortened(value.decode("utf-8", "backslashreplace"), LONGEST_VALUE) if isinstance(value, bytes) else value


def _nested(values: list[object], shape: tuple[int, ...]) -> Any:
    if len(shape) <= 1:
        return values if shape else (values[0] if values else None)
    step = len(values) // shape[0] if shape[0] else 0
    return [_nested(values[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0])]


def _head(message: Message, protocol: Protocol) -> Iterator[str]:
    path = f"{message.path}?{message.query}" if message.query else message.path
    if message.path:
        yield path if message.method in ("", message.path) else f"{message.method} {path}"
    elif not isinstance(protocol.binding, StreamBinding):
        yield f"status {message.status}"
    for name, text in message.headers:
        yield f"{name}: {'***' if name in SECRET_HEADERS else text[:_LONGEST_HEADER]}"


def _body(message: Message, protocol: Protocol, size: int) -> tuple[str, str, bool]:
    if not size:
        return "empty", "", False
    body = bytes(message.body)
    if isinstance(protocol.binding, GrpcBinding | StreamBinding):
        notes = _frame_notes(message, protocol) if isinstance(protocol.binding, StreamBinding) else _field_notes(body)
        return "hex", _hexadecimal(body, dict(notes)), size > MOST_HEX
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "hex", _hexadecimal(body, {}), size > MOST_HEX
    if size <= LONGEST_TEXT:
        try:
            return "json", _pretty(json.loads(text, parse_float=_Literal, parse_int=_Literal), 0), False
        except (ValueError, RecursionError):
            pass
    if not all(each.isprintable() or each in "\n\r\t" for each in text[:LONGEST_TEXT]):
        return "hex", _hexadecimal(body, {}), size > MOST_HEX
    return "text", text[:LONGEST_TEXT], len(text) > LONGEST_TEXT


class _Literal(str):
    """A number with its original digits, because a float would lose some of them."""

    __slots__ = ()


def _pretty(value: Any, depth: int) -> str:
    """Return JSON with lists of numbers on one line."""
    if depth > _DEEPEST:
        raise RecursionError
    if isinstance(value, _Literal):
        return str(value)
    if isinstance(value, dict) and value:
        inner = ",\n".join(
            f"{'  ' * (depth + 1)}{_text(key)}: {_pretty(each, depth + 1)}" for key, each in value.items()
        )
        return f"{{\n{inner}\n{'  ' * depth}}}"
    if isinstance(value, list):
        items = [_pretty(each, depth + 1) for each in value]
        if not any("\n" in each for each in items) and (
            not any(isinstance(each, list | dict) for each in value) or sum(map(len, items)) < _WIDTH
        ):
            return _wrapped(items, depth)
        inner = ",\n".join("  " * (depth + 1) + each for each in items)
        return f"[\n{inner}\n{'  ' * depth}]"
    return _text(value)


def _wrapped(items: list[str], depth: int) -> str:
    """Return a list on as few lines as possible."""
    lines, line = [], ""
    for each in items:
        if line and len(line) + len(each) > _WIDTH:
            lines.append(line)
            line = ""
        line = f"{line}, {each}" if line else each
    lines.append(line)
    return "[" + f",\n{'  ' * depth} ".join(lines) + "]"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _hexadecimal(body: bytes, notes: dict[int, str]) -> str:
    """Return a hex dump of `body` with up to 16 bytes per line.

    Each of the `notes` is on a line above the bytes that it describes. A line of bytes therefore ends where the bytes
    of the next note start."""
    lines: list[str] = []
    at, end = 0, min(len(body), MOST_HEX)
    starts = sorted(each for each in notes if each < end)
    while at < end:
        if at in notes:
            lines.append(f"{notes[at]}")
        following = next((each for each in starts if each > at), end)
        chunk = body[at : min(at + 16, following, end)]
        shown = "".join(chr(each) if 32 <= each < 127 else "." for each in chunk)
        lines.append(f"{at:08x}  {chunk.hex(' '):47}  {shown}")
        at += len(chunk)
    return "\n".join(lines)


def _frame_notes(message: Message, protocol: Protocol) -> Iterator[tuple[int, str]]:
    assert isinstance(protocol.binding, StreamBinding)
    size = protocol.binding.framing.header_size
    yield 0, f"header of {protocol.name}, {size} bytes"
    yield size, f"content, {bytes_of(message) - size} bytes"


def _field_notes(body: bytes) -> Iterator[tuple[int, str]]:
    """Yield the starts of the fields in a protobuf message (Protocol Buffers, "Encoding"). The sequence ends at the
    first malformed field."""
    at = 0
    while at < min(len(body), MOST_HEX):
        begin = at
        tag, at = _varint(body, at)
        number, kind = tag >> 3, tag & 7
        size = 8 if kind == 1 else 4 if kind == 5 else 0
        if kind == 0:
            _, at = _varint(body, at)
        elif kind == 2:
            size, at = _varint(body, at)
        if kind not in _WIRE_TYPES or at < 0:
            return
        yield begin, f"field {number}: {f'{size} bytes' if kind == 2 else _WIRE_TYPES[kind]}"
        at += size


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Return the number at this position, and the position after it, which is -1 if the bytes contain no number
    there."""
    value = 0
    for shift in range(0, 64, 7):
        if not 0 <= at < len(body):
            return 0, -1
        value |= (body[at] & 127) << shift
        at += 1
        if body[at - 1] < 128:
            return value, at
    return 0, -1
