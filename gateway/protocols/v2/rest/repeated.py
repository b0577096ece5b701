"""Documents written like one before: those with the same text around the numbers of their only tensor.

    {"model_name":"m","outputs":[{"name":"y","datatype":"FP64","shape":[1,2],"data":[1.5,2.5]}]}

Most messages have one tensor of numbers and no parameters. The text around the numbers, or before their raw bytes,
follows from a few names, and is kept under these names; only an id, which differs in each request, is placed in it. For
any other message these functions return None, and for numbers that JSON does not have: `client` and `server` then write
it member by member, as they write the same text without this module.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, TypeAlias

import orjson

from gateway import json
from gateway.core.layouts import LONGEST, LayoutStore
from gateway.core.types import Buffer, Headers, Request, Response, Tensor
from gateway.protocols.v2.rest.binary import binary_headers
from gateway.protocols.v2.rest.json_bodies import JSON_HEADERS, JsonObject
from gateway.protocols.v2.rest.tensors import write_binary
from gateway.protocols.v2.rest.usual import WRITTEN
from gateway.protocols.v2.rest.verbatim import BodyForm

_FEW = 256
"""Bytes of numbers up to which they cost less as Python's than as numpy's."""

_Unpack: TypeAlias = Callable[[Buffer], tuple[Any, ...]]
_BeforeNumbers: TypeAlias = tuple[bytes, _Unpack]
"""The text before the numbers, and what reads them from a tensor's data."""
_BEHIND = b"}]}"
"""The text behind the numbers: they are the last member of the last entry."""
_BeforeBytes: TypeAlias = tuple[Headers, bytes]
"""The document that raw bytes follow, and the headers of such a body."""
_Body: TypeAlias = tuple[Headers, tuple[Buffer, ...]]

_json: LayoutStore[tuple[object, ...], _BeforeNumbers] = LayoutStore()
_binary: LayoutStore[tuple[object, ...], _BeforeBytes] = LayoutStore()
# By the names of model and version, None in requests, the tensor's name, datatype and shape, and its bytes.


def request_in(form: BodyForm, request: Request) -> _Body | None:
    """Headers and body of an inference request with the tensor in this form. It wants all outputs in the same form."""
    if request.outputs or request.parameters or len(request.inputs) != 1:
        return None
    return (_in_json if form is _JSON else _in_binary)(None, None, request.id, request.inputs[0])


def response_in(form: BodyForm, response: Response, request: Request) -> _Body | None:
    """Headers and body of a response with the tensor in this form, under the names and the id of the client's
    `request`."""
    if response.parameters or len(response.outputs) != 1:
        return None
    model, version = request.model or response.model, request.version or response.version
    return (_in_json if form is _JSON else _in_binary)(model, version, request.id, response.outputs[0])


_JSON = BodyForm.JSON


def _in_json(model: str | None, version: str | None, id: str | None, tensor: Tensor) -> _Body | None:
    data = tensor.data
    if len(data) > _FEW or tensor.parameters:
        return None
    key = model, version, tensor.name, tensor.datatype, tensor.shape, len(data)
    before = _json.get(key) or _before_numbers(key, tensor)
    if before is None:
        return None
    text, unpack = before
    numbers = orjson.dumps(unpack(data))
    if b"n" in numbers:  # a null: NaN or an infinity
        return None
    if id is not None:
        text = b'{"id":%b,%b' % (json.write(id), text[1:])
    return JSON_HEADERS, (b"%b%b%b" % (text, numbers, _BEHIND),)


def _in_binary(model: str | None, version: str | None, id: str | None, tensor: Tensor) -> _Body | None:
    data = tensor.data
    if tensor.parameters or not len(data):
        return None
    key = model, version, tensor.name, tensor.datatype, tensor.shape, len(data)
    before = _binary.get(key) or _before_bytes(key, tensor)
    if before is None:
        return None
    headers, text = before
    if id is not None:
        text = b'{"id":%b,%b' % (json.write(id), text[1:])
        headers = binary_headers(len(text))
    return headers, (text, data)


def _before_numbers(key: tuple[Any, ...], tensor: Tensor) -> _BeforeNumbers | None:
    """None for a tensor without numbers, or with some that not every server takes."""
    if tensor.datatype not in WRITTEN:
        return None
    model, version, *_ = key
    place = orjson.Fragment(b"")  # of the numbers; `data` has to be the last member for _BEHIND
    entry = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape, "data": place}
    text = json.write(_document(model, version, entry, binary=False)).removesuffix(_BEHIND)
    letter, size = WRITTEN[tensor.datatype]
    before = text, _reader(len(tensor.data) // size, letter)
    _keep(_json, key, before, len(text))
    return before


@lru_cache(256)
def _reader(count: int, letter: str) -> _Unpack:
    """The same one for all models: it then stays in the processor's caches."""
    return Struct(f"<{count}{letter}").unpack


def _before_bytes(key: tuple[Any, ...], tensor: Tensor) -> _BeforeBytes | None:
    """None as `_before_numbers`."""
    if tensor.datatype not in WRITTEN:
        return None
    model, version, *_ = key
    text = json.write(_document(model, version, write_binary(tensor), binary=True))
    before = binary_headers(len(text)), text
    _keep(_binary, key, before, len(text))
    return before


def _document(model: str | None, version: str | None, entry: JsonObject, *, binary: bool) -> JsonObject:
    """The document of a request without a model, or of a response."""
    if model is None:
        return {"parameters": {"binary_data_output": True}, "inputs": [entry]} if binary else {"inputs": [entry]}
    document: JsonObject = {"model_name": model}
    if version:
        document["model_version"] = version
    return {**document, "outputs": [entry]}


def _keep(texts: LayoutStore[Any, Any], key: tuple[object, ...], text: object, length: int) -> None:
    if length <= LONGEST:
        texts.remember(key, text)
