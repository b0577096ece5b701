"""Converts the other members of a body (`signature_name`, `parameters`, any other key) to canonical parameters and
back.

Scalars become parameters unchanged. Other JSON becomes a string parameter with the JSON text. From V1 to V1, each
member keeps its position and its JSON value. A parameter from another protocol becomes a member of the object
`parameters`, except `signature_name`, which is a member of the body.
"""

from collections.abc import Mapping
from math import isfinite

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.json import INT64_MAX, INT64_MIN, Json, write
from gateway.core.messages import Message
from gateway.core.tensors import Parameters, ParameterValue
from gateway.protocols.v1.json_bodies import Body
from gateway.protocols.v1.schema import PARAMETERS, SERVING_DEFAULT, SIGNATURE_NAME, TensorFormat


class BodyMessage(Message, frozen=True):
    """A message with tensors, and the data for the response or for the request to a V1 backend: the format, whether the
    tensors are named, and the other members by key."""

    tensor_format: TensorFormat = TensorFormat.ROWS
    named: bool = False
    members: Mapping[str, Json] | None = None
    in_parameters: frozenset[str] = frozenset()
    """The parameters that are keys of the object `parameters`."""
    tensor_error: str = ""
    """The explanation of why the values are JSON texts and not a tensor, or empty if they are a tensor."""
    event_mode: str = ""
    """The CloudEvents mode of the response; empty for an ordinary response."""


def to_parameters(body: Body) -> tuple[Parameters, frozenset[str]]:
    """Return the parameters in the body's members, and the names of the parameters in the object `parameters`.

    Raises:
        DecodeError: a name occurs twice, or `signature_name` is not a string.
    """
    members = body.members
    if not members:
        return {}, frozenset()
    if not isinstance(members.get(SIGNATURE_NAME, ""), str):
        raise DecodeError(f"'{SIGNATURE_NAME}' key must be a string value.")
    given = members.get(PARAMETERS)
    nested = given if isinstance(given, dict) else {}
    outer = {name: each for name, each in members.items() if name != PARAMETERS or not isinstance(given, dict)}
    for name in nested:
        if name in outer:
            raise DecodeError(f"{name!r} is a key of the body and of 'parameters'; expected only one")
    return {name: _parameter(each) for name, each in (outer | nested).items()}, frozenset(nested)


def _parameter(given: Json) -> ParameterValue:
    if isinstance(given, str | bool | float) or (isinstance(given, int) and INT64_MIN <= given <= INT64_MAX):
        return given
    return write(given).decode()


def to_members(parameters: Parameters, origin: Message | None) -> dict[str, Json]:
    """Return the members of a body for `parameters`.

    Members of a V1 message keep their position and JSON value. The default signature name in a V1 message stays a
    member, although it is not a parameter.

    Raises:
        GatewayError: INVALID_ARGUMENT if a parameter is NaN or an infinity (the message says which).
    """
    known = origin if isinstance(origin, BodyMessage) else BodyMessage()
    written: Mapping[str, Json] = known.members or {}
    outer: dict[str, Json] = {}
    if written.get(SIGNATURE_NAME) == SERVING_DEFAULT:
        outer[SIGNATURE_NAME] = SERVING_DEFAULT
    elif not parameters:
        return {}
    nested: dict[str, Json] = {}
    for name, given in parameters.items():
        if name in known.in_parameters:
            holder, original = nested, written[PARAMETERS][name]
        elif name in written:
            holder, original = outer, written[name]
        else:
            holder, original = (outer if name == SIGNATURE_NAME else nested), given
        if isinstance(given, float) and not isfinite(given):
            raise invalid_input(f"parameter {name!r} is {given}, for which JSON has no number; send a finite one")
        # a route might have changed the parameter
        holder[name] = original if _parameter(original) == given else given
    found = outer | ({PARAMETERS: nested} if nested else {})
    return {name: found[name] for name in (*written, *found) if name in found}
