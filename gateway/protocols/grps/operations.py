"""The methods of grps, which all its wire forms have, and what they ask."""

from gateway.core.errors import unsupported
from gateway.core.operations import Operation

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
"""What a client asks. A server's metadata is YAML that lists its models."""

_ASKING: dict[Operation, str] = {
    Operation.INFER: "Predict",
    Operation.STREAM: "PredictStreaming",
    Operation.LIVE: "CheckLiveness",
    Operation.READY: "CheckReadiness",
    # a server is ready, or is not, with all of its models (`Models.ready_as_a_whole`)
    Operation.MODEL_READY: "CheckReadiness",
    Operation.MODELS: "ServerMetadata",
    Operation.METADATA: "ModelMetadata",
}

HEALTH = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY, Operation.ONLINE, Operation.OFFLINE})
"""Those whose answer is a bool."""


def method(operation: Operation) -> str:
    """The method that asks a backend.

    Raises:
        GatewayError: UNIMPLEMENTED, there is none; Online and Offline are never forwarded.
    """
    found = _ASKING.get(operation)
    if found is None:
        raise unsupported(f"grps has no method for {operation.value!r}")
    return found
