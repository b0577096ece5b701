"""V2's parameters in gRPC: `map<string, InferParameter>`, where an InferParameter is a oneof of five types."""

from reprlib import repr as shown

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.types import Parameters, ParameterValue
from gateway.protobuf.schema import Protobuf
from gateway.protocols.v2.flavors import KSERVE, MLSERVER

_INT64_MIN, _INT64_MAX, _UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

_NEWER_TYPES = {"double_param": "a floating-point number", "uint64_param": "an integer above 2^63 - 1"}
"""The types that only the newer specification and Triton have."""

_WITHOUT_NEWER_TYPES = {KSERVE: "KServe", MLSERVER: "MLServer"}
"""Flavors that read a parameter of such a type as one without a value."""


def read_parameters(given: Protobuf, what: str, *, reply: bool = False) -> dict[str, ParameterValue]:
    """The parameters in the map `given`.

    Raises:
        DecodeError: naming its key, a parameter without a value; in a `reply` such a parameter is skipped.
    """
    if not given:
        return {}
    parameters = {}
    for key, each in given.items():
        choice = each.WhichOneof("parameter_choice")
        if choice is not None:
            parameters[key] = getattr(each, choice)
        elif not reply:
            raise DecodeError(f"{what}: parameter {shown(key)} has no value")
    return parameters


def write_parameters(field: Protobuf, parameters: Parameters, flavor: str, what: str) -> None:
    """Put `parameters` into the map `field`.

    Raises:
        GatewayError: INVALID_ARGUMENT naming the key, a type that a server of `flavor` cannot read, or an integer
            beyond 64 bits.
    """
    for key, value in parameters.items():
        if isinstance(value, int) and not _INT64_MIN <= value <= _UINT64_MAX:
            raise invalid_input(f"{what}: parameter {key!r} is an integer beyond 64 bits, which gRPC cannot carry")
        choice = _parameter_choice(value)
        if choice in _NEWER_TYPES and flavor in _WITHOUT_NEWER_TYPES:
            raise invalid_input(
                f"{what}: parameter {key!r} is {_NEWER_TYPES[choice]}, "
                f"which {_WITHOUT_NEWER_TYPES[flavor]} cannot read over gRPC"
            )
        setattr(field[key], choice, value)


def _parameter_choice(value: ParameterValue) -> str:
    """The field of InferParameter's oneof `parameter_choice`."""
    if isinstance(value, bool):
        return "bool_param"
    if isinstance(value, int):
        return "int64_param" if _INT64_MIN <= value <= _INT64_MAX else "uint64_param"
    return "double_param" if isinstance(value, float) else "string_param"
