"""Reads and writes tensors in V2 REST: `{"name", "datatype", "shape", "parameters", "data"}`.

In the binary tensor data extension, the parameter `binary_data_size` replaces `data`.
"""

from base64 import b64encode
from collections.abc import Sequence
from itertools import chain
from math import prod
from reprlib import repr as shown
from typing import Any

import numpy as np
from msgspec import UNSET, Raw

from gateway.core import bytes_elements, json
from gateway.core.casting import cast
from gateway.core.datatypes import BYTES, Datatype, Kind
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.json import Array, Numbers, Pieces, Text
from gateway.core.messages import Buffer
from gateway.core.protocol import Limits
from gateway.core.requests import Translate
from gateway.core.tensors import MAX_RANK, ParameterValue, Shape, Tensor
from gateway.protocols.v2.parameters import refuse_shared_memory
from gateway.protocols.v2.rest.binary import BinaryTensors
from gateway.protocols.v2.rest.messages import Contents, InferenceTensor
from gateway.protocols.v2.rest.parameters import json_parameters, read_parameters
from gateway.protocols.v2.tensors import (
    BASE64,
    MARK,
    MARKS,
    WIDER,
    check_raw,
    check_size,
    decoded_base64,
    read_shape,
    take_mark,
    widen,
)

REFUSED_IN_JSON = frozenset(WIDER)
""" "fp16 is problematic to communicate explicitly": Triton and KServe reject FP16 and BF16 in JSON."""
WITHOUT_JSON = frozenset({Datatype.BF16})
"""Datatypes that clients do not send or accept as JSON numbers.

MLServer and its clients support FP16. No known client supports BF16."""

_SMALL = 64 * 2**10
"""Maximum size of a BYTES tensor whose elements are collected in one list, in bytes."""


# --- reading ---

_NONE_BEHIND = BinaryTensors(b"")


def read_tensors(entries: Sequence[InferenceTensor], role: str, behind: Buffer, limits: Limits) -> tuple[Tensor, ...]:
    """Return the tensors in a message's `inputs` or `outputs`, whose names must differ.

    `role` is "input" or "output". `behind` contains the bytes after the JSON. Outputs can contain null members, and
    FP16 in JSON, as servers write them.

    Raises:
        DecodeError: a tensor violates the specification.
        GatewayError: RESOURCE_EXHAUSTED if a tensor exceeds `limits.message`.
    """
    binary = BinaryTensors(behind) if len(behind) else _NONE_BEHIND
    tensors: dict[str, Tensor] = {}
    for entry in entries:
        name = entry.name
        if name in tensors:
            raise DecodeError(f"{role} {name!r} occurs twice")
        numbers = _read_numbers_alone(entry, limits)
        tensors[name] = _read_tensor(entry, role, binary, limits) if numbers is None else numbers
    if binary is not _NONE_BEHIND:
        binary.finish()
    return tuple(tensors.values())


def _read_numbers_alone(entry: InferenceTensor, limits: Limits) -> Tensor | None:
    """Return the tensor of the most common kind of entry, which is a flat list of numbers of its datatype, without
    parameters. Return None for any other entry, and for an entry with an error. `_read_tensor` then reads the entry or
    reports the error."""
    data, shape, datatype = entry.data, entry.shape, entry.datatype
    text = bytes(data) if type(data) is Raw else data if type(data) is Text else None
    if entry.parameters is not UNSET or text is None or type(shape) is not list or len(shape) > MAX_RANK:
        return None
    count = 1
    for dimension in shape:
        if dimension < 0:
            return None
        count *= dimension
    if count * datatype.size > limits.message:
        return None
    raw = json.packed(text, datatype, count)
    return None if raw is None else Tensor(entry.name, datatype, tuple(shape), raw)


def _read_tensor(entry: InferenceTensor, role: str, binary: BinaryTensors, limits: Limits) -> Tensor:
    name, data, given = entry.name, entry.data, entry.parameters
    what, reply = f"{role} {name!r}", role == "output"
    datatype = entry.datatype
    shape = read_shape(entry.shape, datatype, what)
    parameters: dict[str, ParameterValue] = {}
    size: ParameterValue | None = None
    mark = ""
    if given is not UNSET:
        parameters = read_parameters(given, what, reply=reply)
        if not reply:
            refuse_shared_memory(parameters, what)
        size = parameters.pop("binary_data_size", None)
        mark = take_mark(parameters, datatype)
    if (size is None) == (data is UNSET):
        found = "neither data nor" if size is None else "both data and"
        raise DecodeError(f"{what} has {found} binary_data_size")
    if size is not None:
        raw: Buffer = binary.take(size, what)
        check_raw(raw, datatype, shape, what)
    elif datatype in WITHOUT_JSON and not reply:
        raise DecodeError(f"{what}: {datatype} has no JSON form; use the binary data format (binary_data_size)")
    else:
        raw = _read_contents(data, datatype, shape, limits, what)
    return Tensor(name, datatype, shape, decoded_base64(raw, what) if mark == BASE64 else raw, mark, parameters)


def _read_contents(data: Contents, datatype: Datatype, shape: Shape, limits: Limits, what: str) -> Buffer:
    """Return the raw form of a tensor's JSON `data`."""
    if not isinstance(data, Array):
        text: Any = bytes(data) if isinstance(data, Raw) else data
        count = prod(shape)
        if count * datatype.size > limits.message:
            check_size(shape, datatype, limits.message, what)
        raw = json.packed(text, datatype, count)
        if raw is not None:
            return raw
        data = json.array(text, values=limits.json_values, literals=True)
    _check_nesting(data, shape, what)
    check_size(shape, datatype, limits.message, what)
    return _read_array(data.values, datatype, what)


def _check_nesting(array: Array, shape: Shape, what: str) -> None:
    """Raise DecodeError unless the data is in its "nature multi-dimensional representation, or as a flattened
    one-dimensional" representation."""
    if array.shape == shape or (len(array.shape) == 1 and array.shape[0] == prod(shape)):
        return
    found = f"{array.shape[0]} elements" if len(array.shape) == 1 else f"data nested as {shown(list(array.shape))}"
    raise DecodeError(f"{what}: {found}, but shape {list(shape)} takes {prod(shape)}, flat or nested as the shape")


def _read_array(values: Numbers | bytes, datatype: Datatype, what: str) -> Buffer:
    return _read_strings(values, what) if datatype is BYTES else _read_numbers(values, datatype, what)


def _read_numbers(values: Numbers | bytes, datatype: Datatype, what: str) -> Buffer:
    if len(values) == 0:
        return b""
    if isinstance(values, bytes):
        raise DecodeError(f"{what} holds strings, expected {datatype}")
    if values.dtype.kind == "b" and datatype.kind is not Kind.BOOL:
        raise DecodeError(f"{what} holds true or false, expected {datatype}")
    return np.ascontiguousarray(cast(values, datatype, what)).view(np.uint8).data


def _read_strings(values: Numbers | bytes, what: str) -> bytes:
    if len(values) == 0:
        return b""
    if not isinstance(values, bytes):
        raise DecodeError(f"{what} holds no strings, expected BYTES as strings")
    return values


# --- writing ---


def write_binary(tensor: Tensor) -> InferenceTensor:
    """Return the entry of a tensor whose raw bytes follow the JSON header."""
    parameters = {**json_parameters(tensor.parameters, f"tensor {tensor.name!r}"), "binary_data_size": len(tensor.data)}
    return InferenceTensor(tensor.name, tensor.datatype, tensor.shape, parameters)


def write_json(tensor: Tensor, role: str, translate: Translate, lacking: frozenset[Datatype]) -> InferenceTensor:
    """Return the entry of a tensor with its data as a flat list. If its datatype is in `lacking`, the tensor is
    widened.

    Raises:
        GatewayError: INVALID_ARGUMENT if JSON cannot represent a value. The message contains the tensor's name.
    """
    what = f"{role} {tensor.name!r}"
    if tensor.datatype in lacking:
        tensor = widen(tensor, lacking)
    parameters = json_parameters(tensor.parameters, what) if tensor.parameters else tensor.parameters
    mark = BASE64 if tensor.datatype is BYTES and translate.bytes == BASE64 else tensor.content_type
    if mark in MARKS:
        parameters = {**parameters, MARK: mark}
    if tensor.datatype is not BYTES:
        data: Contents = json.placed(json.written(tensor.data, tensor.datatype, translate.nan or "error", what))
    else:
        data = _write_elements(tensor, mark == BASE64, what)
    return InferenceTensor(tensor.name, tensor.datatype, tensor.shape, parameters or UNSET, data)


def write_strings(tensor: Tensor, translate: Translate, what: str) -> list[str] | Raw | Pieces:
    """Return the elements of a BYTES tensor as a list of JSON strings, for `json.write_message`.

    Raises:
        GatewayError: INVALID_ARGUMENT if an element is not UTF-8.
    """
    return _write_elements(tensor, translate.bytes == BASE64, what)


def _write_elements(tensor: Tensor, in_base64: bool, what: str) -> list[str] | Raw | Pieces:
    lists, is_small = bytes_elements.pieces(tensor.data), len(tensor.data) <= _SMALL
    if in_base64:
        texts = ([b64encode(element).decode() for element in elements] for elements in lists)
        return list(chain.from_iterable(texts)) if is_small else json.placed(json.string_pieces(texts))
    try:
        if is_small:
            return [element.decode() for element in chain.from_iterable(lists)]
        return json.placed(json.utf8_pieces(lists))
    except UnicodeDecodeError as error:
        raise invalid_input(
            f"{what} holds bytes that are not UTF-8, which JSON cannot carry: use the binary data format, "
            "or set translate.bytes: base64 on the route"
        ) from error
