"""Reads and writes examples as JSON texts, in the form of Python's json module. Numbers, booleans and strings, alone or
in rectangular lists, become tensors. All other JSON becomes BYTES that contain the JSON text itself."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, ElementError, invalid_input
from gateway.core.json import (
    PIECE,
    Array,
    number_pieces,
    read,
    read_bare,
    string_rows,
    write_numbers,
)
from gateway.core.messages import Buffer, as_bytes, join
from gateway.core.tensors import Tensor

STRINGS = "strings"
"""The content type of BYTES that were JSON strings. A MIP peer receives these BYTES as JSON strings again."""

_DATATYPES = {"i": Datatype.INT64, "u": Datatype.UINT64, "f": Datatype.FP64, "b": Datatype.BOOL}
"""The datatype of an array, by the dtype kind that the JSON reader derived from the literals."""


def decode(examples: Sequence[Buffer], what: str, json_values: int) -> Tensor:
    """Return the examples as one untyped Tensor with an added first dimension.

    If the examples are not rectangular arrays of numbers, booleans or strings, or differ in shape or kind, return BYTES
    `[batch]` with the text of each example. `json_values` is `limits.json_values`.

    Raises:
        DecodeError: an example is not JSON. The message contains `what`.
    """
    texts = [_as_utf8(example) for example in examples]
    try:
        return _tensor(_as_one_array(texts, json_values))
    except DecodeError:
        _check_each(texts, what, json_values)
    return Tensor("", Datatype.BYTES, (len(texts),), bytes_elements.pack(texts), content_type="json")


def encode_numbers(tensor: Tensor, nan: str, what: str) -> list[list[Buffer]]:
    """Return the JSON text of each row of a tensor of numbers or BOOL, in pieces. Floats are widened to doubles without
    loss of precision.

    Raises:
        GatewayError: INVALID_ARGUMENT if the tensor contains NaN or an infinity and `nan` is `error`.
    """
    array = tensor.array
    if array.dtype.kind not in "biu":
        array = array.astype(np.float64, copy=False)
    size = array.size // max(1, len(array))
    if not 0 < size <= PIECE:
        return [list(number_pieces(row, nan, what)) for row in array]
    # One orjson call writes many rows, because a call for each row takes 5 us and leaves a gap of a kilobyte in memory.
    rows = PIECE // size
    some = (array[at : at + rows] for at in range(0, len(array), rows))
    return [[row] for part in some for row in _rows(part, nan, what)]


def _rows(array: "np.ndarray[Any, Any]", nan: str, what: str) -> list[bytes]:
    """Return the JSON text of each row of an array of at most PIECE numbers."""
    try:
        text = write_numbers(array, nan, what)
    except ElementError:
        return [write_numbers(row, nan, what) for row in array]  # the message counts the elements of the row
    opened, closed = b"[" * (array.ndim - 1), b"]" * (array.ndim - 1)
    inner = text[array.ndim : -array.ndim].split(b"%b,%b" % (closed, opened))
    return [b"%b%b%b" % (opened, row, closed) for row in inner]


def encode_strings(tensor: Tensor, what: str) -> list[list[Buffer]]:
    """Return the JSON text of each row of a BYTES tensor. Each text is a nested list of strings.

    Raises:
        GatewayError: INVALID_ARGUMENT if an element is not UTF-8.
    """
    return [[row] for row in string_rows(_texts(tensor, what), tensor.shape)]


def _texts(tensor: Tensor, what: str) -> Iterator[list[str]]:
    """Yield the elements of a BYTES tensor as strings, in lists of bounded length.

    Raise the errors of `decode_text`."""
    at = 0
    for elements in bytes_elements.pieces(tensor.data):
        yield [decode_text(element, number, what) for number, element in enumerate(elements, at)]
        at += len(elements)


def decode_text(element: bytes, at: int, what: str) -> str:
    """Return `element`, the BYTES element at position `at`, as text.

    Raises:
        GatewayError: INVALID_ARGUMENT if the element is not UTF-8.
    """
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise invalid_input(f"{what}: element {at} is not UTF-8, as MIP's TEXT and JSON require") from error


def _as_utf8(example: Buffer) -> bytes:
    raw = as_bytes(example)
    encoding = json.detect_encoding(raw)
    if encoding == "utf-8":
        return raw
    try:
        return raw.decode(encoding).encode()
    except UnicodeError as error:
        raise DecodeError(f"not JSON: begins like {encoding}, but is not valid {encoding}") from error


def _as_one_array(texts: list[bytes], json_values: int) -> Array:
    """Return all examples as one array with an added first dimension.

    Raises:
        DecodeError: the examples are not arrays, or differ in shape or kind.
    """
    if len(texts) > 1 and all(map(_stands_alone, texts)):
        array = read_bare(_as_one_list(texts), values=json_values, literals=True)
        if array.shape[0] != len(texts):
            raise DecodeError("an example holds several values")
        return array
    arrays = (read_bare(text, values=json_values, literals=True) for text in texts)
    first = next(arrays)
    return Array(_join_strings(first, arrays) if len(texts) > 1 else first.values, (len(texts), *first.shape))


def _as_one_list(texts: list[bytes]) -> bytes:
    # join() would take 80 bytes for each text, and a packet can contain one text per 9 bytes.
    joined = bytearray(b"[")
    for text in texts:
        joined += text
        joined += b","
    joined[-1:] = b"]"
    return as_bytes(joined)


def _stands_alone(text: bytes) -> bool:
    """Return whether the text can be joined with other texts by commas and decoded as one row of an array. Such a text
    contains no strings and closes all brackets that it opens. Without this check, `[1` and `2]` would become one
    list."""
    if b'"' in text:
        return False
    opened = text.count(b"[")
    if not opened:
        return b"," not in text and b"]" not in text
    return opened == text.count(b"]") and text.lstrip()[:1] == b"[" and text.rstrip()[-1:] == b"]"


def _join_strings(first: Array, others: Iterable[Array]) -> bytes:
    """Return the strings of all arrays in the raw form of BYTES."""
    if not isinstance(first.values, bytes):
        raise DecodeError("an example can hold several values")
    joined = bytearray(first.values)
    for array in others:
        if array.shape != first.shape or not isinstance(array.values, bytes):
            raise DecodeError("examples differ in shape or datatype")
        joined += array.values
    return as_bytes(joined)


def _tensor(array: Array) -> Tensor:
    values = array.values
    if isinstance(values, bytes):
        return Tensor("", Datatype.BYTES, array.shape, values, content_type=STRINGS, untyped=True)
    return Tensor("", _DATATYPES[values.dtype.kind], array.shape, values.view(np.uint8).data, untyped=True)


_MAX_SCALAR = 5000
"""Maximum length of a JSON number, in bytes. Python rejects integers with more than 4300 digits."""


def _check_each(texts: list[bytes], what: str, json_values: int) -> None:
    for at, text in enumerate(texts):
        if len(text) > _MAX_SCALAR and text.lstrip()[:1] not in (b"[", b"{", b'"'):
            raise DecodeError(f"{what} of example {at}: not JSON, or a number of {len(text)} digits")
        try:
            document = read(join(b'{"example":', text, b"}"), {}, values=json_values, literals=True)
        except DecodeError as error:
            raise DecodeError(f"{what} of example {at}: {error}") from error
        if len(document) != 1:
            raise DecodeError(f"{what} of example {at}: not JSON")
