"""Defines the common parts of reading and writing a tensor. `TensorForm` contains the tensor's placeholder, spelling
and declaration in a form; `places` and `writing` pass it to `tensor_reading` and `tensor_writing`. The module also
converts numbers in strings.
"""

from math import prod

import numpy as np

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen
from gateway.core.models import TensorSpec
from gateway.core.tensors import Shape
from gateway.protocols.json.templates import TensorPlace


@frozen
class TensorForm:
    """A tensor of a template.

    - `name`: The name of the decoded tensor; empty if the form declares no tensors.
    - `label`: The tensor's name in error messages, such as `input 'x'`.
    - `spec`: The tensor's datatype and shape, if the form declares them.
    - `rows`: The number of row lists around the tensor.
    - `has_shape`: True if the template also contains a placeholder for the shape (`|shape`).
    """

    place: TensorPlace
    name: str
    label: str
    spec: TensorSpec | None
    rows: int
    has_shape: bool = False


def fits(shape: Shape, wanted: Shape) -> bool:
    """Return True if `shape` matches `wanted`, in which -1 means any size."""
    if len(shape) != len(wanted):
        return False
    for own, each in zip(shape, wanted):  # noqa: B905, SIM110 - a generator and `strict` would take three times as long
        if own != each and each != -1:
            return False
    return True


def filled(wanted: Shape, elements: int) -> Shape | None:
    """Return `wanted` with its -1 replaced by the size that results in this number of elements, or None if no such size
    exists."""
    free = wanted.count(-1)
    known = prod(each for each in wanted if each >= 0)
    if free == 0:
        return wanted if known == elements else None
    if free > 1 or not known or elements % known:
        return None
    return tuple(elements // known if each < 0 else each for each in wanted)


# --- Numbers in strings: `["0", "1.5"]` (`$x|numbers`) and `"0,1.5"` (`$x|commas`) ---

# To avoid a Python object for each number, these functions replace the quotes in the text by blanks or brackets, and
# the ordinary reader of numbers reads the result. This reader cannot detect a string with several numbers, so the
# functions first reject commas and brackets within quotes.

_PIECE = 2**20
"""Number of bytes to process in one step."""
_QUOTE = ord('"')


def numbers_of_texts(text: bytes) -> bytes:
    """Return `["0", "1"]` as `[ 0 , 1 ]`. Raise DecodeError for a string that cannot be one number."""
    return _replaced(text, b"[]{},", b"  ")


def numbers_of_lists(text: bytes) -> bytes:
    """Return `["0,1", "2,3"]` as `[[0,1], [2,3]]`. Raise DecodeError for a string that cannot be numbers separated by
    commas."""
    return _replaced(text, b"[]{}", b"[]")


def _replaced(text: bytes, refused: bytes, brackets: bytes) -> bytes:
    """Return `text` with its quotes replaced by `brackets`. Raise DecodeError if a quoted string contains a byte in
    `refused`."""
    if b"\\" in text:
        raise DecodeError("a text with a backslash, expected a number")
    table = np.zeros(256, np.bool_)
    table[list(refused)] = True
    found = np.frombuffer(text, np.uint8).copy()
    is_open = False
    for start in range(0, len(found), _PIECE):
        piece = found[start : start + _PIECE]
        quotes = piece == _QUOTE
        within = np.logical_xor.accumulate(quotes) ^ is_open
        if (within & table[piece]).any():
            raise DecodeError('a text that is not a number, expected a text like "1.5"')
        is_open = bool(within[-1])
        piece[quotes & within], piece[quotes & ~within] = brackets
    return found.tobytes()


def texts_of_numbers(text: bytes) -> bytes:
    """Return a compact JSON text of numbers, flat or nested, with each number as a string. null stays null."""
    if b"[]" in text:
        return text
    found = text.replace(b",", b'","').replace(b"[", b'["').replace(b"]", b'"]')
    while b'"[' in found:
        found = found.replace(b'"[', b"[").replace(b']"', b"]")
    found = found if found.startswith(b"[") else b'"%b"' % found
    return found.replace(b'"null"', b"null")


def text_with_commas(text: bytes) -> bytes:
    """Return a flat JSON list of numbers as one JSON string."""
    return b'"%b"' % text[1:-1]
