"""Reads and writes V2 parameters over gRPC, which are a `map<string, InferParameter>`. An InferParameter is a oneof of
five types."""

from reprlib import repr as shown

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.protobuf.schema import Protobuf
from gateway.core.protocol import Target
from gateway.core.requests import NestedJson
from gateway.core.tensors import Parameters, ParameterValue
from gateway.protocols.v2.extensions import SCHEDULE_POLICY
from gateway.protocols.v2.flavors import BINARY, TRITON
from gateway.protocols.v2.parameters import PRIORITY

_INT64_MIN, _INT64_MAX, _UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

_NEWER_TYPES = {"double_param": "a floating-point number", "uint64_param": "an integer above 2^63 - 1"}
"""The types that only the newer specification and Triton define. Other servers, such as KServe and MLServer, read a
parameter of such a type as a parameter without a value."""

_WITH_NEWER_TYPES = frozenset({TRITON, BINARY})

_WITH_NEWER_TYPES_IF_LISTED = frozenset({"parameters", SCHEDULE_POLICY})
"""Triton extensions that imply support for the newer types. Gateways also list the first extension."""


def has_newer_types(target: Target) -> bool:
    """Return True if the server type or the extensions show that a server supports the newer parameter types."""
    listed = target.extensions or ()
    return target.flavor in _WITH_NEWER_TYPES or not _WITH_NEWER_TYPES_IF_LISTED.isdisjoint(listed)


def read_parameters(given: Protobuf, what: str, *, reply: bool = False) -> dict[str, ParameterValue]:
    """Return the parameters in the map `given`.

    Raises:
        DecodeError: a parameter has no value, unless `reply` is True. The message contains the key. In a reply,
            parameters without a value are skipped.
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


def write_parameters(field: Protobuf, parameters: Parameters, what: str, *, newer: bool) -> None:
    """Add `parameters` to the map `field`. `newer` is True if the reader supports the newer types.

    Raises:
        GatewayError: INVALID_ARGUMENT if the reader might not support the type, or an integer does not fit in 64 bits.
            The message contains the key.
    """
    for key, value in parameters.items():
        if type(value) is NestedJson:  # from the answer to another client's call, which this call shares
            raise invalid_input(f"{what}: parameter {key!r} is an object or a list, which gRPC cannot carry")
        if isinstance(value, int) and not _INT64_MIN <= value <= _UINT64_MAX:
            raise invalid_input(f"{what}: parameter {key!r} is an integer beyond 64 bits, which gRPC cannot carry")
        choice = "uint64_param" if newer and _is_priority(key, value) else _parameter_choice(value)
        if choice in _NEWER_TYPES and not newer:
            raise invalid_input(
                f"{what}: parameter {key!r} is {_NEWER_TYPES[choice]}, for which not every server has a field over gRPC"
                f" ({choice}); `flavor: triton` on the backend says that its server has"
            )
        setattr(field[key], choice, value)


def _is_priority(key: str, value: ParameterValue) -> bool:
    """Return True if this parameter is a priority, which Triton accepts only as UINT64."""
    return key == PRIORITY and type(value) is int and value >= 0


def _parameter_choice(value: ParameterValue) -> str:
    """Return the field of InferParameter's oneof `parameter_choice`."""
    if isinstance(value, bool):
        return "bool_param"
    if isinstance(value, int):
        return "int64_param" if _INT64_MIN <= value <= _INT64_MAX else "uint64_param"
    return "double_param" if isinstance(value, float) else "string_param"
