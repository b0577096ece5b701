"""Types for the bodies of calls and responses. `Raw` is the text of a vector.

The typed readers decode a body with exactly these members, once each, and with vectors that are lists of JSON numbers.
Real clients and servers write these bodies. The general reader (`gateway.core.json.read`) decodes all other bodies and
large bodies, is more lenient, and reports errors. Both readers return the same value.
"""

from typing import Any, TypeAlias

from msgspec import Raw, Struct

from gateway.core.json import TypedReader
from gateway.core.operations import Operation

Config: TypeAlias = dict[str, Any]


class EvaluateCall(Struct):
    """The body of `POST /Evaluate`."""

    name: str
    input: list[Raw]
    config: Config


class GradientCall(Struct, rename="camel"):
    """The body of `POST /Gradient`."""

    name: str
    out_wrt: int
    in_wrt: int
    input: list[Raw]
    sens: Raw
    config: Config


class ApplyJacobianCall(Struct, rename="camel"):
    """The body of `POST /ApplyJacobian`."""

    name: str
    out_wrt: int
    in_wrt: int
    input: list[Raw]
    vec: Raw
    config: Config


class ApplyHessianCall(Struct, rename="camel"):
    """The body of `POST /ApplyHessian`."""

    name: str
    out_wrt: int
    in_wrt1: int
    in_wrt2: int
    input: list[Raw]
    sens: Raw
    vec: Raw
    config: Config


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
