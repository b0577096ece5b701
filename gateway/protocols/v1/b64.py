"""Bytes in JSON: TensorFlow Serving's `{"b64": "<base64>"}` (REST API, "Encoding binary values").

Before the JSON text is read, each such object is replaced by a string with a prefix, the mark. An array of them is then
an array of strings, which the array reader takes. A tensor with at least one becomes BYTES of content type `image`,
which is never treated as text, even where its bytes are valid UTF-8.
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
from gateway.core.types import Tensor

IMAGE = "image"

_KEY = b'"b64"'
# Cannot match inside of a string of valid JSON, where each quote has a backslash before it.
_OBJECT = re.compile(rb'\{[ \t\r\n]*+"b64"[ \t\r\n]*+:[ \t\r\n]*+"([^"\\}]*+)"[ \t\r\n]*+\}')
_OPENING = re.compile(rb'\{[ \t\r\n]*+"b64"[ \t\r\n]*+:[ \t\r\n]*+"')
_CLOSING = re.compile(rb'"[ \t\r\n]*+\}')
_MARK = b"\x7fb64:"
_ESCAPES = (b"\\u007f", b"\\u007F")
_PIECE = 2**20


def mark(text: bytes) -> bytes:
    """The JSON text with a marked string in place of each `b64` object. A text that contains the mark already is
    returned unchanged, so that a client's own string is never decoded."""
    if _KEY not in text or _MARK in text or any(escape in text for escape in _ESCAPES):
        return text
    # `re` holds the GIL while it works, so large texts are done in pieces. A match ends at the first closing brace, so
    # a piece may end after any brace.
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
    """The same for a piece whose last object is too large for `re`: no brace is in it from `at + _PIECE` on but the
    last byte, so it is the last `b64` object, or none is."""
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
    """The tensor with its marked strings decoded to bytes.

    Raises:
        DecodeError: names `what`; a marked string is not base64.
    """
    if tensor.datatype is not Datatype.BYTES or _MARK not in bytes(tensor.data):
        return tensor
    elements = chain.from_iterable(bytes_elements.pieces(tensor.data))
    data = bytes_elements.pack(_decoded(elements, what))
    return replace(tensor, data=data, content_type=IMAGE)


def restore_objects(given: Json) -> Json:
    """A member without tensors, with each marked string turned back into its `b64` object."""
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
    """The bytes that `text[start:]` stands for; of a large text a piece at a time, since decoding 64 MiB at once would
    stop all other threads for 130 ms.

    Raises:
        ValueError: it is not base64.
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
    """The `b64` object of one element."""
    if len(element) <= _PIECE:
        return b'{"b64":"%b"}' % b64encode(element)
    step = _PIECE // 3 * 3  # whole groups, so that only the last piece is padded
    pieces = (b64encode(element[at : at + step]) for at in range(0, len(element), step))
    return b"".join((b'{"b64":"', *pieces, b'"}'))
