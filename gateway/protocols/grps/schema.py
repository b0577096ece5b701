"""The messages and methods of `grps.proto` as Python values, shared by all transports."""

from enum import Enum

from msgspec import Struct

from gateway.core.errors import unsupported
from gateway.core.operations import Operation
from gateway.core.tensors import Tensor


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
"""The values of `translate.payload` for gRPC and brpc backends, the default first."""

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
    """`GrpsMessage`, which is every request and every response.

    `payload` is None if the message contains no member of `data_oneof`.

    `tensors` contains the data of the payload:

    - gtensors: The tensors of the message.
    - str_data, bin_data: One unnamed BYTES `[1]`, for str_data with content type `text`.
    - ndarray: One unnamed tensor of numbers, which is `untyped` in a received message. Protobuf cannot represent an
      ndarray.
    - gmap: For each entry, a tensor `[1]`, named after the key, with the datatype that `gmap.MAPS` gives for its map.
      BYTES of `s_s` have content type `text`.

    In an outgoing message, all elements of BYTES are UTF-8, except in bin_data and `s_b`.
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
"""The operation of each method. Server metadata is YAML with a list of the server's models."""

INFERENCES = (Operation.INFER, Operation.STREAM)

HEALTH = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY, Operation.ONLINE, Operation.OFFLINE})
"""The operations whose result is a bool."""

_BACKEND_METHODS: dict[Operation, str] = {
    Operation.INFER: "Predict",
    Operation.STREAM: "PredictStreaming",
    Operation.LIVE: "CheckLiveness",
    Operation.READY: "CheckReadiness",
    # A server reports readiness only for the server as a whole (`Models.ready_as_a_whole`).
    Operation.MODEL_READY: "CheckReadiness",
    Operation.MODELS: "ServerMetadata",
    Operation.METADATA: "ModelMetadata",
}
"""The methods for backends. Online and Offline are missing, because the gateway never forwards them."""


def backend_method(operation: Operation) -> str:
    """Return the method for `operation` at a backend.

    Raises:
        GatewayError: UNIMPLEMENTED if grps does not have the method.
    """
    method = _BACKEND_METHODS.get(operation)
    if method is None:
        raise unsupported(f"grps has no method for {operation.value!r}")
    return method
