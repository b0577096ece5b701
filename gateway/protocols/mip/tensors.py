"""Converts a Tensor to a column of TLVs, and back. The Tensor's first dimension is the number of examples."""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from gateway.core import bytes_elements, npy
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, invalid_input
from gateway.core.messages import Buffer
from gateway.core.tensors import Tensor, can_exist
from gateway.protocols.mip import json_examples
from gateway.protocols.mip.packets import Column
from gateway.protocols.mip.schema import OWN_TYPE, TLV_TYPES, TlvType


class Style(NamedTuple):
    """The encoding of the tensors of one message: the representation of NaN and infinities (`translate.nan`), and the
    TLV types of numeric and BYTES tensors whose `content_type` does not name a TLV type."""

    nan: str
    numbers: TlvType = TlvType.JSON
    text: TlvType = TlvType.TEXT


def decode_column(type_: int, examples: Sequence[Buffer], what: str, json_values: int) -> Tensor:
    """Return the unnamed Tensor of a column. `json_values` is `limits.json_values`.

    Raises:
        DecodeError: the data is malformed. The message contains `what`.
    """
    match type_:
        case TlvType.JSON:
            return json_examples.decode(examples, what, json_values)
        case TlvType.NPY:
            return decode_npy(examples, what)
    packed = bytes_elements.pack(examples)
    if type_ in TLV_TYPES:
        return Tensor("", Datatype.BYTES, (len(examples),), packed, content_type=TlvType(type_).name.lower())
    return Tensor("", Datatype.BYTES, (len(examples),), packed, "tlv", {OWN_TYPE: type_})


def encode_column(tensor: Tensor, style: Style, what: str) -> Column:
    """Return the column of `tensor` in a packet.

    The tensor's `content_type` determines the TLV type if it is a MIP type. Otherwise, numbers use the style's type,
    and BYTES use it if each example has one element. All other BYTES are JSON.

    Raises:
        GatewayError: INVALID_ARGUMENT if this type cannot represent the tensor. The message contains `what`.
    """
    if tensor.parameters and OWN_TYPE in tensor.parameters:
        return Column(int(tensor.parameters[OWN_TYPE]), _encode_image(tensor, style.nan, what))
    type_ = _tlv_type(tensor, style)
    return Column(type_, _ENCODERS[type_](tensor, style.nan, what))


def _tlv_type(tensor: Tensor, style: Style) -> TlvType:
    type_ = _TYPE_OF_CONTENT.get(tensor.content_type)
    if type_ is not None:
        return type_
    if tensor.datatype is not Datatype.BYTES:
        return style.numbers
    return style.text if tensor.elements == tensor.shape[0] else TlvType.JSON


def _encode_text(tensor: Tensor, nan: str, what: str) -> list[list[Buffer]]:
    elements = _one_element_each(tensor, what)
    for at, element in enumerate(elements):
        json_examples.decode_text(element, at, what)
    return [[element] for element in elements]


def _encode_image(tensor: Tensor, nan: str, what: str) -> list[list[Buffer]]:
    return [[element] for element in _one_element_each(tensor, what)]


def _encode_json(tensor: Tensor, nan: str, what: str) -> list[list[Buffer]]:
    if tensor.datatype is not Datatype.BYTES:
        return json_examples.encode_numbers(tensor, nan, what)
    if tensor.content_type == TlvType.JSON.name.lower():  # each element is already a JSON text
        return _encode_text(tensor, nan, what)
    return json_examples.encode_strings(tensor, what)


def _encode_npy(tensor: Tensor, nan: str, what: str) -> list[list[Buffer]]:
    if tensor.datatype is Datatype.BYTES:
        raise _wrong_datatype(tensor, what)
    return npy_files(tensor)


def _one_element_each(tensor: Tensor, what: str) -> list[bytes]:
    """Return the elements of a BYTES tensor with one element per example."""
    if tensor.datatype is not Datatype.BYTES:
        raise _wrong_datatype(tensor, what)
    if tensor.elements != tensor.shape[0]:
        found = f"each example of {what} has shape {list(tensor.shape[1:])}"
        raise invalid_input(f"{found}, but as {tensor.content_type} it must have one element")
    return bytes_elements.unpack(tensor.data)


def _wrong_datatype(tensor: Tensor, what: str) -> GatewayError:
    return invalid_input(f"{what} is {tensor.datatype}, which cannot be sent as {tensor.content_type}")


_ENCODERS: dict[TlvType, Callable[[Tensor, str, str], list[list[Buffer]]]] = {
    TlvType.TEXT: _encode_text,
    TlvType.JSON: _encode_json,
    TlvType.IMAGE: _encode_image,
    TlvType.NPY: _encode_npy,
}
_TYPE_OF_CONTENT = {type_.name.lower(): type_ for type_ in TlvType} | {json_examples.STRINGS: TlvType.JSON}
"""The TLV type of each content type."""


# --- Examples as .npy files, which contain the datatype and the shape of the numbers ---


def decode_npy(files: Sequence[Buffer], what: str) -> Tensor:
    """Return the arrays in `files`, which all have the same datatype and shape, as one Tensor with an added first
    dimension.

    Raises:
        DecodeError: a file is not a .npy file, does not contain numbers, is shorter or longer than its header states,
            or contains an array with another datatype or shape than the first file. The message contains `what`.
    """
    arrays = [npy.decode(file, f"{what} of example {at}") for at, file in enumerate(files)]
    first = arrays[0]
    for at, array in enumerate(arrays):
        if (array.datatype, array.shape) != (first.datatype, first.shape):
            raise DecodeError(f"{what} is {_shown(array)} in example {at} and {_shown(first)} in example 0")
    shape = (len(arrays), *first.shape)
    if not can_exist(shape, first.datatype):
        raise DecodeError(f"{what}: {len(arrays)} examples of {_shown(first)} span more than 2^63 bytes")
    data = first.data if len(arrays) == 1 else b"".join([array.data for array in arrays])
    return Tensor("", first.datatype, shape, data, content_type="npy")


def _shown(array: Tensor) -> str:
    return f"{array.datatype.dtype} {list(array.shape)}"


def npy_files(tensor: Tensor) -> list[list[Buffer]]:
    """Return a .npy file, in pieces, for each row of a tensor of numbers or BOOL. BF16 is widened to FP32, because the
    format does not support BF16."""
    stored = npy.storable(tensor)
    rows, *shape = stored.shape
    header = npy.header(stored.datatype, tuple(shape))
    size = prod(shape) * stored.datatype.size
    view = memoryview(stored.data)
    return [[header, view[row * size : (row + 1) * size]] for row in range(rows)]
