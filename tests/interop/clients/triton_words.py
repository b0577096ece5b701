"""What the scripts of tritonclient's two transports share; it imports neither of them, each of which takes its time."""

import base64

import numpy as np
from tritonclient.utils import (
    InferenceServerException,
    deserialize_bytes_tensor,
    serialize_byte_tensor,
    triton_to_np_dtype,
)

PLAIN = {
    "live": "is_server_live",
    "ready": "is_server_ready",
    "server_metadata": "get_server_metadata",
    "index": "get_model_repository_index",
}
OF_A_VERSION = {"model_ready": "is_model_ready", "metadata": "get_model_metadata", "config": "get_model_config"}
OF_A_MODEL = {"load": "load_model", "unload": "unload_model"}


def arguments_of(step):
    """Those of any method: `{"op": "call", "method": name, "arguments": {..}, "files": {name: base64}}`."""
    files = {name: base64.b64decode(text) for name, text in step.get("files", {}).items()}
    return {**step.get("arguments", {}), **({"files": files} if files else {})}


def from_raw(datatype, shape, raw):
    if datatype == "BYTES":
        array = deserialize_bytes_tensor(raw)
    else:
        array = np.frombuffer(raw, dtype=triton_to_np_dtype(datatype))
    return array.reshape(shape)


def to_raw(array):
    if array.dtype == np.object_:
        serialized = serialize_byte_tensor(array)
        return serialized.item() if serialized.size else b""
    return array.tobytes()


def told(error):
    if isinstance(error, InferenceServerException):
        return {"error": {"type": type(error).__name__, "status": error.status(), "message": error.message()}}
    return {"error": {"type": type(error).__name__, "status": None, "message": str(error)}}
