"""The words of UM-Bridge 1.0 on the wire: paths, keys, and what every message says alike."""

from gateway.core.operations import Operation
from gateway.core.types import Headers

NAME = "umbridge"

CALLS = {
    "Evaluate": Operation.INFER,
    "Gradient": Operation.GRADIENT,
    "ApplyJacobian": Operation.APPLY_JACOBIAN,
    "ApplyHessian": Operation.APPLY_HESSIAN,
}
"""The model's operations: each word is a path, and a key of ModelInfo's `support`."""

PATHS = {operation: f"/{word}" for word, operation in CALLS.items()}

INPUT_SIZES, OUTPUT_SIZES, MODEL_INFO = PARTS = ("InputSizes", "OutputSizes", "ModelInfo")
"""The three questions that together are a model's metadata: each word is a path, and a Request's `part`."""

SIZES = {INPUT_SIZES: "inputSizes", OUTPUT_SIZES: "outputSizes"}
"""The key of the answer."""

TEST_SHARED_MEMORY = "TestShMem"
SHARED_MEMORY_CALLS = tuple(f"{word}ShMem" for word in CALLS)
"""In no document: clients and servers on one machine pass the numbers of a call through POSIX shared memory."""

KEYS = {
    "out_wrt": "outWrt",
    "in_wrt": "inWrt",
    "in_wrt1": "inWrt1",
    "in_wrt2": "inWrt2",
    "sens": "sens",
    "vec": "vec",
}
"""The JSON keys of the tensors that a derivative takes beside the model's inputs."""

PROTOCOL_VERSION = 1.0
"""A JSON number: the document says string, and a string breaks the Python and the C++ client."""

NAN = "literal"
"""NaN, Infinity and -Infinity are what the Python and the Julia package read; `null` becomes a silent None."""

JSON = Headers(((b"content-type", b"application/json"),))
