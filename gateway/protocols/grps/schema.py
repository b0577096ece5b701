"""The messages and methods of `grps.proto` as values of the gateway, the same on every wire."""

from enum import Enum

from msgspec import Struct

from gateway.core.errors import unsupported
from gateway.core.operations import Operation
from gateway.core.types import Tensor


class Payload(Enum):
    """How a message carries its data: the members of `data_oneof`."""

    BIN_DATA = "bin_data"
    STR_DATA = "str_data"
    GTENSORS = "gtensors"
    NDARRAY = "ndarray"
    GMAP = "gmap"

    # Each member exists once, so identity is equality; Enum's own hash runs in Python.
    __hash__ = object.__hash__


PROTOBUF_PAYLOADS = tuple(
    payload.value for payload in (Payload.GTENSORS, Payload.STR_DATA, Payload.BIN_DATA, Payload.GMAP)
)
"""What `translate.payload` can be towards gRPC and brpc backends, the default first."""

JSON_PAYLOADS = (*PROTOBUF_PAYLOADS, Payload.NDARRAY.value)
"""The same towards REST backends. "ndarray [..] only used when http json request": protobuf has no elements for it."""

UNKNOWN, SUCCESS, FAILURE = range(3)
"""`Status.StatusFlag`. The comment in the original file has other numbers; servers send these."""


class GrpsStatus(Struct, frozen=True):
    """`Status`: an HTTP status code, a text (`msg`), and the flag (`status`) that tells success from failure."""

    code: int = 0
    text: str = ""
    flag: int = UNKNOWN


class GrpsMessage(Struct, frozen=True):
    """`GrpsMessage`: every request and every reply. `payload` is None where no member of `data_oneof` is set.

    `tensors` hold the data of the payload:

    - gtensors: its tensors.
    - str_data, bin_data: one unnamed BYTES `[1]`, for str_data with content type `text`.
    - ndarray: one unnamed tensor of numbers, `untyped` if it was read; none in protobuf, which cannot carry it.
    - gmap: for each entry a tensor `[1]` named by the key, with the datatype that `gmap.MAPS` has for its map; BYTES of
      `s_s` have content type `text`.

    In a message to be written all elements of BYTES are UTF-8, except in bin_data and `s_b`.
    """

    model: str = ""
    status: GrpsStatus | None = None
    payload: Payload | None = None
    tensors: tuple[Tensor, ...] = ()


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
"""The operation that a client asks for with each method. Server metadata is YAML that lists the server's models."""

INFERENCES = (Operation.INFER, Operation.STREAM)

HEALTH = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY, Operation.ONLINE, Operation.OFFLINE})
"""The operations that are answered with a bool."""

_BACKEND_METHODS: dict[Operation, str] = {
    Operation.INFER: "Predict",
    Operation.STREAM: "PredictStreaming",
    Operation.LIVE: "CheckLiveness",
    Operation.READY: "CheckReadiness",
    # A server is ready with all of its models or with none (`Models.ready_as_a_whole`).
    Operation.MODEL_READY: "CheckReadiness",
    Operation.MODELS: "ServerMetadata",
    Operation.METADATA: "ModelMetadata",
}
"""Online and Offline are missing: they are never forwarded."""


def backend_method(operation: Operation) -> str:
    """The method that asks a backend for `operation`.

    Raises:
        GatewayError: UNIMPLEMENTED, there is none.
    """
    method = _BACKEND_METHODS.get(operation)
    if method is None:
        raise unsupported(f"grps has no method for {operation.value!r}")
    return method
