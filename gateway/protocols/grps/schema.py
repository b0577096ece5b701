"""Defines, as Python values, the messages, methods and tensors of `grps.proto`, which all transports share, and the
messages of brpc's `baidu_std.proto`. `protos/generate.py` compiles both files to `descriptors.binpb`.
"""

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from reprlib import repr as shown
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from msgspec import Struct

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, unsupported
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import Schema
from gateway.core.tensors import MAX_RANK, Shape, Tensor


class Payload(Enum):
    """The form of a message's data. The values are the members of `data_oneof`."""

    BIN_DATA = "bin_data"
    STR_DATA = "str_data"
    GTENSORS = "gtensors"
    NDARRAY = "ndarray"
    GMAP = "gmap"

    # Each member exists once, so identity is equality. Enum's own hash runs in Python.
    __hash__ = object.__hash__


PROTOBUF_PAYLOADS = tuple(
    payload.value for payload in (Payload.GTENSORS, Payload.STR_DATA, Payload.BIN_DATA, Payload.GMAP)
)
"""The values of `translate.payload` for gRPC and brpc backends, with the default first."""

JSON_PAYLOADS = (*PROTOBUF_PAYLOADS, Payload.NDARRAY.value)
"""The values of `translate.payload` for REST backends. "ndarray [..] only used when http json request": the protobuf
message cannot hold its elements."""

UNKNOWN, SUCCESS, FAILURE = range(3)
"""`Status.StatusFlag`. The comment in the original file lists different numbers, but servers send these."""


class GrpsStatus(Struct, frozen=True):
    """`Status`: an HTTP status code, a message (`msg`), and the flag (`status`) that distinguishes success from
    failure."""

    code: int = 0
    text: str = ""
    flag: int = UNKNOWN


class GrpsMessage(Struct, frozen=True):
    """`GrpsMessage`, the message of every request and every response.

    `payload` is None if the message contains no member of `data_oneof`.

    `tensors` contains the data of the payload:

    - gtensors: The tensors of the message.
    - str_data, bin_data: One unnamed BYTES `[1]`, for str_data with content type `text`.
    - ndarray: One unnamed tensor of numbers, which is `untyped` in a received message. Protobuf cannot represent an
      ndarray.
    - gmap: For each entry, a tensor `[1]`, named after the key, with the datatype that `gmap.MAPS` defines for the
      entry's map. BYTES of `s_s` have content type `text`.

    In an outgoing message, all elements of BYTES are UTF-8, except in bin_data and `s_b`.
    """

    model: str = ""
    status: GrpsStatus | None = None
    payload: Payload | None = None
    tensors: tuple[Tensor, ...] = ()


# --- Tensors ---


class DType(NamedTuple):
    """A grps datatype: its number and name in `dtype`, and the `member` that contains the elements."""

    number: int
    name: str
    member: str


DTYPES: dict[Datatype, DType] = {
    Datatype.UINT8: DType(1, "DT_UINT8", "flat_uint8"),
    Datatype.INT8: DType(2, "DT_INT8", "flat_int8"),
    Datatype.INT16: DType(3, "DT_INT16", "flat_int16"),
    Datatype.INT32: DType(4, "DT_INT32", "flat_int32"),
    Datatype.INT64: DType(5, "DT_INT64", "flat_int64"),
    Datatype.FP16: DType(6, "DT_FLOAT16", "flat_float16"),
    Datatype.FP32: DType(7, "DT_FLOAT32", "flat_float32"),
    Datatype.FP64: DType(8, "DT_FLOAT64", "flat_float64"),
    Datatype.BYTES: DType(9, "DT_STRING", "flat_string"),
}

_UINT32_MAX = 2**32 - 1


def read_shape(dimensions: Sequence[object], what: str) -> Shape:
    """Return the shape with these dimensions: at most 32, each a uint32.

    The product of the nonzero dimensions must be less than 2^60, so the tensor takes less than 2^63 bytes with any
    datatype. `what` identifies the tensor in error messages.

    Raises:
        DecodeError: the dimensions exceed these limits.
    """
    if len(dimensions) > MAX_RANK:
        raise DecodeError(f"{what}: shape has {len(dimensions)} dimensions, expected at most {MAX_RANK}")
    shape: list[int] = []
    size = 1
    for each in dimensions:
        if type(each) is not int or not 0 <= each <= _UINT32_MAX:
            raise DecodeError(f"{what}: shape {shown(list(dimensions))}, expected integers from 0 to 2^32 - 1")
        shape.append(each)
        size *= each or 1
    if size >= 2**60:
        raise DecodeError(f"{what}: shape {shown(list(dimensions))} spans more than 2^63 bytes")
    return tuple(shape)


# --- Methods ---

METHODS: dict[str, Operation] = {
    "Predict": Operation.INFER,
    "PredictStreaming": Operation.STREAM,
    "Online": Operation.ONLINE,
    "Offline": Operation.OFFLINE,
    "CheckLiveness": Operation.LIVE,
    "CheckReadiness": Operation.READY,
    "ServerMetadata": Operation.MODELS,
    "ModelMetadata": Operation.METADATA,
}
"""The operation of each method. Server metadata is YAML with a list of the server's models."""

INFERENCES = (Operation.INFER, Operation.STREAM)

HEALTH = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY, Operation.ONLINE, Operation.OFFLINE})
"""The operations whose result is a bool."""

_BACKEND_METHODS: dict[Operation, str] = {
    Operation.INFER: "Predict",
    Operation.STREAM: "PredictStreaming",
    Operation.LIVE: "CheckLiveness",
    Operation.READY: "CheckReadiness",
    # A server reports readiness only for the entire server (`Models.ready_as_a_whole`).
    Operation.MODEL_READY: "CheckReadiness",
    Operation.MODELS: "ServerMetadata",
    Operation.METADATA: "ModelMetadata",
}
"""The backend methods. Online and Offline are missing, because the gateway never forwards them."""


def backend_method(operation: Operation) -> str:
    """Return the method for `operation` at a backend.

    Raises:
        GatewayError: UNIMPLEMENTED if grps has no method for the operation.
    """
    method = _BACKEND_METHODS.get(operation)
    if method is None:
        raise unsupported(f"grps has no method for {operation.value!r}")
    return method


# --- Descriptors ---

_DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()
_SCHEMA = Schema(_DESCRIPTORS)

GRPC_SERVICE = "grps.protos.v1.GrpsService"
GRPC_METHODS = _SCHEMA.methods(GRPC_SERVICE)
"""The path of each method's calls, such as `/grps.protos.v1.GrpsService/Predict`."""

RpcMeta = _SCHEMA.message("brpc.policy.RpcMeta")
"""The meta of baidu_std frames."""


def _of_grpc() -> bytes:
    """Return the FileDescriptorSet without the methods that only Apache brpc serves."""
    [file] = [file for file in FileDescriptorSet.FromString(_DESCRIPTORS).file if file.name == "grps/grps.proto"]
    services = [service for service in file.service if f"{file.package}.{service.name}" == GRPC_SERVICE]
    messages = [message for message in file.message_type if message.name != "EmptyGrpsMessage"]
    del file.service[:], file.message_type[:]
    file.service.extend(services)
    file.message_type.extend(messages)
    written: bytes = FileDescriptorSet(file=[file]).SerializeToString()
    return written


GRPC_DESCRIPTORS = _of_grpc()
"""The descriptors that gRPC reflection sends to clients."""
