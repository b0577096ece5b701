"""Examples in JSON text, as Python's json reads and writes it: numbers, booleans and strings in rectangular lists are
tensors, any other JSON is BYTES that hold the text itself."""

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.types import Buffer, Shape, Tensor
from gateway.json import Array, number_pieces, read, read_bare, string_pieces, write

STRINGS = "strings"
"""The content type of BYTES that were strings in JSON, and stay such on their way to a peer that speaks MIP."""

_UNTYPED = {"i": Datatype.INT64, "u": Datatype.UINT64, "f": Datatype.FP64, "b": Datatype.BOOL}


def stack(contents: Sequence[Buffer], name: str, what: str, values: int) -> Tensor:
    """The examples in `contents` as one untyped tensor with a dimension more in front; of JSON that is no rectangular
    array of numbers, booleans or strings, or not the same in all examples, BYTES `[batch]` of its texts. `values`
    is `limits.json_values`.

    Raises:
        DecodeError: naming `what`, if it is not JSON.
    """
    texts = [_utf8(content) for content in contents]
    try:
        return _tensor(_array(texts, values), name)
    except DecodeError:
        _check(texts, what, values)
    return Tensor(name, Datatype.BYTES, (len(texts),), bytes_elements.pack(texts), content_type="json")


def texts_of_numbers(tensor: Tensor, rows: int, shape: Shape, nan: str, what: str) -> list[list[Buffer]]:
    """Each of the `rows` of a tensor of numbers, of the given shape. Floats are widened to double, exactly.

    Raises:
        GatewayError: INVALID_ARGUMENT, NaN or an infinity if `nan` is `error`.
    """
    array = tensor.array.reshape(rows, *shape)
    if array.dtype.kind not in "biu":
        array = array.astype(np.float64, copy=False)
    return [list(number_pieces(row, nan, what)) for row in array]


def texts_of_strings(tensor: Tensor, rows: int, shape: Shape, what: str) -> list[list[Buffer]]:
    """Each of the `rows` of a tensor of BYTES, of the given shape, as a nested list of strings.

    Raises:
        GatewayError: INVALID_ARGUMENT, an element is not UTF-8.
    """
    texts = [text(element, at, what) for at, element in enumerate(bytes_elements.unpack(tensor.data))]
    if len(shape) == 1:
        [size] = shape
        return [list(string_pieces(_lists(texts, row * size, size))) for row in range(rows)]
    flat = np.empty(tensor.elements, object)
    flat[:] = texts
    array = flat.reshape(rows, *shape)
    return [[write(array[row].tolist() if shape else array[row])] for row in range(rows)]


def _lists(texts: list[str], start: int, size: int) -> Iterator[list[str]]:
    """So many texts from `start`, in lists that are not long."""
    end = start + size
    return (texts[at : min(at + bytes_elements.PIECE, end)] for at in range(start, end, bytes_elements.PIECE))


def text(element: bytes, at: int, what: str) -> str:
    """The text of a BYTES element.

    Raises:
        GatewayError: INVALID_ARGUMENT, it is not UTF-8.
    """
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise invalid_input(f"{what}: element {at} is not UTF-8, and MIP's TEXT and JSON carry nothing else") from error


def _utf8(content: Buffer) -> bytes:
    raw = bytes(content)
    encoding = json.detect_encoding(raw)
    if encoding == "utf-8":
        return raw
    try:
        return raw.decode(encoding).encode()
    except UnicodeError as error:
        raise DecodeError(f"not JSON: begins as {encoding}, and is not") from error


def _array(texts: list[bytes], values: int) -> Array:
    """All examples as one array.

    Raises:
        DecodeError: they are not.
    """
    if len(texts) > 1 and all(map(_is_closed, texts)):
        array = read_bare(_in_one_list(texts), values=values, literals=True)
        if array.shape[0] != len(texts):
            raise DecodeError("examples run into each other")
        return array
    arrays = (read_bare(each, values=values, literals=True) for each in texts)
    first = next(arrays)
    return Array(_joined(first, arrays) if len(texts) > 1 else first.values, (len(texts), *first.shape))


def _in_one_list(texts: list[bytes]) -> bytes:
    # join() takes 80 bytes for each, of which there may be one in every nine bytes of a packet
    joined = bytearray(b"[")
    for each in texts:
        joined += each
        joined += b","
    joined[-1:] = b"]"
    return bytes(joined)


def _is_closed(text: bytes) -> bool:
    """Whether the text cannot run into the next one when they are joined by commas, and read as one array of as many
    rows: it has no strings, and closes the brackets it opens."""
    if b'"' in text:
        return False
    opened = text.count(b"[")
    if not opened:
        return b"," not in text and b"]" not in text
    return opened == text.count(b"]") and text.lstrip()[:1] == b"[" and text.rstrip()[-1:] == b"]"


def _joined(first: Array, others: Iterable[Array]) -> bytes:
    """The raw form of the strings of them all."""
    if not isinstance(first.values, bytes):
        raise DecodeError("examples are not JSON by themselves")
    joined = bytearray(first.values)
    for array in others:
        if array.shape != first.shape or not isinstance(array.values, bytes):
            raise DecodeError("examples differ in shape or sort")
        joined += array.values
    return bytes(joined)


def _tensor(array: Array, name: str) -> Tensor:
    values = array.values
    if isinstance(values, bytes):
        return Tensor(name, Datatype.BYTES, array.shape, values, content_type=STRINGS, untyped=True)
    return Tensor(name, _UNTYPED[values.dtype.kind], array.shape, values.view(np.uint8).data, untyped=True)


_LONGEST_SCALAR = 5000
"""Python refuses integers of more than 4300 digits."""


def _check(texts: list[bytes], what: str, values: int) -> None:
    for at, each in enumerate(texts):
        if len(each) > _LONGEST_SCALAR and each.lstrip()[:1] not in (b"[", b"{", b'"'):
            raise DecodeError(f"{what} of example {at}: not JSON, or a number of {len(each)} digits")
        try:
            document = read(b'{"example":' + each + b"}", {}, values=values, literals=True)
        except DecodeError as error:
            raise DecodeError(f"{what} of example {at}: {error}") from error
        if len(document) != 1:
            raise DecodeError(f"{what} of example {at}: not JSON")
