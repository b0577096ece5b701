"""Types for the bodies of calls and of their responses. `Raw` is the text of a vector.

The typed reader decodes a body that has exactly these members, once each, and vectors that are lists of JSON numbers,
which real clients and servers write. The general reader (`gateway.core.json.read`) decodes every other body and large
bodies: it accepts more, and reports errors. Both readers return the same value.
"""

from typing import Any, TypeAlias, TypeVar

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

from gateway.core.errors import DecodeError
from gateway.core.json import MAX_DEPTH
from gateway.core.operations import Operation
from gateway.core.types import Buffer

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


Call: TypeAlias = EvaluateCall | GradientCall | ApplyJacobianCall | ApplyHessianCall
Reply: TypeAlias = EvaluateReply | DerivativeReply

CALL_TYPES: dict[Operation, type[Call]] = {
    Operation.INFER: EvaluateCall,
    Operation.GRADIENT: GradientCall,
    Operation.APPLY_JACOBIAN: ApplyJacobianCall,
    Operation.APPLY_HESSIAN: ApplyHessianCall,
}
REPLY_TYPES: dict[Operation, type[Reply]] = {
    operation: EvaluateReply if operation is Operation.INFER else DerivativeReply for operation in CALL_TYPES
}

_LARGEST = 2**14
"""Maximum bytes of a body for the typed reader. In a longer body, skipping the numbers once to find the end of each
vector costs more than cutting the vectors out of the text (0.7 us for each KiB)."""

Body = TypeVar("Body", bound=Call | Reply)


def read_as(kind: type[Body], parts: tuple[Buffer, ...], values: int) -> Body:
    """Return the body in `parts`. `values` is `limits.json_values`.

    Raises:
        DecodeError: the body is for the general reader.
    """
    text = parts[0] if len(parts) == 1 else b""
    # each value with its separator takes at least two bytes, so a short text does not have too many
    if type(text) is not bytes or len(text) > _LARGEST or len(text) > 2 * values:
        raise DecodeError
    try:
        body: Body = _DECODERS[kind].decode(text)
    except (MsgspecError, UnicodeError, RecursionError) as error:
        raise DecodeError from error
    members = len(kind.__struct_fields__)
    if config := getattr(body, "config", None):
        members += _members(config, 2)
    # Each member has one colon: there are more if a member is repeated or unknown, or if a string has a colon.
    if text.count(b":") != members:
        raise DecodeError
    return body


_DECODERS: dict[type[Struct], Decoder[Any]] = {
    kind: Decoder(kind) for kind in (*CALL_TYPES.values(), *REPLY_TYPES.values())
}
_CONTAINERS = frozenset({dict, list})


def _members(container: Any, level: int) -> int:
    """Return the number of members of all objects in `container`, which is at `level` of the document."""
    if level > MAX_DEPTH:
        raise DecodeError
    count, inner = (len(container), container.values()) if type(container) is dict else (0, container)
    for each in inner:
        if type(each) in _CONTAINERS:
            count += _members(each, level + 1)
    return count
