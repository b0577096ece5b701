"""Tensors as V2 REST writes them: `{"name", "datatype", "shape", "parameters", "data"}`, or with the binary tensor
extension `binary_data_size` among the parameters in the place of `data`."""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from itertools import chain
from math import prod
from reprlib import repr as shown
from typing import Any

import numpy as np

from gateway import json
from gateway.core import bytes_elements
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.types import Buffer, Parameters, Shape, Tensor, Translate
from gateway.json import Array, ArrayForm, Numbers
from gateway.protocols.v2.binary import BinaryTensors
from gateway.protocols.v2.members import Entry, read_list, read_name
from gateway.protocols.v2.parameters import read_parameters, refuse_shared_memory, writable
from gateway.protocols.v2.raw_tensors import check_raw, check_size, read_datatype, read_shape
from gateway.protocols.v2.widening import HALVES, widened


def read_inference(header: Buffer, values: int) -> Entry:
    """The JSON object of an inference, either way, with each tensor's `data` read straight into an Array.

    `values` limits how many values may stand outside them. NaN and Infinity are numbers: rapidjson, beneath both
    tritonclient and Triton, writes them.

    Raises:
        DecodeError: not a JSON object.
    """
    return json.read(header, _DATA, values=values, literals=True, level=_TENSOR_LEVEL)


_DATA = {"data": ArrayForm.ARRAY}
_TENSOR_LEVEL = 3  # {"inputs": [{"data": here}]}

WITHOUT_JSON = frozenset(HALVES)
""""fp16 is problematic to communicate explicitly": Triton and KServe refuse both in JSON, MLServer takes FP16."""

_BASE64 = "base64"
_SMALL = 64 * 2**10
"""Bytes of a tensor up to which its elements may be one list."""


def read_tensors(document: Entry, role: str, binary: BinaryTensors, limit: int, *, reply: bool) -> tuple[Tensor, ...]:
    """The tensors of `document`'s `inputs` or `outputs` (`role` is the singular), each once.

    `limit` is in bytes of one tensor. `reply` reads what servers write: null members, and FP16 in JSON.

    Raises:
        DecodeError: anything that the specification does not allow.
        GatewayError: RESOURCE_EXHAUSTED, beyond the limit.
    """
    if document.get(f"{role}s") is None:
        raise DecodeError(f"{role}s are missing")
    tensors: dict[str, Tensor] = {}
    for position, entry in enumerate(read_list(document, f"{role}s")):
        name = read_name(entry, role, position)
        if name in tensors:
            raise DecodeError(f"{role} {name!r} is given twice")
        tensors[name] = _read_tensor(name, entry, f"{role} {name!r}", binary, limit, reply)
    binary.finish()
    return tuple(tensors.values())


def _read_tensor(name: str, entry: Entry, what: str, binary: BinaryTensors, limit: int, reply: bool) -> Tensor:
    datatype = read_datatype(entry.get("datatype"), what)
    shape = read_shape(entry.get("shape"), datatype, what)
    parameters = read_parameters(entry.get("parameters"), what, reply=reply)
    if parameters and not reply:
        refuse_shared_memory(parameters, what)
    size = parameters.pop("binary_data_size", None)
    array: Array | None = entry.get("data")
    if (size is None) == (array is None):
        found = "neither data nor" if size is None else "both data and"
        raise DecodeError(f"{what} has {found} binary_data_size")
    if array is None:
        data = binary.take(size, what)
        check_raw(data, datatype, shape, what)
        return Tensor(name, datatype, shape, data, parameters=parameters)
    if datatype in WITHOUT_JSON and not reply:
        raise DecodeError(f"{what}: {datatype} has no JSON form; use the binary data format (binary_data_size)")
    _check_nesting(array, shape, what)
    check_size(shape, datatype, limit, what)
    return _from_json(name, datatype, shape, array, parameters, what)


def _check_nesting(array: Array, shape: Shape, what: str) -> None:
    """Data comes "in their nature multi-dimensional representation, or as a flattened one-dimensional" one."""
    if array.shape == shape or (len(array.shape) == 1 and array.shape[0] == prod(shape)):
        return
    found = f"{array.shape[0]} elements" if len(array.shape) == 1 else f"data nested as {shown(list(array.shape))}"
    raise DecodeError(f"{what}: {found}, but shape {list(shape)} takes {prod(shape)}, flat or nested as the shape")


def _from_json(name: str, datatype: Datatype, shape: Shape, array: Array, parameters: Any, what: str) -> Tensor:
    if datatype is not Datatype.BYTES:
        return Tensor(name, datatype, shape, _numbers(array.values, datatype, what), parameters=parameters)
    if parameters.get("content_type") != _BASE64:
        return Tensor(name, datatype, shape, _strings(array, what), parameters=parameters)
    # the mark is of this form, which ends here: the tensor holds the bytes themselves
    del parameters["content_type"]
    return Tensor(name, datatype, shape, _from_base64(_strings(array, what), what), parameters=parameters)


def _numbers(values: Numbers | bytes, datatype: Datatype, what: str) -> Buffer:
    if len(values) == 0:
        return b""
    if isinstance(values, bytes):
        raise DecodeError(f"{what} holds strings, expected {datatype}")
    if values.dtype.kind == "b" and datatype.kind is not Kind.BOOL:
        raise DecodeError(f"{what} holds true or false, expected {datatype}")
    return np.ascontiguousarray(cast(values, datatype, what)).view(np.uint8).data


def _strings(array: Array, what: str) -> bytes:
    if len(array.values) == 0:
        return b""
    if not isinstance(array.values, bytes):
        raise DecodeError(f"{what} holds no strings, expected BYTES as strings")
    return array.values


def _from_base64(texts: bytes, what: str) -> bytes:
    try:
        return bytes_elements.pack(b64decode(text, validate=True) for text in bytes_elements.unpack(texts))
    except Base64Error as error:
        raise DecodeError(f"{what}: a string is not base64") from error


def binary_entry(tensor: Tensor) -> Entry:
    """The JSON of a tensor whose raw bytes follow."""
    parameters = {**writable(tensor.parameters, f"tensor {tensor.name!r}"), "binary_data_size": len(tensor.data)}
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape, "parameters": parameters}


def json_entry(tensor: Tensor, role: str, translate: Translate, without_json: frozenset[Datatype]) -> Entry:
    """The JSON of a tensor with its data, flat. A datatype in `without_json` is widened.

    Raises:
        GatewayError: INVALID_ARGUMENT naming the tensor, for a value that the form lacks.
    """
    what = f"{role} {tensor.name!r}"
    tensor = widened(tensor, without_json)
    parameters = dict(writable(tensor.parameters, what))
    if tensor.datatype is Datatype.BYTES:
        if translate.bytes == _BASE64:
            parameters["content_type"] = _BASE64
        return _entry(tensor, parameters, strings(tensor, translate, what))
    values = tensor.array.reshape(-1)
    return _entry(tensor, parameters, json.numbers(values, translate.nan or "error", what))


def _entry(tensor: Tensor, parameters: Parameters, data: object) -> Entry:
    # in Triton's order
    entry: Entry = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
    if parameters:
        entry["parameters"] = parameters
    entry["data"] = data
    return entry


def strings(tensor: Tensor, translate: Translate, what: str) -> object:
    """The elements of BYTES as a list of JSON strings, in a document that `json.write_parts` writes.

    Raises:
        GatewayError: INVALID_ARGUMENT, an element is not UTF-8.
    """
    lists = (_texts(elements, translate, what) for elements in bytes_elements.pieces(tensor.data))
    if len(tensor.data) <= _SMALL:
        return list(chain.from_iterable(lists))
    return json.in_document(tuple(json.string_pieces(lists)))


def _texts(elements: list[bytes], translate: Translate, what: str) -> list[str]:
    if translate.bytes == _BASE64:
        return [b64encode(element).decode() for element in elements]
    try:
        return [element.decode() for element in elements]
    except UnicodeDecodeError as error:
        raise invalid_input(
            f"{what} holds bytes that are not UTF-8, which JSON cannot carry: use the binary data format, "
            "or set translate.bytes: base64 on the route"
        ) from error
