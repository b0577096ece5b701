"""Types for a GrpsMessage with gtensors, with the names in `grps.proto`. `Raw` is the text of a tensor's elements.

    {"gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT32", "shape": [2], "flat_float32": [1.5, 2.5]}]}}

The typed reader decodes a message that contains only these members, in the form that the gateway writes.
`message.read_message` decodes every other message, for example one with another payload, numbers in quotes, or members
that the gateway accepts but never writes. Both readers return the same value.
"""

import re
from math import prod

from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.json import CUT_FROM, Text, TypedReader, array, packed
from gateway.core.messages import Buffer
from gateway.core.protocol import Limits
from gateway.core.tensors import Tensor
from gateway.protocols.grps.errors import OK
from gateway.protocols.grps.generic_tensor import DTYPES, read_shape
from gateway.protocols.grps.schema import GrpsMessage, Payload


class GenericTensor(Struct):
    """`GenericTensor`, except INT64 (written in quotes) and FP16 (most affected by rounding)."""

    dtype: str
    name: str | UnsetType = UNSET
    shape: list[int] | UnsetType = UNSET
    flat_uint8: Raw | UnsetType = UNSET
    flat_int8: Raw | UnsetType = UNSET
    flat_int16: Raw | UnsetType = UNSET
    flat_int32: Raw | UnsetType = UNSET
    flat_float32: Raw | UnsetType = UNSET
    flat_float64: Raw | UnsetType = UNSET
    flat_string: Raw | UnsetType = UNSET


class GenericTensors(Struct):
    """`GenericTensorArray`."""

    tensors: list[GenericTensor]


class SuccessStatus(Struct):
    """The `Status` of a success, with all its members."""

    code: int
    msg: str
    status: str


class GtensorsMessage(Struct):
    """`GrpsMessage` with gtensors."""

    gtensors: GenericTensors
    model: str | UnsetType = UNSET
    status: SuccessStatus | UnsetType = UNSET


_READER = TypedReader(GtensorsMessage, entries=lambda message: message.gtensors.tensors)
_DATATYPES = {
    dtype.name: (datatype, dtype.member)
    for datatype, dtype in DTYPES.items()
    if dtype.member in GenericTensor.__struct_fields__
}
_OK = SuccessStatus(200, "OK", "SUCCESS")
_ELEMENTS = re.compile(rb'"(flat_[a-z0-9]++)"')


def read_by_type(text: bytes, limits: Limits) -> GrpsMessage | None:
    """Return the message in `text`, or None if the typed reader might not read all of it.

    In a large message, the text of the first tensor's elements is cut out before parsing."""
    if b"gtensors" not in text:
        return None
    elements = _ELEMENTS.search(text) if len(text) > CUT_FROM else None
    try:
        message = _READER.read(text, limits.json_values, elements[1] if elements else b"")
        if message.model == "" or message.status not in (UNSET, _OK):
            return None
        tensors = tuple([_tensor(each, limits) for each in message.gtensors.tensors])
    except DecodeError:
        return None
    model = "" if message.model is UNSET else message.model
    return GrpsMessage(model, None if message.status is UNSET else OK, Payload.GTENSORS, tensors) if tensors else None


def _tensor(entry: GenericTensor, limits: Limits) -> Tensor:
    """Return the tensor of `entry`. Raise DecodeError if its form is not the form that the gateway writes."""
    datatype, member = _DATATYPES.get(entry.dtype, (Datatype.BYTES, ""))
    elements = getattr(entry, member, UNSET)
    others = sum([getattr(entry, other) is not UNSET for _, other in _DATATYPES.values()])
    # members with their default value are never written
    if elements is UNSET or others > 1 or entry.name == "" or entry.shape == []:
        raise DecodeError
    shape = () if entry.shape is UNSET else read_shape(entry.shape, "")
    text = elements if isinstance(elements, Text) else bytes(elements)
    data = _data(text, datatype, prod(shape), limits)
    return Tensor("" if entry.name is UNSET else entry.name, datatype, shape, data)


def _data(text: bytes | Text, datatype: Datatype, count: int, limits: Limits) -> Buffer:
    if count * (datatype.size or 4) > limits.message:
        raise DecodeError
    if datatype is not Datatype.BYTES:
        data = packed(text, datatype, count)
    else:
        found = array(text, values=limits.json_values, literals=False)
        data = found.values if isinstance(found.values, bytes) and found.shape == (count,) and count else None
    if data is None:
        raise DecodeError
    return data
