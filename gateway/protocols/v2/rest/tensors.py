"""Tensors in V2 REST: `{"name", "datatype", "shape", "parameters", "data"}`.

With the binary tensor data extension the parameter `binary_data_size` replaces `data`.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from itertools import chain
from math import prod
from reprlib import repr as shown

import numpy as np

from gateway import json
from gateway.core import bytes_elements
from gateway.core.casting import cast
from gateway.core.datatypes import BYTES, Datatype, Kind
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.types import Buffer, Parameters, ParameterValue, Shape, Tensor, Translate
from gateway.json import Array, ArrayForm, Numbers
from gateway.protocols.v2.parameters import refuse_shared_memory
from gateway.protocols.v2.rest.binary import BinaryTensors
from gateway.protocols.v2.rest.json_bodies import JsonObject, read_list, read_name
from gateway.protocols.v2.rest.parameters import json_parameters, read_parameters
from gateway.protocols.v2.rest.usual import few_numbers, read_usual
from gateway.protocols.v2.tensors import WIDER, check_raw, check_size, read_datatype, read_shape, widen

_DATA = {"data": ArrayForm.ARRAY}
_TENSOR_LEVEL = 3  # {"inputs": [{"data": here}]}

REFUSED_IN_JSON = frozenset(WIDER)
""""fp16 is problematic to communicate explicitly": Triton and KServe refuse both in JSON."""
WITHOUT_JSON = frozenset({Datatype.BF16})
"""What clients neither send nor get as JSON numbers: MLServer takes and gives FP16, and so do its clients. No client is
known that does so with BF16."""

_BASE64 = "base64"
_SMALL = 64 * 2**10
"""Bytes of a BYTES tensor up to which its elements are made one list."""


def read_document(
    header: bytes, role: str, binary: BinaryTensors, values: int, limit: int
) -> tuple[JsonObject, tuple[Tensor, ...]]:
    """The JSON object of an inference request or response, and its tensors: `read_inference`, then `read_tensors`."""
    usual = read_usual(header, f"{role}s", binary, values, limit)
    if usual is not None:
        return usual
    document = read_inference(header, values)
    return document, read_tensors(document, role, binary, limit)


def read_inference(header: bytes, values: int) -> JsonObject:
    """The JSON object of an inference request or response. Each tensor's `data` is parsed straight into an Array.

    `values` limits how many JSON values may be outside these arrays. NaN and Infinity are accepted as numbers, since
    rapidjson, which tritonclient and Triton use, writes them.

    Raises:
        DecodeError: not a JSON object.
    """
    return json.read(header, _DATA, values=values, literals=True, level=_TENSOR_LEVEL)


def read_tensors(document: JsonObject, role: str, binary: BinaryTensors, limit: int) -> tuple[Tensor, ...]:
    """The tensors in `document`'s `inputs` or `outputs`, whose names must differ.

    `role` is the singular, "input" or "output". Outputs are read as servers write them: with null members, and FP16 in
    JSON. `limit` is in bytes of one tensor.

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
        tensors[name] = _read_tensor(name, entry, role, binary, limit)
    binary.finish()
    return tuple(tensors.values())


def _read_tensor(name: str, entry: JsonObject, role: str, binary: BinaryTensors, limit: int) -> Tensor:
    what, reply = f"{role} {name!r}", role == "output"
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
        data: Buffer = binary.take(size, what)
        check_raw(data, datatype, shape, what)
        return Tensor(name, datatype, shape, data, "", parameters)
    if datatype in WITHOUT_JSON and not reply:
        raise DecodeError(f"{what}: {datatype} has no JSON form; use the binary data format (binary_data_size)")
    _check_nesting(array, shape, what)
    check_size(shape, datatype, limit, what)
    data = _read_data(array.values, datatype, parameters, what)
    return Tensor(name, datatype, shape, data, "", parameters)


def _check_nesting(array: Array, shape: Shape, what: str) -> None:
    """Data comes "in their nature multi-dimensional representation, or as a flattened one-dimensional" one."""
    if array.shape == shape or (len(array.shape) == 1 and array.shape[0] == prod(shape)):
        return
    found = f"{array.shape[0]} elements" if len(array.shape) == 1 else f"data nested as {shown(list(array.shape))}"
    raise DecodeError(f"{what}: {found}, but shape {list(shape)} takes {prod(shape)}, flat or nested as the shape")


def _read_data(values: Numbers | bytes, datatype: Datatype, parameters: dict[str, ParameterValue], what: str) -> Buffer:
    """The raw form of a tensor's JSON `data`. Removes the parameter `content_type` if it says that BYTES are base64."""
    if datatype is not BYTES:
        return _read_numbers(values, datatype, what)
    strings = _read_strings(values, what)
    if parameters.get("content_type") != _BASE64:
        return strings
    # the tensor holds the decoded bytes, so the mark would be wrong on it
    del parameters["content_type"]
    return _decode_base64(strings, what)


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


def _decode_base64(texts: bytes, what: str) -> bytes:
    try:
        return bytes_elements.pack(b64decode(text, validate=True) for text in bytes_elements.unpack(texts))
    except Base64Error as error:
        raise DecodeError(f"{what}: a string is not base64") from error


def write_binary(tensor: Tensor) -> JsonObject:
    """The JSON of a tensor whose raw bytes follow the JSON header."""
    parameters = {**json_parameters(tensor.parameters, f"tensor {tensor.name!r}"), "binary_data_size": len(tensor.data)}
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape, "parameters": parameters}


def write_json(tensor: Tensor, role: str, translate: Translate, lacking: frozenset[Datatype]) -> JsonObject:
    """The JSON of a tensor with its data in it, flat. A datatype in `lacking` is widened.

    Raises:
        GatewayError: INVALID_ARGUMENT naming the tensor, a value that JSON cannot carry.
    """
    what = f"{role} {tensor.name!r}"
    tensor = widen(tensor, lacking)
    parameters = dict(json_parameters(tensor.parameters, what))
    if tensor.datatype is BYTES:
        if translate.bytes == _BASE64:
            parameters["content_type"] = _BASE64
        return _tensor_object(tensor, parameters, write_strings(tensor, translate, what))
    few = few_numbers(tensor)
    if few is not None:
        return _tensor_object(tensor, parameters, few)
    values = tensor.array.reshape(-1)
    return _tensor_object(tensor, parameters, json.numbers(values, translate.nan or "error", what))


def _tensor_object(tensor: Tensor, parameters: Parameters, data: object) -> JsonObject:
    # in Triton's order
    document: JsonObject = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
    if parameters:
        document["parameters"] = parameters
    document["data"] = data
    return document


def write_strings(tensor: Tensor, translate: Translate, what: str) -> object:
    """The elements of BYTES as a list of JSON strings, for a document that `json.write_parts` writes.

    Raises:
        GatewayError: INVALID_ARGUMENT, an element is not UTF-8.
    """
    lists = (_strings_of(elements, translate, what) for elements in bytes_elements.pieces(tensor.data))
    if len(tensor.data) <= _SMALL:
        return list(chain.from_iterable(lists))
    return json.in_document(tuple(json.string_pieces(lists)))


def _strings_of(elements: list[bytes], translate: Translate, what: str) -> list[str]:
    if translate.bytes == _BASE64:
        return [b64encode(element).decode() for element in elements]
    try:
        return [element.decode() for element in elements]
    except UnicodeDecodeError as error:
        raise invalid_input(
            f"{what} holds bytes that are not UTF-8, which JSON cannot carry: use the binary data format, "
            "or set translate.bytes: base64 on the route"
        ) from error
