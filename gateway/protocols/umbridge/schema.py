"""Defines the paths, keys and constants of the UM-Bridge 1.0 HTTP interface, and the types of its bodies."""

from typing import Any, TypeAlias

from msgspec import Raw, Struct

from gateway.core.json import TypedReader
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

A client and a server on one machine use these calls to exchange numbers through POSIX shared memory."""

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
"""The protocol version, which is a JSON number.

The specification requires a string, but a string breaks the Python and C++ clients."""

NAN: Nan = "literal"
"""NaN, Infinity and -Infinity, which the Python and Julia packages read. These packages convert `null` to None without
an error."""

CALLS_HEADER = "gateway-calls"
MANY = "many"
"""A header value of the response to `/Info`. It shows other gateways that the server accepts any number of concurrent
calls. The interface has no member for this information, and other clients ignore the header."""

INFO_HEADERS = Headers((*JSON_HEADERS.raw, (CALLS_HEADER.encode(), MANY.encode())))


# --- Bodies ---

# `Raw` is the text of a vector. The typed readers decode a body that contains each of these members exactly once, and
# no others, and whose vectors are lists of JSON numbers. Real clients and servers write such bodies. The general reader
# (`gateway.core.json.read`) decodes all other bodies and large bodies, is more lenient, and reports errors. Both
# readers return the same value.

_Config: TypeAlias = dict[str, Any]


class EvaluateCall(Struct):
    """The body of `POST /Evaluate`."""

    name: str
    input: list[Raw]
    config: _Config


class GradientCall(Struct, rename="camel"):
    """The body of `POST /Gradient`."""

    name: str
    out_wrt: int
    in_wrt: int
    input: list[Raw]
    sens: Raw
    config: _Config


class ApplyJacobianCall(Struct, rename="camel"):
    """The body of `POST /ApplyJacobian`."""

    name: str
    out_wrt: int
    in_wrt: int
    input: list[Raw]
    vec: Raw
    config: _Config


class ApplyHessianCall(Struct, rename="camel"):
    """The body of `POST /ApplyHessian`."""

    name: str
    out_wrt: int
    in_wrt1: int
    in_wrt2: int
    input: list[Raw]
    sens: Raw
    vec: Raw
    config: _Config


class EvaluateReply(Struct):
    """The response to an evaluation."""

    output: list[Raw]


class DerivativeReply(Struct):
    """The response to a derivative call."""

    output: Raw


_LARGEST = 2**14
"""Maximum size of a body for a typed reader, in bytes.

In a longer body, skipping the numbers once to find the end of each vector costs more than cutting the vectors out of
the text (0.7 us for each KiB)."""

CALL_READERS: dict[Operation, TypedReader[Any]] = {
    Operation.INFER: TypedReader(EvaluateCall, largest=_LARGEST),
    Operation.GRADIENT: TypedReader(GradientCall, largest=_LARGEST),
    Operation.APPLY_JACOBIAN: TypedReader(ApplyJacobianCall, largest=_LARGEST),
    Operation.APPLY_HESSIAN: TypedReader(ApplyHessianCall, largest=_LARGEST),
}
EVALUATE_REPLIES: TypedReader[EvaluateReply] = TypedReader(EvaluateReply, largest=_LARGEST)
DERIVATIVE_REPLIES: TypedReader[DerivativeReply] = TypedReader(DerivativeReply, largest=_LARGEST)
