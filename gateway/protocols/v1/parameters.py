"""What stands beside the tensors: `signature_name`, `parameters`, and whatever else a client or a server wrote there.

All of it is parameters of the request or the response: scalars as they are, any other JSON as a parameter that holds
its text. A body of V1 keeps the place of each; a parameter that came over another wire stands in the object
`parameters`.
"""

from collections.abc import Mapping
from math import isfinite

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.frozen import frozen
from gateway.core.types import Message, Parameters, ParameterValue
from gateway.json import INT64_MAX, INT64_MIN, Json, write
from gateway.protocols.v1.json_bodies import Body
from gateway.protocols.v1.schema import PARAMETERS, SIGNATURE_NAME, TensorFormat

_NO_PARAMETERS: Parameters = {}


@frozen
class BodyMessage(Message):
    """A message with tensors: in which tensor_format they stand, whether they are named, and its other members by the parameters
    that they became."""

    tensor_format: TensorFormat = TensorFormat.ROWS
    named: bool = False
    members: Mapping[str, Json] | None = None
    in_parameters: frozenset[str] = frozenset()
    """Those of the members that stand in `parameters`."""
    tensor_error: str = ""
    """Why rows are their JSON texts; empty if they are none."""
    event_mode: str = ""
    """How a CloudEvent is to be answered."""


def to_parameters(body: Body) -> tuple[Parameters, frozenset[str]]:
    """The parameters that the members become, and which of them stood in `parameters`.

    Raises:
        DecodeError: one name for two of them, or a `signature_name` that is no string.
    """
    members = body.members
    if not members:
        return _NO_PARAMETERS, frozenset()
    if not isinstance(members.get(SIGNATURE_NAME, ""), str):
        raise DecodeError(f"'{SIGNATURE_NAME}' key must be a string value.")
    given = members.get(PARAMETERS)
    nested = given if isinstance(given, dict) else {}
    outer = {name: each for name, each in members.items() if name != PARAMETERS or not isinstance(given, dict)}
    for name in nested:
        if name in outer:
            raise DecodeError(f"{name!r} stands both in 'parameters' and beside it")
    return {name: _parameter(each) for name, each in (outer | nested).items()}, frozenset(nested)


def _parameter(given: Json) -> ParameterValue:
    if isinstance(given, str | bool | float) or (isinstance(given, int) and INT64_MIN <= given <= INT64_MAX):
        return given
    return write(given).decode()


def to_members(parameters: Parameters, origin: Message | None) -> dict[str, Json]:
    """The members that parameters become: each where and as it stood if it came over V1.

    Raises:
        GatewayError: INVALID_ARGUMENT naming a parameter that is no JSON number.
    """
    if not parameters:
        return {}
    known = origin if isinstance(origin, BodyMessage) else BodyMessage()
    written: Mapping[str, Json] = known.members or {}
    outer: dict[str, Json] = {}
    nested: dict[str, Json] = {}
    for name, given in parameters.items():
        if name in known.in_parameters:
            holder, original = nested, written[PARAMETERS][name]
        elif name in written:
            holder, original = outer, written[name]
        else:
            holder, original = (outer if name == SIGNATURE_NAME else nested), given
        if isinstance(given, float) and not isfinite(given):
            raise invalid_input(f"parameter {name!r} is {given}, for which JSON has no number")
        # a route may have changed it on the way
        holder[name] = original if _parameter(original) == given else given
    found = outer | ({PARAMETERS: nested} if nested else {})
    return {name: found[name] for name in (*written, *found) if name in found}
