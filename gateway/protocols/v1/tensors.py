"""Converts one tensor to a JSON value, and back.

`json_bodies` splits a body (`instances`, `inputs`) into such values and stacks rows.

Numbers, booleans, strings and bytes (`b64`) in rectangular lists are tensors. KServe models can use any other JSON.
This JSON becomes BYTES of content type `json`. The elements are JSON texts, one for each row, or a single text. A V1
body contains these texts unchanged.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import orjson

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.json import (
    Array,
    Json,
    nested_string_pieces,
    number_pieces,
    number_rows,
    read_bare,
    string_rows,
    utf8_pieces,
)
from gateway.core.json.contents import UNTYPED
from gateway.core.requests import Translate
from gateway.core.tensors import Tensor
from gateway.protocols.v1 import b64

ANY_JSON = "json"
_BASE64 = "base64"


# --- Reading ---


def from_array(name: str, array: Array) -> Tensor:
    """Return the tensor of a rectangular JSON array or a scalar."""
    values = array.values
    if isinstance(values, bytes):
        return Tensor(name, Datatype.BYTES, array.shape, values, untyped=True)
    return Tensor(name, UNTYPED[values.dtype.kind], array.shape, values.view(np.uint8).data, untyped=True)


def scalar(array: Array) -> Json:
    """Return the Python value of an array of shape ()."""
    if isinstance(array.values, bytes):
        return bytes_elements.unpack(array.values)[0].decode()
    return array.values.tolist()[0]


def from_value(name: str, given: Json, what: str, values: int) -> Tensor:
    """Return the tensor of a parsed JSON value. `values` is `limits.json_values`.

    Raises:
        DecodeError: the value is not rectangular, or contains null or an object. The message contains `what`.
    """
    try:
        return from_array(name, read_bare(_text(given), values=values, literals=False))
    except DecodeError as error:
        raise DecodeError(f"{what}: {error}") from error


def texts_of_rows(name: str, rows: list[Json]) -> Tensor:
    """Return rows of arbitrary JSON as BYTES of shape (rows,) with the text of each row."""
    texts = [_text(row) for row in rows]
    return Tensor(name, Datatype.BYTES, (len(texts),), bytes_elements.pack(texts), content_type=ANY_JSON)


def text_of_value(name: str, given: Json) -> Tensor:
    """Return arbitrary JSON as BYTES of shape () with its text."""
    return Tensor(name, Datatype.BYTES, (), bytes_elements.pack([_text(given)]), content_type=ANY_JSON)


def json_text(name: str, text: bytes) -> Tensor:
    """Return a JSON text as BYTES of shape (). Raise DecodeError if the text is not JSON."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DecodeError(f"not JSON: {error}") from error
    return Tensor(name, Datatype.BYTES, (), bytes_elements.pack([text]), content_type=ANY_JSON)


def _text(given: Json) -> bytes:
    try:
        return json.dumps(given, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError as error:
        raise DecodeError("a number is out of the range of a double") from error


# --- Writing ---


def to_json(tensor: Tensor, nan: str, translate: Translate, what: str) -> tuple[bytes, ...]:
    """Return the JSON value of a tensor, nested by its shape, in pieces. `nan` is the form of NaN and infinities.

    Raises:
        GatewayError: INVALID_ARGUMENT if the tensor contains NaN or an infinity and `nan` is `error`, or an element of
            content type `json` that is not JSON. The message contains `what`.
    """
    if tensor.datatype is not Datatype.BYTES:
        return tuple(number_pieces(tensor.array, nan, what))
    write = _element_writer(tensor, translate, what)
    if write is None:
        if len(tensor.shape) == 1:
            return tuple(utf8_pieces(bytes_elements.pieces(tensor.data)))
        if tensor.shape:
            return tuple(nested_string_pieces(_strings(tensor), tensor.shape))
        return (orjson.dumps(_nested(tensor, bytes.decode)),)
    return (_join(_nested(tensor, write)),)


def _strings(tensor: Tensor) -> Iterator[list[str]]:
    return (list(map(bytes.decode, each)) for each in bytes_elements.pieces(tensor.data))


def rows_to_json(tensor: Tensor, nan: str, translate: Translate, what: str) -> list[bytes]:
    """Return the JSON value of each row of a tensor of rank 1 or more. Raise the errors of `to_json`."""
    if tensor.datatype is Datatype.BYTES:
        write = _element_writer(tensor, translate, what)
        if write is None:
            return string_rows(_strings(tensor), tensor.shape)
        return [_join(row) for row in _nested(tensor, write)]
    if not tensor.elements:
        return [b"".join(number_pieces(row, nan, what)) for row in tensor.array]
    return number_rows(b"".join(number_pieces(tensor.array, nan, what)), len(tensor.shape))


def _element_writer(tensor: Tensor, translate: Translate, what: str) -> Callable[[bytes], bytes] | None:
    """Return the function that writes a BYTES element, or None for plain strings. If one element is not UTF-8, all
    elements become `b64` objects."""
    if tensor.content_type == ANY_JSON:
        return lambda element: _checked_json(element, what)
    if tensor.content_type == b64.IMAGE or translate.bytes == _BASE64:
        return b64.to_json
    try:
        for some in bytes_elements.pieces(tensor.data):
            list(map(bytes.decode, some))
    except UnicodeDecodeError:
        return b64.to_json
    return None


def _checked_json(element: bytes, what: str) -> bytes:
    """Return a JSON text after checking it, because a text that is not JSON could add members to the body."""
    try:
        orjson.loads(element)
    except orjson.JSONDecodeError as error:
        raise invalid_input(f"{what} has the content type 'json', but an element is not JSON: {error}") from error
    return element


def _nested(tensor: Tensor, write: Callable[[bytes], Any]) -> Any:
    flat = np.empty(tensor.elements, object)
    flat[:] = [write(each) for each in bytes_elements.unpack(tensor.data)]
    return flat.reshape(tensor.shape).tolist()


def _join(nested: Any) -> bytes:
    return b"[%b]" % b",".join(map(_join, nested)) if type(nested) is list else nested
