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
# Options of `infer`: our name, the client's.
OPTIONS = {
    "version": "model_version",
    "id": "request_id",
    **{name: name for name in ("parameters", "priority", "timeout", "sequence_id", "sequence_start", "sequence_end")},
}


def call_of(step):
    """The client's method and its arguments; None for `infer`, whose arguments differ."""
    op = step["op"]
    if op in PLAIN:
        return PLAIN[op], {}
    if op in OF_A_VERSION:
        return OF_A_VERSION[op], {"model_name": step["model"], "model_version": step.get("version", "")}
    if op in OF_A_MODEL:
        return OF_A_MODEL[op], {"model_name": step["model"]}
    if op == "call":
        files = {name: base64.b64decode(text) for name, text in step.get("files", {}).items()}
        return step["method"], {**step.get("arguments", {}), **({"files": files} if files else {})}
    return None


def options_of(step, names):
    return {theirs: step[ours] for ours, theirs in names.items() if ours in step}


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
