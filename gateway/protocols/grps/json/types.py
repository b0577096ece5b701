"""Types for a GrpsMessage with gtensors, with the names of `grps.proto`. `Raw` is the text of a tensor's elements.

    {"gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT32", "shape": [2], "flat_float32": [1.5, 2.5]}]}}

The typed reader decodes a message that has only these members, in the form that the gateway writes.
`message.read_message` decodes every other message: with another payload, with numbers in quotes, or with members that
are accepted but never written. Both readers return the same value.
"""

import re
from collections.abc import Callable
from math import prod
from typing import Any

from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType
from msgspec.json import Decoder, Encoder

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.json import Text, array, cut_out, packed
from gateway.core.protocol import Limits
from gateway.core.types import Buffer, Tensor
from gateway.protocols.grps.errors import OK
from gateway.protocols.grps.generic_tensor import DTYPES, read_shape
from gateway.protocols.grps.schema import GrpsMessage, Payload


class GenericTensor(Struct):
    """`GenericTensor` without INT64, which is in quotes, and without FP16, which rounding affects most."""

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
    """`Status` of a success, with all its members."""

    code: int
    msg: str
    status: str


class GtensorsMessage(Struct):
    """`GrpsMessage` with gtensors."""

    gtensors: GenericTensors
    model: str | UnsetType = UNSET
    status: SuccessStatus | UnsetType = UNSET


_LARGE = 2**11
"""Minimum bytes of a text for which cutting the elements out costs less than having msgspec skip them."""
_MOST = 1000
"""Maximum number of element lists that are cut out of a text."""
_LARGEST = 2**16
"""Maximum bytes of a text without the elements that were cut out."""

_read: Callable[[bytes], GtensorsMessage] = Decoder(GtensorsMessage).decode
_write: Callable[[Any], bytes] = Encoder().encode
_DATATYPES = {
    dtype.name: (datatype, dtype.member)
    for datatype, dtype in DTYPES.items()
    if dtype.member in GenericTensor.__struct_fields__
}
_OK = SuccessStatus(200, "OK", "SUCCESS")
_ELEMENTS = re.compile(rb'"(flat_[a-z0-9]++)"')


def read_by_type(text: bytes, limits: Limits) -> GrpsMessage | None:
    """Return the message in `text`, or None if the typed reader might not read all of it."""
    if b"gtensors" not in text or b"\\" in text:
        return None
    try:
        message = _read_whole(text, 2 * limits.json_values)
        if message is None or message.model == "" or message.status not in (UNSET, _OK):
            return None
        tensors = tuple([_tensor(each, limits) for each in message.gtensors.tensors])
    except (DecodeError, MsgspecError, UnicodeError, RecursionError):
        return None
    model = "" if message.model is UNSET else message.model
    return GrpsMessage(model, None if message.status is UNSET else OK, Payload.GTENSORS, tensors) if tensors else None


def _read_whole(text: bytes, most: int) -> GtensorsMessage | None:
    """Return the message in `text`, or None if it has additional members, or more than `most` bytes without the
    elements: each value, with its separator, takes at least two bytes."""
    rest, member = text, ""
    cuts: list[Text] = []
    if len(text) > _LARGE and (found := _ELEMENTS.search(text)):
        member = found[1].decode()
        rest, cuts = cut_out(text, found[1], _MOST)
    if len(rest) > min(_LARGEST, most):
        return None
    message = _read(rest)
    # msgspec skips unknown members, and keeps the last of equal members: the message written again lacks their colons
    if _write(message).count(b":") != rest.count(b":"):
        return None
    entries = [each for each in message.gtensors.tensors if cuts and getattr(each, member, UNSET) is not UNSET]
    for entry, cut in zip(entries, cuts, strict=False):
        setattr(entry, member, cut)
    return message if len(entries) == len(cuts) else None


def _tensor(entry: GenericTensor, limits: Limits) -> Tensor:
    """Return the tensor of `entry`. Raises DecodeError if its form is not the form that the gateway writes."""
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
