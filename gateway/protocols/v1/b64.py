"""Reads and writes bytes in JSON, in TensorFlow Serving's form `{"b64": "<base64>"}` (REST API, "Encoding binary
values").

Before parsing the JSON text, the gateway replaces every `b64` object with a string that begins with a mark. An array of
`b64` objects thus becomes an array of strings, which the array reader accepts. A tensor with at least one `b64` object
becomes BYTES of content type `image`. The gateway never treats these BYTES as text, even if they are valid UTF-8.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from itertools import chain

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.json import Json
from gateway.core.tensors import Tensor

IMAGE = "image"

_KEY = b'"b64"'
# This pattern cannot match inside a string of valid JSON, in which a backslash precedes each quote.
_OBJECT = re.compile(rb'\{[ \t\r\n]*+"b64"[ \t\r\n]*+:[ \t\r\n]*+"([^"\\}]*+)"[ \t\r\n]*+\}')
_OPENING = re.compile(rb'\{[ \t\r\n]*+"b64"[ \t\r\n]*+:[ \t\r\n]*+"')
_CLOSING = re.compile(rb'"[ \t\r\n]*+\}')
_MARK = b"\x7fb64:"
_ESCAPES = (b"\\u007f", b"\\u007F")
_PIECE = 2**20


def mark(text: bytes) -> bytes:
    """Return the JSON text with each `b64` object replaced by a marked string.

    A text that already contains the mark stays unchanged, because the gateway must not decode a client's own string."""
    if _KEY not in text or _MARK in text or any(escape in text for escape in _ESCAPES):
        return text
    # `re` holds the GIL while it runs, so the function processes large texts in pieces. A match ends at the first
    # closing brace, so a piece can end after any closing brace.
    marked: list[bytes | memoryview] = []
    at = 0
    while at < len(text):
        brace = text.find(b"}", at + _PIECE)
        end = len(text) if brace < 0 else brace + 1
        if end - at > 2 * _PIECE:
            marked += _marked_large(text, at, end)
        else:
            marked.append(_OBJECT.sub(b'"%b\\1"' % _MARK, text[at:end]))
        at = end
    return b"".join(marked)


def _marked_large(text: bytes, at: int, end: int) -> Iterator[bytes | memoryview]:
    """Yield the marked text of a piece whose last object is too large for `re`. From `at + _PIECE` on, the only closing
    brace is the last byte of the piece. If this brace ends a `b64` object, this object is the last one."""
    whole, key = memoryview(text), text.rfind(_KEY, at, min(at + 2 * _PIECE, end))
    brace = text.rfind(b"{", at, key) if key >= 0 else -1
    opening = _OPENING.match(text, brace, min(brace + _PIECE, end)) if brace >= 0 else None
    close = text.find(b'"', opening.end(), end) if opening else -1
    is_object = (
        opening is not None
        and close >= 0
        and all(text.find(byte, opening.end(), close) < 0 for byte in (b"\\", b"}"))
        and _CLOSING.fullmatch(text, close, end) is not None
    )
    if opening is None or not is_object:
        yield _OBJECT.sub(b'"%b\\1"' % _MARK, text[at:end])
        return
    yield _OBJECT.sub(b'"%b\\1"' % _MARK, text[at:brace])
    yield b'"%b' % _MARK
    yield whole[opening.end() : close + 1]


def decode_marked(tensor: Tensor, what: str) -> Tensor:
    """Return the tensor with its marked strings decoded to bytes.

    Raises:
        DecodeError: a marked string is not base64. The message contains `what`.
    """
    if tensor.datatype is not Datatype.BYTES or _MARK not in bytes(tensor.data):
        return tensor
    elements = chain.from_iterable(bytes_elements.pieces(tensor.data))
    data = bytes_elements.pack(_decoded(elements, what))
    return replace(tensor, data=data, content_type=IMAGE)


def restore_objects(given: Json) -> Json:
    """Return a body member other than tensors, with each marked string converted back to its `b64` object."""
    if isinstance(given, dict):
        return {name: restore_objects(each) for name, each in given.items()}
    if isinstance(given, list):
        return [restore_objects(each) for each in given]
    mark = _MARK.decode()
    return {"b64": given.removeprefix(mark)} if isinstance(given, str) and given.startswith(mark) else given


def _decoded(elements: Iterable[bytes], what: str) -> Iterator[bytes]:
    for at, element in enumerate(elements):
        if not element.startswith(_MARK):
            yield element
            continue
        try:
            yield _decode(element, len(_MARK))
        except ValueError as error:
            raise DecodeError(f'{what}: element {at} has a "b64" that is not base64') from error


def _decode(text: bytes, start: int) -> bytes:
    """Return the bytes of the base64 text in `text[start:]`.

    The function decodes a large text piece by piece, because decoding 64 MiB in one call would block all other threads
    for 130 ms.

    Raises:
        ValueError: the text is not base64.
    """
    decoded: list[bytes] = []
    at = start
    while len(text) - at > 2 * _PIECE:
        decoded.append(b64decode(text[at : at + _PIECE], validate=True))
        if len(decoded[-1]) < _PIECE // 4 * 3:
            raise ValueError("padding before the end")
        at += _PIECE
    decoded.append(b64decode(text[at:], validate=True))
    return decoded[0] if len(decoded) == 1 else b"".join(decoded)


def to_json(element: bytes) -> bytes:
    """Return the `b64` object of one element."""
    if len(element) <= _PIECE:
        return b'{"b64":"%b"}' % b64encode(element)
    step = _PIECE // 3 * 3  # pieces of complete groups, so only the last piece is padded
    pieces = (b64encode(element[at : at + step]) for at in range(0, len(element), step))
    return b"".join((b'{"b64":"', *pieces, b'"}'))
