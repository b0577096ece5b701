"""V2's parameters as gRPC has them: `map<string, InferParameter>`, where InferParameter is one of five types."""

from reprlib import repr as shown

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.types import Parameters, ParameterValue
from gateway.protobuf.schema import Protobuf
from gateway.protocols.v2.flavors import KSERVE, MLSERVER

_INT64_MIN, _INT64_MAX, _UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

_CHOICES = {"double_param": "a number with a fraction", "uint64_param": "an integer beyond 64 bits with a sign"}
"""What the newer specification and Triton have."""

_WITHOUT_THEM = {KSERVE: "KServe", MLSERVER: "MLServer"}
"""Flavors that read such a parameter as one without a value."""


def read_parameters(given: Protobuf, what: str, *, reply: bool = False) -> dict[str, ParameterValue]:
    """The parameters in `given`. `reply`: one without a value is absent.

    Raises:
        DecodeError: naming its key, a parameter without a value.
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
        GatewayError: INVALID_ARGUMENT naming the key, for a type that a server of `flavor` would lose, and for an
            integer beyond 64 bits.
    """
    for key, given in parameters.items():
        if isinstance(given, int) and not _INT64_MIN <= given <= _UINT64_MAX:
            raise invalid_input(f"{what}: parameter {key!r} is an integer beyond 64 bits, which gRPC cannot carry")
        choice = _choice(given)
        if choice in _CHOICES and flavor in _WITHOUT_THEM:
            raise invalid_input(
                f"{what}: parameter {key!r} is {_CHOICES[choice]}, which {_WITHOUT_THEM[flavor]} cannot read over gRPC"
            )
        setattr(field[key], choice, given)


def _choice(given: ParameterValue) -> str:
    if isinstance(given, bool):
        return "bool_param"
    if isinstance(given, int):
        return "int64_param" if _INT64_MIN <= given <= _INT64_MAX else "uint64_param"
    return "double_param" if isinstance(given, float) else "string_param"
