"""Reads small messages with upb, protobuf's C library, which is the fastest way.

upb copies every list and says little about what it refuses. So it is used only where the copy is cheap and the result
certain. This reader leaves everything else to `message.read_large`: large messages, messages that upb refuses, messages
with a field that the schema does not have (or has with another wire type), and gmap, because upb loses the order of
entries.
"""

from typing import Any

import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from gateway.core import bytes_elements
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype, Kind
from gateway.core.types import Buffer, Tensor
from gateway.protobuf.schema import Protobuf, ProtobufClass, Schema
from gateway.protocols.grps.descriptors import GRPC_DESCRIPTORS
from gateway.protocols.grps.errors import OK
from gateway.protocols.grps.generic_tensor import read_shape
from gateway.protocols.grps.protobuf.fields import MessageAllowance
from gateway.protocols.grps.protobuf.generic_tensor import (
    DTYPE,
    ELEMENTS,
    NAME,
    SHAPE,
    check_count,
    check_members,
    narrow,
    read_dtype,
    spend_tensor,
)
from gateway.protocols.grps.schema import GrpsMessage, GrpsStatus, Payload

_WIDER = {
    FieldDescriptorProto.TYPE_INT32: FieldDescriptorProto.TYPE_INT64,
    FieldDescriptorProto.TYPE_UINT32: FieldDescriptorProto.TYPE_UINT64,
    FieldDescriptorProto.TYPE_ENUM: FieldDescriptorProto.TYPE_UINT64,
}


def _make_class() -> ProtobufClass:
    """GrpsMessage with 64 bits for all integers of tensors. The wire is the same, but a number that is too large for 32
    bits is noticed; with the original types upb would drop its high bits."""
    files = FileDescriptorSet.FromString(GRPC_DESCRIPTORS)
    [file] = files.file
    [tensor] = [message for message in file.message_type if message.name == "GenericTensor"]
    for field in tensor.field:
        if field.type in _WIDER:
            field.type = _WIDER[field.type]
            field.ClearField("type_name")
    return Schema(files.SerializeToString()).message(f"{file.package}.GrpsMessage")


_GrpsMessage = _make_class()

_GTENSORS = Payload.GTENSORS.value
_HAS_ARRAYS = hasattr(_GrpsMessage().gtensors.tensors.add().flat_float32, "__array__")
MAX_SIZE = 2**16 if _HAS_ARRAYS else 0
"""The most bytes of a message for this reader; at twice as many, copying FP64 costs more than upb saves. 0 before
protobuf 7.34, whose lists cannot become arrays: Python would make a float of each FP32, which is slow and changes
signalling NaNs."""

_LIST_DTYPES: "dict[Datatype, np.dtype[Any]]" = {
    **{datatype: np.dtype(np.uint64 if datatype.kind is Kind.UNSIGNED else np.int64) for datatype in ELEMENTS},
    Datatype.FP16: np.dtype(np.float32),
    Datatype.FP32: np.dtype(np.float32),
    Datatype.FP64: np.dtype(np.float64),
}
"""The dtype of upb's list for each datatype."""


def read_small(body: Buffer, limit: int) -> GrpsMessage | None:
    """The message in `body` if it has gtensors or no data; None where `message.read_large` has to read it. `limit` is
    the most bytes that all tensors may take.

    Raises:
        DecodeError: a tensor whose elements do not match its dtype and shape.
        GatewayError: RESOURCE_EXHAUSTED, tensors beyond the limit.
    """
    try:
        message = _GrpsMessage.FromString(body)
    except ProtobufDecodeError:
        return None
    payload = message.WhichOneof("data_oneof")
    if payload not in (_GTENSORS, None) or UnknownFieldSet(message):
        return None
    status = message.status if message.HasField("status") else None
    entries = list(message.gtensors.tensors)
    if any(map(UnknownFieldSet, [*entries, message.gtensors, message.status])):
        return None
    allowance = MessageAllowance(limit)
    return GrpsMessage(
        message.model,
        None if status is None else _read_status(status),
        None if payload is None else Payload.GTENSORS,
        tuple([_read_tensor(entry, at, allowance) for at, entry in enumerate(entries)]),
    )


def _read_status(status: Protobuf) -> GrpsStatus:
    read = GrpsStatus(status.code, status.msg, status.status)
    return OK if read == OK else read


def _read_tensor(entry: Protobuf, position: int, allowance: MessageAllowance) -> Tensor:
    fields = {field.number: value for field, value in entry.ListFields()}
    name = fields.get(NAME, "")
    what = f"tensor {name!r}" if name else f"tensor {position}"
    datatype = read_dtype(fields.get(DTYPE, 0), what)
    check_members(fields, datatype, what)
    shape = read_shape(list(fields.get(SHAPE, ())), what)
    spend_tensor(allowance, shape, datatype, what)
    elements = fields.get(ELEMENTS[datatype], ())
    check_count(len(elements), datatype, shape, what)
    return Tensor(name, datatype, shape, _raw(elements, datatype, what))


def _raw(elements: Any, datatype: Datatype, what: str) -> Buffer:
    """The elements as a Tensor's `data`."""
    if datatype is Datatype.BYTES:
        return bytes_elements.pack(map(str.encode, elements))
    numbers = np.asarray(elements, _LIST_DTYPES[datatype])
    if datatype is Datatype.FP16:
        return narrow(numbers, what)
    return cast(numbers, datatype, what).view(np.uint8).data
