"""Bytes in JSON, `{"b64": "..."}`: read together with the strings that may stand beside them.

While the text is read each such object is a string that begins with a mark, so that arrays of them are arrays of
strings. An array that holds one becomes BYTES of content type `image`: no text, whatever the bytes happen to be.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from itertools import chain

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.types import Tensor
from gateway.json import Json

IMAGE = "image"

_KEY = b'"b64"'
# Within valid JSON this can be nothing else: inside of a string a quote has a backslash before it.
_OBJECT = re.compile(rb'\{[ \t\r\n]*+"b64"[ \t\r\n]*+:[ \t\r\n]*+"([^"\\}]*+)"[ \t\r\n]*+\}')
_MARK = b"\x7fb64:"
_ESCAPES = (b"\\u007f", b"\\u007F")
_PIECE = 2**20


def marked(text: bytes) -> bytes:
    """JSON text with marked strings in place of such objects. A text that has the mark already, which no client has a
    reason for, is left as it is."""
    if _KEY not in text or _MARK in text or any(escape in text for escape in _ESCAPES):
        return text
    # No match goes on behind a brace, so a piece may end at any. By pieces, since no other thread works meanwhile.
    marked, at = bytearray(), 0
    while at < len(text):
        brace = text.find(b"}", at + _PIECE)
        end = len(text) if brace < 0 else brace + 1
        marked += _OBJECT.sub(b'"%b\\1"' % _MARK, text[at:end])
        at = end
    return bytes(marked)


def unmarked(tensor: Tensor, what: str) -> Tensor:
    """The tensor with the bytes of its marked strings.

    Raises:
        DecodeError: naming `what`, a string that is not base64.
    """
    if tensor.datatype is not Datatype.BYTES or _MARK not in bytes(tensor.data):
        return tensor
    elements = chain.from_iterable(bytes_elements.pieces(tensor.data))
    data = bytes_elements.pack(_decoded(elements, what))
    return replace(tensor, data=data, content_type=IMAGE)


def restored(given: Json) -> Json:
    """JSON beside the tensors, with the objects that marked strings stand for."""
    if isinstance(given, dict):
        return {name: restored(each) for name, each in given.items()}
    if isinstance(given, list):
        return [restored(each) for each in given]
    mark = _MARK.decode()
    return {"b64": given.removeprefix(mark)} if isinstance(given, str) and given.startswith(mark) else given


def _decoded(elements: Iterable[bytes], what: str) -> Iterator[bytes]:
    for at, element in enumerate(elements):
        if not element.startswith(_MARK):
            yield element
            continue
        try:
            yield b64decode(element[len(_MARK) :], validate=True)
        except ValueError as error:
            raise DecodeError(f'{what}: element {at} is no base64, which "b64" stands for') from error


def to_json(element: bytes) -> bytes:
    """The object of one element."""
    return b'{"b64":"%b"}' % b64encode(element)
