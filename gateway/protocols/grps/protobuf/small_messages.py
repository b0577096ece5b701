"""`GrpsMessage` read by protobuf's own library, upb: the fastest way for a small message.

upb copies every list and says little about what it refuses. It is used only where the copy is cheap and the result
certain. `proto_message` reads everything else: large messages, messages that upb refuses, messages with a field that
the schema does not have (or has with another wire type), and maps, because upb loses the order of their entries.
"""

from typing import Any

import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError as NotAMessage
from google.protobuf.unknown_fields import UnknownFieldSet

from gateway.core import bytes_elements
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype
from gateway.core.datatypes import Kind as DatatypeKind
from gateway.core.types import Buffer, Tensor
from gateway.protobuf.schema import Protobuf, ProtobufClass, Schema
from gateway.protocols.grps.descriptors import DESCRIPTORS
from gateway.protocols.grps.errors import OK
from gateway.protocols.grps.generic_tensor import read_shape
from gateway.protocols.grps.message import GrpsMessage, GrpsStatus
from gateway.protocols.grps.protobuf.fields import Room
from gateway.protocols.grps.protobuf.generic_tensor import (
    DTYPE,
    NAME,
    NUMBERS,
    SHAPE,
    check_count,
    check_list,
    narrow,
    read_datatype,
    take_tensor,
)
from gateway.protocols.grps.schema import Kind

_WIDE = {
    FieldDescriptorProto.TYPE_INT32: FieldDescriptorProto.TYPE_INT64,
    FieldDescriptorProto.TYPE_UINT32: FieldDescriptorProto.TYPE_UINT64,
    FieldDescriptorProto.TYPE_ENUM: FieldDescriptorProto.TYPE_UINT64,
}


def _make_class() -> ProtobufClass:
    """GrpsMessage with 64 bits for all integers of tensors. The wire is the same, and a number that is too large for 32
    bits is noticed; protobuf would drop its high bits."""
    files = FileDescriptorSet.FromString(DESCRIPTORS)
    [file] = files.file
    [tensor] = [message for message in file.message_type if message.name == "GenericTensor"]
    for field in tensor.field:
        if field.type in _WIDE:
            field.type = _WIDE[field.type]
            field.ClearField("type_name")
    return Schema(files.SerializeToString()).message(f"{file.package}.GrpsMessage")


_GrpsMessage = _make_class()

_GTENSORS = Kind.GTENSORS.value
_HAS_ARRAYS = hasattr(_GrpsMessage().gtensors.tensors.add().flat_float32, "__array__")
SMALL = 2**16 if _HAS_ARRAYS else 0
"""Bytes up to which a message is read here: at twice as many the copy of FP64 costs more than this way saves. Before
protobuf 7.34 lists did not become arrays: Python makes a float of each FP32, which is slow and changes signalling
NaNs."""

_DTYPES: "dict[Datatype, np.dtype[Any]]" = {
    **{datatype: np.dtype(np.uint64 if datatype.kind is DatatypeKind.UNSIGNED else np.int64) for datatype in NUMBERS},
    Datatype.FP16: np.dtype(np.float32),
    Datatype.FP32: np.dtype(np.float32),
    Datatype.FP64: np.dtype(np.float64),
}
"""What the lists become first."""


def read_small(body: Buffer, limit: int) -> GrpsMessage | None:
    """The message in `body` if it holds gtensors or no data; None where `proto_message` has to read it. `limit` is in
    bytes of all tensors.

    Raises:
        DecodeError: tensors that are not what they say.
        GatewayError: RESOURCE_EXHAUSTED, beyond the limit.
    """
    try:
        message = _GrpsMessage.FromString(body)
    except NotAMessage:
        return None
    kind = message.WhichOneof("data_oneof")
    if kind not in (_GTENSORS, None) or UnknownFieldSet(message):
        return None
    status = message.status if message.HasField("status") else None
    entries = list(message.gtensors.tensors)
    if any(map(UnknownFieldSet, [*entries, message.gtensors, message.status])):
        return None
    room = Room(limit)
    return GrpsMessage(
        message.model,
        None if status is None else _read_status(status),
        None if kind is None else Kind.GTENSORS,
        tuple([_read_tensor(entry, at, room) for at, entry in enumerate(entries)]),
    )


def _read_status(status: Protobuf) -> GrpsStatus:
    read = GrpsStatus(status.code, status.msg, status.status)
    return OK if read == OK else read


def _read_tensor(entry: Protobuf, position: int, room: Room) -> Tensor:
    found = {field.number: value for field, value in entry.ListFields()}
    name = found.get(NAME, "")
    what = f"tensor {name!r}" if name else f"tensor {position}"
    datatype = read_datatype(found.get(DTYPE, 0), what)
    check_list(found, datatype, what)
    shape = read_shape(list(found.get(SHAPE, ())), what)
    take_tensor(room, shape, datatype, what)
    elements = found.get(NUMBERS[datatype], ())
    check_count(len(elements), datatype, shape, what)
    return Tensor(name, datatype, shape, _read_data(elements, datatype, what))


def _read_data(elements: Any, datatype: Datatype, what: str) -> Buffer:
    if datatype is Datatype.BYTES:
        return bytes_elements.pack(map(str.encode, elements))
    numbers = np.asarray(elements, _DTYPES[datatype])
    if datatype is Datatype.FP16:
        return narrow(numbers, what)
    return cast(numbers, datatype, what).view(np.uint8).data
