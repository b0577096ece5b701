"""The paths, keys and constants of the UM-Bridge 1.0 HTTP interface."""

from gateway.core.messages import JSON_HEADERS, Headers
from gateway.core.operations import Operation
from gateway.core.requests import Nan

NAME = "umbridge"

CALLS = {
    "Evaluate": Operation.INFER,
    "Gradient": Operation.GRADIENT,
    "ApplyJacobian": Operation.APPLY_JACOBIAN,
    "ApplyHessian": Operation.APPLY_HESSIAN,
}
"""The operations of a model. Each key is a path of the interface and a key of ModelInfo's `support`."""

PATHS = {operation: f"/{call}" for call, operation in CALLS.items()}

INPUT_SIZES, OUTPUT_SIZES, MODEL_INFO = PARTS = ("InputSizes", "OutputSizes", "ModelInfo")
"""The three requests for a model's metadata, as the path and as the `part` of a Request."""

SIZES_KEYS = {INPUT_SIZES: "inputSizes", OUTPUT_SIZES: "outputSizes"}
"""The JSON key in each response."""

TEST_SHARED_MEMORY = "TestShMem"
SHARED_MEMORY_CALLS = tuple(f"{call}ShMem" for call in CALLS)
"""Undocumented calls.

A client and a server on one machine use them to exchange the numbers through POSIX shared memory."""

KEYS = {
    "out_wrt": "outWrt",
    "in_wrt": "inWrt",
    "in_wrt1": "inWrt1",
    "in_wrt2": "inWrt2",
    "sens": "sens",
    "vec": "vec",
}
"""The JSON keys of the tensors that a derivative takes in addition to the model's inputs (see DERIVATIVES)."""

PROTOCOL_VERSION = 1.0
"""The protocol version, a JSON number.

The specification says string, but a string breaks the Python and the C++ client."""

NAN: Nan = "literal"
"""NaN, Infinity and -Infinity, which the Python and the Julia packages read. These packages convert `null` to None
without an error."""

CALLS_HEADER = "gateway-calls"
MANY = "many"
"""With this header value, the response to `/Info` shows other gateways that the server accepts any number of concurrent
calls. The interface has no member for this information, and other clients ignore the header."""

INFO_HEADERS = Headers((*JSON_HEADERS.raw, (CALLS_HEADER.encode(), MANY.encode())))
